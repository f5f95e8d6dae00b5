"""What HTTP, tokenization and streaming cost: `yaie serve` against the engine alone, in tokens a second.

    python -m book.measure.overhead

64 streams at once on the tutor. The engine alone is given token ids in this process. The server is
another process, given text by a client here that only keeps what comes, and looks now and then. They
take turns, so that a drift of the machine meets both alike. Server and client share the cores.
"""

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from book.measure.http_client import Answer, ask, serving
from yaie.cli.bench.report import save
from yaie.cli.bench.workload import Job, Lengths, draw_jobs, run_jobs
from yaie.engine.llm_engine import LLMEngine

OUT = Path(__file__).parents[1] / "evidence/serving_overhead.json"
STREAMS, PROMPT, OUTPUT = 64, 64, 128
ROUNDS, WARM_UP = 7, 1
SIP = 0.02
"""Seconds between two looks of the client at what has come."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--threads", type=int, help="of the engine; all physical cores if not given"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    engine = LLMEngine(mine="none", prefix_caching=False, threads=given.threads)
    options = [] if given.threads is None else [f"--threads={given.threads}"]
    texts, jobs = _workload(engine)
    rates: dict[str, list[float]] = {"engine": [], "server": []}
    shares: list[float] = []
    with serving("--no-prefix-caching", "--log-level=warning", *options) as (url, process):
        for round in range(-WARM_UP, given.rounds):
            alone = run_jobs(engine, jobs).tokens_per_second
            server = psutil.Process(process.pid)
            before, own = _cpu(server), _cpu(psutil.Process())
            seconds = asyncio.run(_all_streams(url, texts))
            served = STREAMS * OUTPUT / seconds
            if round >= 0:  # those before compile kernels
                rates["engine"].append(alone)
                rates["server"].append(served)
                shares.append((_cpu(psutil.Process()) - own) / seconds)
            used = (_cpu(server) - before) / seconds
            print(f"{round}: {alone:.0f} alone, {served:.0f} served, {served / alone:.3f}; "
                  f"{used:.2f} cores, load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    pairs = zip(rates["engine"], rates["server"], strict=True)
    ratios = [served / alone for alone, served in pairs]
    figures = {
        "command": " ".join(["python -m book.measure.overhead", *options]),
        "workload": f"{STREAMS} streams at once, prompts of about {PROMPT} tokens, {OUTPUT} tokens "
        f"each; greedy, end of sequence ignored; {given.rounds} rounds in turn",
        "tokens_per_second": rates,
        "ratio": {"values": ratios, "median": statistics.median(ratios)},
        "client_cores": statistics.median(shares),
        "load": os.getloadavg()[0],
    }
    print(f"median {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    save(str(OUT), figures)


def _workload(engine: LLMEngine) -> tuple[list[str], list[Job]]:
    """The prompts as text, and as the ids that the server will make of them."""
    drawn = draw_jobs(
        STREAMS, Lengths((PROMPT, PROMPT), (OUTPUT, OUTPUT)), engine.tokenizer.vocab_size
    )
    texts = [engine.tokenizer.decode(job.prompt) for job in drawn]
    return texts, [Job(engine.tokenizer.encode(text), OUTPUT) for text in texts]


async def _all_streams(url: str, texts: Sequence[str]) -> float:
    """Seconds until every stream is complete."""
    options: dict[str, Any] = {"max_tokens": OUTPUT, "ignore_eos": True, "temperature": 0}
    options |= {"stream": True, "stream_options": {"include_usage": True}}
    begin = time.perf_counter()
    asking = asyncio.gather(
        *(ask(url, "/v1/completions", {"prompt": text, **options}) for text in texts)
    )
    await asyncio.sleep(SIP)
    while not asking.done():
        time.sleep(
            SIP
        )  # blocks on purpose: many pieces are then read at once, and the cores are free
        await asyncio.sleep(0)
    answers = await asking
    seconds = time.perf_counter() - begin
    for answer in answers:
        _check(answer)
    return seconds


def _check(answer: Answer) -> None:
    """Raise ValueError unless a stream is whole: figures without its tokens would mean nothing."""
    usage = answer.events()[-1]["usage"]
    if answer.status != 200 or usage["completion_tokens"] != OUTPUT:
        raise ValueError(f"a stream is not whole: {answer.status}, {usage}")


def _cpu(process: psutil.Process) -> float:
    """Seconds of processor time so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
