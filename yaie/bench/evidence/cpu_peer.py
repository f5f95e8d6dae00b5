"""The engine on a CPU beside vLLM's build for CPUs, in turn on the same requests.

    python -m yaie.bench.evidence.cpu_peer PEER_PYTHON [path]

PEER_PYTHON: the interpreter of an environment with vLLM. Takes ten minutes, on a machine that does
nothing else. Random weights of 103 million parameters (`--shape llama-100m`), first in float32, then in
bfloat16. Both engines are loaded and take turns; who begins changes with each pair. After a pair that
does not count, five do:

    w1              32 requests of 32 to 256 tokens, 16 to 128 generated; tokens/s
    w2 cold, warm   32 requests that share 512 tokens, 16 to 64 of their own, 16 to 32 generated;
                    seconds, with an empty prefix cache and once more
    decode 1, 8, 32 tokens/s: 32 steps of so many requests, by the difference of two runs
"""

import random
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from yaie.bench.evidence import EVIDENCE
from yaie.bench.evidence.beside_vllm import Plan, compare, rate_of_steps, runs_of_steps
from yaie.bench.peers.process import settings_for
from yaie.bench.report import save
from yaie.bench.shapes import checkpoint
from yaie.bench.throughput.contestants import Runner, prepared
from yaie.bench.workload import Job
from yaie.core.config import EngineConfig

OUT = EVIDENCE / "cpu_peer.json"
PAIRS, AT_ONCE, CONTEXT, VOCAB = 5, 32, 1024, 8192
BATCHES = (1, 8, 32)
STEPS = 32
Range = tuple[int, int]


def requests(seed: int, prompt: Range, output: Range, shared: int = 0) -> list[Job]:
    rng = random.Random(seed)
    prefix = [rng.randint(5, VOCAB - 1) for _ in range(shared)]
    prompts = [
        prefix + [rng.randint(5, VOCAB - 1) for _ in range(rng.randint(*prompt))]
        for _ in range(AT_ONCE)
    ]
    return [Job(one, rng.randint(*output)) for one in prompts]


def equal(seed: int, count: int, more: int) -> list[Job]:
    rng = random.Random(seed)
    return [Job([rng.randint(5, 8000) for _ in range(128)], 1 + more) for _ in range(count)]


def runs_of(pair: int) -> list[list[Job]]:
    """Run 0 is w1, 1 is w2, then two for each batch."""
    runs = [requests(pair, (32, 256), (16, 128)), requests(pair, (16, 64), (16, 32), shared=512)]
    return runs + runs_of_steps(partial(equal, pair), BATCHES, STEPS)


def figures_of(run: Runner, first: int) -> Iterator[tuple[str, float]]:
    """Those of one pair and one engine; its runs begin with number `first`. More is better."""
    yield "w1", run(first).rate
    yield "w2 cold", 1 / run(first + 1).seconds
    yield "w2 warm", 1 / run(first + 1, warm=True).seconds
    for index, count in enumerate(BATCHES):
        without, with_steps = first + 2 + 2 * index, first + 3 + 2 * index
        yield f"decode {count}", rate_of_steps(run, without, with_steps, count, STEPS)


PLAN = Plan(PAIRS, runs_of, figures_of, as_seconds=("w2 cold", "w2 warm"))


def main(arguments: Sequence[str]) -> None:
    python, out = arguments[0], arguments[1] if len(arguments) > 1 else str(OUT)
    figures: dict[str, Any] = {
        "command": "python -m yaie.bench.evidence.cpu_peer PEER_PYTHON", "pairs": PAIRS
    }  # fmt: skip
    with checkpoint("llama-100m", None) as folder:
        for dtype in ("float32", "bfloat16"):
            config = EngineConfig(
                model=str(folder), dtype=dtype, max_model_len=CONTEXT, max_num_seqs=AT_ONCE
            )
            config = prepared(config, AT_ONCE)
            settings = settings_for(config, config.model, dtype, "cpu", CONTEXT)
            figures[dtype] = compare(PLAN, config, settings, python, dtype)
    save(out, figures)


if __name__ == "__main__":
    main(sys.argv[1:])
