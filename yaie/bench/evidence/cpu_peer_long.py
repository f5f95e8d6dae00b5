"""Long prompts and long contexts on a CPU beside vLLM's build for CPUs, in turn on the same requests.

    python -m yaie.bench.evidence.cpu_peer_long PEER_PYTHON [path]

As `cpu_peer`, in fifteen minutes. One request and four with prompts of 3,500 tokens: tokens/s of the
prompts, and of 64 steps that follow, by the difference of two runs. Three pairs count.
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

OUT = EVIDENCE / "cpu_peer_long.json"
PAIRS, BATCHES, STEPS = 3, (1, 4), 64
PROMPT, CONTEXT = 3500, 4096


def alike(seed: int, count: int, more: int) -> list[Job]:
    rng = random.Random(seed)
    return [Job([rng.randint(5, 8000) for _ in range(PROMPT)], 1 + more) for _ in range(count)]


def runs_of(pair: int) -> list[list[Job]]:
    """Two for each batch."""
    return runs_of_steps(partial(alike, pair), BATCHES, STEPS)


def figures_of(run: Runner, first: int) -> Iterator[tuple[str, float]]:
    """Those of one pair and one engine; its runs begin with number `first`. More is better."""
    for index, count in enumerate(BATCHES):
        without = first + 2 * index
        yield f"prompt {count}", count * PROMPT / run(without).seconds
        yield f"decode {count}", rate_of_steps(run, without, without + 1, count, STEPS, repeats=1)


PLAN = Plan(PAIRS, runs_of, figures_of)


def main(arguments: Sequence[str]) -> None:
    python, out = arguments[0], arguments[1] if len(arguments) > 1 else str(OUT)
    figures: dict[str, Any] = {
        "command": "python -m yaie.bench.evidence.cpu_peer_long PEER_PYTHON", "pairs": PAIRS
    }  # fmt: skip
    with checkpoint("llama-100m", None) as folder:
        for dtype in ("float32", "bfloat16"):
            most = max(BATCHES)
            config = EngineConfig(
                model=str(folder), dtype=dtype, max_model_len=CONTEXT, max_num_seqs=most
            )
            config = prepared(config, most)
            settings = settings_for(config, config.model, dtype, "cpu", CONTEXT)
            figures[dtype] = compare(PLAN, config, settings, python, dtype)
    save(out, figures)


if __name__ == "__main__":
    main(sys.argv[1:])
