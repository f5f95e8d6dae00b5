"""`yaie bench overhead`: what HTTP, tokenization and streaming cost, in tokens a second.

The engine alone gets token ids in this process. The server is another process and gets text from a
client here, which keeps what comes and reads it now and then. They take turns, and a drift of the
machine meets both alike. Server and client share the cores.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psutil

from yaie.bench.http_client import Answer, ask
from yaie.bench.report import progress, save, show
from yaie.bench.served import Server, engine_process_flags, serving
from yaie.bench.workload import Job, Lengths, draw_jobs, run_jobs, spread
from yaie.cli.console import show_parts
from yaie.core.config import EngineConfig
from yaie.core.errors import YaieError
from yaie.engine.llm_engine import LLMEngine

WARM_UP = 1
SIP = 0.02
"""Seconds between two looks of the client at what has come."""


@dataclass(slots=True)
class Rounds:
    """Tokens a second of each round, and how many cores client and server kept busy in it."""

    alone: list[float] = field(default_factory=list)
    served: list[float] = field(default_factory=list)
    client_cores: list[float] = field(default_factory=list)
    server_cores: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """The server's rate to the engine's of the same round."""
        return [served / alone for served, alone in zip(self.served, self.alone, strict=True)]


def run(
    config: EngineConfig,
    streams: int,
    prompt_tokens: int,
    output_tokens: int,
    repeats: int,
    engine_process: bool | None,
    json: str | None,
) -> None:
    """Measure `repeats` rounds after one that compiles kernels, and print both rates and their ratio.

    Raises YaieError if the server does not start or a stream is not whole.
    """
    config = replace(config, prefix_caching=False)
    if (
        config.num_blocks is None
    ):  # two engines share the memory, so neither may take its usual share
        config = replace(config, num_blocks=_room(config, streams, prompt_tokens + output_tokens))
    engine = LLMEngine(config)
    show_parts(engine.parts)
    texts, jobs = _workload(engine, streams, prompt_tokens, output_tokens)
    rounds = Rounds()
    options = ["--log-level=warning", *engine_process_flags(engine_process)]
    with serving(config, *options) as (url, server), progress() as bar:
        task = bar.add_task("", total=2 * (WARM_UP + repeats))
        for number in range(WARM_UP + repeats):
            current = Rounds() if number < WARM_UP else rounds
            bar.update(task, description="the engine alone")
            current.alone.append(run_jobs(engine, jobs).tokens_per_second)
            bar.update(task, description="through the server", advance=1)
            _serve_round(current, url, server, texts, output_tokens)
            bar.advance(task)
    _report(engine, rounds, _described(streams, prompt_tokens, output_tokens), json)


def _room(config: EngineConfig, streams: int, length: int) -> int:
    """Blocks for every stream at once. Prompts may become longer when they are encoded again."""
    return streams * -(-2 * length // config.block_size) + 64


def _described(streams: int, prompt_tokens: int, output_tokens: int) -> str:
    return (
        f"{streams} streams at once, prompts of about {prompt_tokens} tokens, {output_tokens} tokens "
        "each; greedy, end of sequence ignored"
    )


def _workload(
    engine: LLMEngine, streams: int, prompt_tokens: int, output_tokens: int
) -> tuple[list[str], list[Job]]:
    """The prompts as text, and as the ids that the server will make of them."""
    lengths = Lengths((prompt_tokens, prompt_tokens), (output_tokens, output_tokens))
    drawn = draw_jobs(streams, lengths, engine.tokenizer.vocab_size)
    texts = [engine.tokenizer.decode(job.prompt) for job in drawn]
    return texts, [Job(engine.tokenizer.encode(text), output_tokens) for text in texts]


def _serve_round(
    rounds: Rounds, url: str, server: Server, texts: Sequence[str], output_tokens: int
) -> None:
    client, process = psutil.Process(), psutil.Process(server.pid)
    processes = [process, *process.children(recursive=True)]
    own, theirs = _cpu(client), sum(map(_cpu, processes))
    seconds = asyncio.run(_all_streams(url, texts, output_tokens))
    rounds.served.append(len(texts) * output_tokens / seconds)
    rounds.client_cores.append((_cpu(client) - own) / seconds)
    rounds.server_cores.append((sum(map(_cpu, processes)) - theirs) / seconds)


async def _all_streams(url: str, texts: Sequence[str], output_tokens: int) -> float:
    """Seconds until every stream is complete."""
    options: dict[str, Any] = {"max_tokens": output_tokens, "ignore_eos": True, "temperature": 0}
    options |= {"stream": True, "stream_options": {"include_usage": True}}
    begin = time.perf_counter()
    asking = asyncio.gather(
        *(ask(url, "/v1/completions", {"prompt": text, **options}) for text in texts)
    )
    await asyncio.sleep(SIP)
    while not asking.done():
        # Blocks on purpose: many pieces are then read at once, and the cores are free.
        time.sleep(SIP)
        await asyncio.sleep(0)
    answers = await asking
    seconds = time.perf_counter() - begin
    for answer in answers:
        check(answer, output_tokens)
    return seconds


def check(answer: Answer, output_tokens: int) -> None:
    """Raise YaieError unless a stream is whole: figures without its tokens would mean nothing."""
    if answer.status != 200:
        raise YaieError(f"the server answered {answer.status}: {answer.body[:200]!r}")
    usage = answer.events()[-1]["usage"]
    if usage["completion_tokens"] != output_tokens:
        raise YaieError(f"a stream of {output_tokens} tokens is not whole: {usage}")


def _cpu(process: psutil.Process) -> float:
    """Seconds of processor time so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def _report(engine: LLMEngine, rounds: Rounds, workload: str, json: str | None) -> None:
    cores = statistics.median(rounds.server_cores), statistics.median(rounds.client_cores)
    notes = [
        workload,
        f"through the server / alone: {spread(rounds.ratios)}",
        f"cores in use meanwhile: server {cores[0]:.2f}, client {cores[1]:.2f}",
    ]
    rows = [
        ("the engine alone", spread(rounds.alone)),
        ("through the server, streamed", spread(rounds.served)),
    ]
    show(f"What HTTP costs {engine.model_name}", ["", "output tokens/s"], rows, notes)
    figures = {
        "workload": f"{workload}; {len(rounds.alone)} rounds in turn",
        "tokens_per_second": {"engine": rounds.alone, "server": rounds.served},
        "ratio": {"values": rounds.ratios, "median": statistics.median(rounds.ratios)},
        "client_cores": cores[1],
        "server_cores": cores[0],
        "load": os.getloadavg()[0],
    }
    save(json, figures)
