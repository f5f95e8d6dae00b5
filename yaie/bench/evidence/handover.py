"""Gaps between tokens while prompts arrive, in one server and in two, for "Disaggregation".

    python -m yaie.bench.evidence.handover

The tutor. Streams decode while long prompts come at a steady pace: in a server that has all cores, in
one that has half of them, and in pairs with half each, one that computes prompts and one that decodes.
One pair hands blocks over in shared memory, the other over TCP, as two hosts would, without a network
between them. They take turns. A gap is the time between two tokens of a stream from when all of them
have begun.
"""

import json
import random
import socket
import statistics
import tempfile
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from yaie.bench.evidence import EVIDENCE
from yaie.bench.http_client import Answer, ask_all
from yaie.bench.report import save
from yaie.bench.served import serving
from yaie.core.config import EngineConfig
from yaie.system.processor import usable_cores

OUT = EVIDENCE / "handover.json"
ROUNDS = 5
STREAMS, STREAM_PROMPT, STREAM_TOKENS = 8, 24, 160
PROMPTS, PROMPT_TOKENS, EVERY, FIRST = 4, 1500, 0.4, 0.3
VOCAB = (300, 4000)
SETTINGS = ("one server", "one with half", "two with half each", "two over TCP")


def main() -> None:
    cores = usable_cores() or 2
    half = max(1, cores // 2)
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in SETTINGS}
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="yaie-"))) / "blocks"

        def start(threads: int, *options: str) -> str:
            config = EngineConfig(mine="none", threads=threads, num_blocks=4096)
            quiet = ("--log-level=warning", "--no-engine-process", *options)
            return stack.enter_context(serving(config, *quiet))[0]

        urls = {SETTINGS[0]: start(cores), SETTINGS[1]: start(half)}
        for name, meet in zip(SETTINGS[2:], (path, f"127.0.0.1:{_free_port()}"), strict=True):
            start(half, "--role=prefill", f"--handover={meet}")
            urls[name] = start(half, "--role=decode", f"--handover={meet}")
        for number in range(-1, ROUNDS):
            for name, url in urls.items():
                found = one_round(url, random.Random(f"round {number}"))
                print(number, name, {key: f"{ms:.1f}" for key, ms in found.items()}, flush=True)
                if number >= 0:  # the one before warms up
                    rounds[name].append(found)
    ratios = {name: _ratios(rounds[SETTINGS[2]], rounds[name]) for name in SETTINGS[:2]}
    by_tcp = _ratios(rounds[SETTINGS[3]], rounds[SETTINGS[2]])
    workload = (
        f"{STREAMS} streams of {STREAM_TOKENS} tokens, and {PROMPTS} prompts of {PROMPT_TOKENS:,} "
        f"tokens, one every {EVERY:g} s; {ROUNDS} rounds; {cores} threads, or {half} in each"
    )
    figures = {
        "command": "python -m yaie.bench.evidence.handover",
        "workload": workload,
        "ms": {
            name: {key: [one[key] for one in own] for key in own[0]} for name, own in rounds.items()
        },
        "pair_to": {
            name: {key: statistics.median(values) for key, values in own.items()}
            for name, own in ratios.items()
        },
        "pair_to_rounds": ratios,
        "tcp_to_memory": {key: statistics.median(values) for key, values in by_tcp.items()},
        "tcp_to_memory_rounds": by_tcp,
    }
    save(str(OUT), figures)


def _ratios(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> dict[str, list[float]]:
    """Of each figure, round by round."""
    return {
        key: [one[key] / other[key] for one, other in zip(ours, theirs, strict=True)]
        for key in ours[0]
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def one_round(url: str, random: random.Random) -> dict[str, float]:
    """Milliseconds: quantiles of the gaps, and until the long prompts had their first token."""

    def body(prompt: int, tokens: int) -> bytes:
        wanted: dict[str, Any] = {
            "prompt": [random.randrange(*VOCAB) for _ in range(prompt)],
            "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True,
        }  # fmt: skip
        return json.dumps(wanted).encode()

    bodies = [body(STREAM_PROMPT, STREAM_TOKENS) for _ in range(STREAMS)]
    bodies += [body(PROMPT_TOKENS, 1) for _ in range(PROMPTS)]
    delays = [0.0] * STREAMS + [FIRST + EVERY * number for number in range(PROMPTS)]
    answers = ask_all(url, "/v1/completions", bodies, delays)
    for answer in answers:
        answer.events()  # complete, or this raises
    streams, prompts = answers[:STREAMS], answers[STREAMS:]
    gaps = _gaps(streams)
    cuts = statistics.quantiles(gaps, n=100, method="inclusive")
    # The head of an answer comes earlier; a prompt's only token is its last piece.
    first = statistics.median(1e3 * (one.times[-1] - one.sent) for one in prompts)
    return {"p50": cuts[49], "p99": cuts[98], "longest": max(gaps), "first_token": first}


def _gaps(streams: list[Answer]) -> list[float]:
    """Between the tokens of each stream, in ms, from when all have one. The first piece is the head."""
    begun = max(one.times[1] for one in streams)
    return [
        1e3 * (later - earlier)
        for one in streams
        for earlier, later in pairwise(time for time in one.times if time >= begun)
    ]


if __name__ == "__main__":
    main()
