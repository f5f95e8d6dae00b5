"""The engine on a GPU beside vLLM on the same card, in turn on the same requests.

    python -m yaie.bench.evidence.gpu_peer [PEER_PYTHON [path]]

PEER_PYTHON: the interpreter of an environment with vLLM; without it, this one. Takes a quarter of an
hour, on a card of 140 GB that does nothing else. Random weights in two shapes, bfloat16. Both engines
are loaded, each with not quite half of the memory, and take turns; who begins changes with each pair.
After a pair that does not count, so many do as PAIRS says:

    nano                256 requests at once of 100 to 1,024 tokens, 100 to 1,024 generated, at
                        temperature 0.6, as in nano-vllm's bench.py; tokens/s
    prefill 1, 32, 256  prompts of 1,024 tokens, until each has its first token; prompt tokens/s
    decode 1, 32, 256   128 steps behind them, by the difference of two runs; tokens/s
"""

import os
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

OUT = EVIDENCE / "gpu_peer.json"
SHAPES = {"small": "qwen3-0.6b", "large": "llama-3.1-8b"}
PAIRS = {"small": 5, "large": 3}
BATCHES = {"small": (1, 32, 256), "large": (1, 32)}
AT_ONCE, CONTEXT, PROMPT, STEPS = 256, 2304, 1024, 128
OURS, THEIRS = 0.42, 0.46
"""Of the memory: ours of what is free behind our weights, vLLM's of the card."""


def nano(seed: int) -> list[Job]:
    rng = random.Random(seed)
    lengths = [(rng.randint(100, 1024), rng.randint(100, 1024)) for _ in range(AT_ONCE)]
    return [Job([rng.randint(5, 10_000) for _ in range(prompt)], out) for prompt, out in lengths]


def equal(seed: int, count: int, more: int) -> list[Job]:
    rng = random.Random(seed)
    return [Job([rng.randint(5, 10_000) for _ in range(PROMPT)], 1 + more) for _ in range(count)]


def plan_for(size: str) -> Plan:
    """Run 0 of a pair is nano, then come two for each batch."""
    batches = BATCHES[size]

    def runs_of(pair: int) -> list[list[Job]]:
        return [nano(pair), *runs_of_steps(partial(equal, pair), batches, STEPS)]

    def figures_of(run: Runner, first: int) -> Iterator[tuple[str, float]]:
        yield "nano", run(first).rate
        for index, count in enumerate(batches):
            without, with_steps = first + 1 + 2 * index, first + 2 + 2 * index
            yield f"prefill {count}", count * PROMPT / run(without).seconds
            yield (
                f"decode {count}",
                rate_of_steps(run, without, with_steps, count, STEPS, repeats=1),
            )

    return Plan(PAIRS[size], runs_of, figures_of, temperature=0.6)


def main(arguments: Sequence[str]) -> None:
    python = arguments[0] if arguments else None
    out = arguments[1] if len(arguments) > 1 else str(OUT)
    figures: dict[str, Any] = {
        "command": "python -m yaie.bench.evidence.gpu_peer PEER_PYTHON",
        "pairs": PAIRS,
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith("VLLM_")
        },
    }
    for size, shape in SHAPES.items():
        with checkpoint(shape, None) as folder:
            config = EngineConfig(
                model=str(folder), dtype="bfloat16", max_model_len=CONTEXT, max_num_seqs=AT_ONCE,
                kv_memory_share=OURS,
            )  # fmt: skip
            config = prepared(config, AT_ONCE)
            settings = settings_for(config, config.model, "bfloat16", "cuda", CONTEXT)
            settings["memory_share"] = THEIRS
            figures[size] = compare(plan_for(size), config, settings, python, size)
            save(out, figures)


if __name__ == "__main__":
    main(sys.argv[1:])
