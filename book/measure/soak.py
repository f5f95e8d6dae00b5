"""Thousands of requests of every kind at once, a tenth of them given up: does anything leak or break?

    python -m book.measure.soak --requests 20000 --concurrency 64

`yaie serve` on the tutor, as a process that is watched every second. Exits with 1 if an answer is not
whole, a greedy answer differs from the one given to a client alone, or the server keeps blocks, file
descriptors, threads or memory.
"""

import argparse
import asyncio
import os
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from book.measure.http_client import Answer, ask, serving
from book.measure.soak_requests import Ask, draw, greedy, num_tokens, texts_of
from yaie.cli.bench.report import save

OUT = Path(__file__).parents[1] / "evidence/soak.json"
# One thread for the engine leaves a core to the event loop and to this client. The pool is so small that
# all of its memory is touched early: pages that were never used do not count as used.
OPTIONS = ("--threads=1", "--num-blocks=1024", "--log-level=warning")
MOST_GROWTH = 1.05
GAUGES = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_usage": "vllm:kv_cache_usage_perc",
}


class Soak:
    """One run: what was asked and came, and what the server looked like meanwhile."""

    def __init__(self, url: str, pid: int) -> None:
        self._url = url
        self._process = psutil.Process(pid)
        self.samples: list[dict[str, float]] = []
        self.faults: list[str] = []
        self.count: Counter[str] = Counter()
        self.first: list[float] = []
        self.tokens = 0
        self.known: dict[int, list[str]] = {}

    async def run(self, asks: list[Ask], concurrency: int) -> float:
        """Ask all, so many at once; returns the seconds that took."""
        for known in greedy():
            self.known[_key(known)] = texts_of(known, await self._send(known))
        self.samples.append(await self._sample())  # nobody is there
        watching = asyncio.create_task(self._watch())
        left, begin = iter(asks), time.perf_counter()
        await asyncio.gather(*(self._work(left) for _ in range(concurrency)))
        seconds = time.perf_counter() - begin
        await asyncio.sleep(2)
        self.samples.append(await self._sample())
        watching.cancel()
        return seconds

    async def _work(self, asks: Iterator[Ask]) -> None:
        for item in asks:
            try:
                self._judge(item, await self._send(item))
            except (ValueError, OSError) as error:
                self.faults.append(f"{item.kind}: {error}")
            self.count[item.kind] += 1

    async def _send(self, item: Ask) -> Answer:
        return await ask(self._url, item.path, item.body, leave_after=item.leave_after)

    def _judge(self, item: Ask, answer: Answer) -> None:
        """Raise ValueError unless this is the answer that was due."""
        if item.kind == "bad":
            if answer.status not in (400, 404):
                raise ValueError(f"{item.body!r:.80}: {answer.status} {answer.body[:200]!r}")
        elif item.kind != "aborted":
            texts = texts_of(item, answer)
            if item.kind == "greedy" and texts != self.known[_key(item)]:
                raise ValueError(f"{item.body}: {texts}, but alone {self.known[_key(item)]}")
            self.tokens += num_tokens(item, answer)
            if item.body.get("stream"):
                self.first.append(answer.times[0] - answer.sent)
        elif not answer.raw or not answer.raw.endswith((b"[DONE]\n\n\r\n0\r\n\r\n", b"}")):
            self.count["cut off"] += 1

    async def _watch(self) -> None:
        while True:
            self.samples.append(await self._sample())
            await asyncio.sleep(1)

    async def _sample(self) -> dict[str, float]:
        metrics = (await ask(self._url, "/metrics")).body.decode()
        gauges = {
            name: sum(
                float(value) for value in re.findall(rf"^{full}(?:{{.*}})? (\S+)", metrics, re.M)
            )
            for name, full in GAUGES.items()
        }
        return {
            "rss_mib": self._process.memory_info().rss / 2**20,
            "fds": self._process.num_fds(),
            "threads": self._process.num_threads(),
            **gauges,
        }

    def leaks(self) -> list[str]:
        """What the server keeps that it should not."""
        last = self.samples[-1]
        found = [f"{name} is {last[name]} at the end" for name in GAUGES if last[name] != 0]
        early, late = self.halves("rss_mib")
        if late > MOST_GROWTH * early:
            found.append(f"memory grew from {early:.0f} to {late:.0f} MiB over the second half")
        if last["fds"] > self.samples[0]["fds"] + 2:
            found.append(f"file descriptors grew from {self.samples[0]['fds']} to {last['fds']}")
        most = max(sample["threads"] for sample in self.samples[: len(self.samples) // 2])
        if last["threads"] > most:
            found.append(f"threads grew from {most} to {last['threads']}")
        return found

    def halves(self, name: str) -> tuple[float, float]:
        """Medians over the third and over the last quarter of the samples."""
        size = max(1, len(self.samples) // 4)
        values = [sample[name] for sample in self.samples]
        return statistics.median(values[-2 * size : -size]), statistics.median(values[-size:])


def _key(item: Ask) -> int:
    return hash((item.path, repr(item.body)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--out", default=str(OUT))
    given = parser.parse_args()
    with serving(*OPTIONS) as (url, process):
        soak = Soak(url, process.pid)
        seconds = asyncio.run(soak.run(draw(given.requests), given.concurrency))
    leaks = soak.leaks()
    figures = _figures(soak, given, seconds, leaks)
    for fault in soak.faults[:20]:
        print(f"FAULT {fault:.400}")
    for leak in leaks:
        print(f"LEAK {leak}")
    print({name: figures[name] for name in figures if name != "samples"})
    save(given.out, figures)
    return 1 if leaks or soak.faults or process.returncode else 0


def _figures(
    soak: Soak, given: argparse.Namespace, seconds: float, leaks: list[str]
) -> dict[str, Any]:
    percentiles = statistics.quantiles(soak.first, n=100)
    every = max(1, len(soak.samples) // 60)
    return {
        "command": f"python -m book.measure.soak --requests {given.requests} "
        f"--concurrency {given.concurrency}",
        "workload": f"the tutor behind yaie serve {' '.join(OPTIONS)}; "
        "chat and text, streamed and not, a tenth given up by the client, a twentieth bad",
        "seconds": seconds,
        "requests": dict(soak.count),
        "faults": len(soak.faults),
        "leaks": leaks,
        "tokens_per_second": soak.tokens / seconds,
        "first_token_ms": {"p50": 1e3 * percentiles[49], "p99": 1e3 * percentiles[98]},
        "rss_mib": dict(
            zip(("third_quarter", "last_quarter"), soak.halves("rss_mib"), strict=True)
        ),
        "load": os.getloadavg()[0],
        "samples": [*soak.samples[::every], soak.samples[-1]],
    }


if __name__ == "__main__":
    raise SystemExit(main())
