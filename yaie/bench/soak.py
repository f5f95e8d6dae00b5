"""`yaie bench soak`: thousands of requests of every kind at once. Does anything leak or break?

`yaie serve` runs as a process of its own and is watched every second. The client gives up a tenth of the
requests, and a twentieth are bad.
"""

import asyncio
import os
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psutil

from yaie.bench.http_client import Answer, ask
from yaie.bench.report import progress, save, show
from yaie.bench.served import engine_process_flags, flags, serving
from yaie.bench.soak_requests import Ask, draw, filling, greedy, num_tokens, texts_of
from yaie.cli.console import say
from yaie.core.config import EngineConfig
from yaie.core.errors import YaieError

# One thread for the engine leaves a core to the event loop and to this client.
THREADS, NUM_BLOCKS = 1, 1024
MOST_GROWTH = 1.05
MOST_SHOWN = 20
GAUGES = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_usage": "vllm:kv_cache_usage_perc",
}
Sample = dict[str, float]


def run(
    config: EngineConfig,
    requests: int,
    concurrency: int,
    engine_process: bool | None,
    json: str | None,
) -> bool:
    """Ask them all; prints what came, faults and leaks, and returns whether there were none.

    Raises YaieError if the server does not start.
    """
    config = replace(
        config,
        threads=config.threads or THREADS,
        num_blocks=config.num_blocks or NUM_BLOCKS,
    )
    options = engine_process_flags(engine_process)
    with serving(config, "--log-level=warning", *options) as (url, server):
        soak = Soak(url, server.pid)
        with progress() as bar:
            task = bar.add_task("asking", total=requests)
            seconds = asyncio.run(soak.run(requests, concurrency, lambda: bar.advance(task)))
    leaks = find_leaks(soak.samples)
    if server.returncode:
        soak.faults.append(f"the server ended with {server.returncode}")
    served = " ".join(["yaie serve", *flags(config), *options])
    _report(soak, seconds, leaks, served)
    save(json, _figures(soak, seconds, leaks, served, f"{requests} --concurrency {concurrency}"))
    return not leaks and not soak.faults


class Soak:
    """One run: what was asked and came, and what the server looked like meanwhile."""

    def __init__(self, url: str, pid: int) -> None:
        self._url = url
        self._server = psutil.Process(pid)
        self.samples: list[Sample] = []
        self.faults: list[str] = []
        self.count: Counter[str] = Counter()
        self.first: list[float] = []
        self.tokens = 0
        self.known: dict[int, list[str]] = {}

    async def run(self, requests: int, concurrency: int, on_answer: Callable[[], None]) -> float:
        """Ask for so many answers, so many at once; returns the seconds that took."""
        (model,) = (await ask(self._url, "/v1/models")).json["data"]
        asks = draw(requests, model["max_model_len"])
        await self._fill_pool(model["max_model_len"])
        await self._learn_greedy()
        self.samples.append(await self._sample())  # idle
        watching = asyncio.create_task(self._watch())
        left, begin = iter(asks), time.perf_counter()
        await asyncio.gather(*(self._work(left, on_answer) for _ in range(concurrency)))
        seconds = time.perf_counter() - begin
        await asyncio.sleep(2)
        self.samples.append(await self._sample())
        watching.cancel()
        return seconds

    async def _fill_pool(self, context: int) -> None:
        """Use every block once: the system counts pages when they are first written, and what the pool
        still takes then is no leak."""
        metrics = (await ask(self._url, "/metrics")).body.decode()
        found = re.search(r"^vllm:cache_config_info{(.*)} ", metrics, re.M)
        setup = dict(re.findall(r'(\w+)="([^"]*)"', found[1] if found else ""))
        num_tokens = int(setup["num_gpu_blocks"]) * int(setup["block_size"])
        for item in filling(num_tokens, context):
            if (answer := await self._send(item)).status != 200:
                raise YaieError(
                    f"this server cannot answer what is asked here: {answer.body[:200]!r}"
                )

    async def _learn_greedy(self) -> None:
        """Note what a client gets that is alone. Raises YaieError if it gets no whole answer."""
        for known in greedy():
            try:
                self.known[_key(known)] = texts_of(known, await self._send(known))
            except ValueError as error:
                raise YaieError(f"this server cannot answer what is asked here: {error}") from None

    async def _work(self, asks: Iterator[Ask], on_answer: Callable[[], None]) -> None:
        for item in asks:
            try:
                self.judge(item, await self._send(item))
            except (ValueError, OSError) as error:
                self.faults.append(f"{item.kind}: {error}")
            self.count[item.kind] += 1
            on_answer()

    async def _send(self, item: Ask) -> Answer:
        return await ask(self._url, item.path, item.body, leave_after=item.leave_after)

    def judge(self, item: Ask, answer: Answer) -> None:
        """Count what came. Raises ValueError unless this is the answer that was due."""
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

    async def _sample(self) -> Sample:
        metrics = (await ask(self._url, "/metrics")).body.decode()
        gauges = {
            name: sum(
                float(value) for value in re.findall(rf"^{full}(?:{{.*}})? (\S+)", metrics, re.M)
            )
            for name, full in GAUGES.items()
        }
        processes = [self._server, *self._server.children(recursive=True)]
        return {
            "rss_mib": sum(process.memory_info().rss for process in processes) / 2**20,
            "fds": sum(process.num_fds() for process in processes),
            "threads": sum(process.num_threads() for process in processes),
            **gauges,
        }


def find_leaks(samples: list[Sample]) -> list[str]:
    """What a server keeps that it should not, by its samples: the first and the last one are idle."""
    first, last = samples[0], samples[-1]
    found = [f"{name} is {last[name]} at the end" for name in GAUGES if last[name] != 0]
    early, late = halves(samples, "rss_mib")
    if late > MOST_GROWTH * early:
        found.append(f"memory grew from {early:.0f} to {late:.0f} MiB over the second half")
    if last["fds"] > first["fds"] + 2:
        found.append(f"file descriptors grew from {first['fds']} to {last['fds']}")
    most = max(sample["threads"] for sample in samples[: len(samples) // 2])
    if last["threads"] > most:
        found.append(f"threads grew from {most} to {last['threads']}")
    return found


def halves(samples: list[Sample], name: str) -> tuple[float, float]:
    """Medians over the third and over the last quarter of the samples."""
    size = max(1, len(samples) // 4)
    values = [sample[name] for sample in samples]
    return statistics.median(values[-2 * size : -size]), statistics.median(values[-size:])


def _key(item: Ask) -> int:
    return hash((item.path, repr(item.body)))


def _report(soak: Soak, seconds: float, leaks: list[str], served: str) -> None:
    count = soak.count
    early, late = halves(soak.samples, "rss_mib")
    rows = [
        ("good answers, complete", f"{count['good'] + count['greedy']:,}"),
        ("greedy ones among them, compared with the answer given alone", f"{count['greedy']:,}"),
        ("given up by the client", f"{count['aborted']:,}"),
        ("bad, to be refused with 400 or 404", f"{count['bad']:,}"),
        ("faults", f"{len(soak.faults):,}"),
        ("leaks", f"{len(leaks):,}"),
        ("memory in the third quarter, in the last", f"{early:,.0f} MiB, {late:,.0f} MiB"),
        ("tokens/s", f"{soak.tokens / seconds:,.0f}"),
    ]
    if first := _first_token_ms(soak):
        times = f"{first['p50']:,.0f} ms, {first['p99']:,.0f} ms"
        rows.append(("to first token, median and 99th percentile", times))
    show("A soak", ["", "measured"], rows, [served, f"{seconds:,.0f} s"])
    for fault in soak.faults[:MOST_SHOWN]:
        say(f"FAULT {fault:.400}")
    if len(soak.faults) > MOST_SHOWN:
        say(f"and {len(soak.faults) - MOST_SHOWN} faults more")
    for leak in leaks:
        say(f"LEAK {leak}")


def _first_token_ms(soak: Soak) -> dict[str, float]:
    """Of the streams that were complete; nothing where there are too few to tell."""
    if len(soak.first) < 2:
        return {}
    percentiles = statistics.quantiles(soak.first, n=100)
    return {"p50": 1e3 * percentiles[49], "p99": 1e3 * percentiles[98]}


def _figures(
    soak: Soak, seconds: float, leaks: list[str], served: str, requests: str
) -> dict[str, Any]:
    every = max(1, len(soak.samples) // 60)
    early, late = halves(soak.samples, "rss_mib")
    return {
        "command": f"yaie bench soak --requests {requests}",
        "workload": f"{served}; chat and text, streamed and not, a tenth given up by the client, "
        "a twentieth bad",
        "seconds": seconds,
        "requests": dict(soak.count),
        "faults": len(soak.faults),
        "leaks": leaks,
        "tokens_per_second": soak.tokens / seconds,
        "first_token_ms": _first_token_ms(soak),
        "rss_mib": {"third_quarter": early, "last_quarter": late},
        "load": os.getloadavg()[0],
        "samples": [*soak.samples[::every], soak.samples[-1]],
    }
