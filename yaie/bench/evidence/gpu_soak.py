"""Minutes of mixed load on a GPU, and what is left of it: blocks, device memory, pinned memory.

    python -m yaie.bench.evidence.gpu_soak [--seconds 300] [--json FILE]

Requests of every kind come in waves, on a pool so small that some are swapped out and back: greedy and
drawn, with filters, penalties, log-probabilities and grammars; every ninth is given up. After each wave
the engine is empty. What it holds then is compared with what it held after the tenth: later ones add no
more than a staging buffer for a larger step than there was.
"""

import argparse
import random
import time
from typing import Any

import torch

from yaie.bench.report import save
from yaie.core.constraint import Constraint
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine

WISHES: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.8},
    {"temperature": 1.0, "top_p": 0.9, "top_k": 40},
    {"temperature": 0.9, "logprobs": 3},
    {"temperature": 0.7, "frequency_penalty": 0.4},
    {"temperature": 1.0, "constraint": Constraint("json_object", "")},
]
SETTLED = 10
"""Waves after which what is held is compared."""


def wave(engine: LLMEngine, rng: random.Random) -> int:
    """Some requests, to the end; how many."""
    requests = []
    count = rng.randint(20, 120)
    for number in range(count):
        prompt = [rng.randrange(5, 400) for _ in range(rng.choice((1, 15, 17, 60, 200)))]
        params = SamplingParams(**WISHES[number % len(WISHES)], max_tokens=rng.randint(1, 60))
        requests += engine.add_request(prompt, params)
        if number % 3 == 0:
            engine.step()
        if number % 9 == 8:
            engine.abort(requests[-1].request_id)
    while engine.has_work:
        engine.step()
    engine.check()
    engine.reset_prefix_cache()
    return count


def held(engine: LLMEngine) -> dict[str, float]:
    """What an engine without requests holds. memory: bytes."""
    torch.cuda.synchronize()
    return {
        "used_blocks": engine.stats()["used_blocks"],
        "device_allocated": torch.cuda.memory_allocated(),
        "device_reserved": torch.cuda.memory_reserved(),
        "pinned": torch.cuda.host_memory_stats()["allocated_bytes.current"],
    }


def main() -> None:
    """Print what was held after the first waves and at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--json")
    given = parser.parse_args()
    engine = LLMEngine(
        model="tutor", device="cuda", mine="none", num_blocks=200, max_num_seqs=64,
        token_budget=512, preemption="swap", swap_space=0.5, watermark=0.0,
    )  # fmt: skip
    rng, waves, requests, before = random.Random(0), 0, 0, held(engine)
    end = time.monotonic() + given.seconds
    while time.monotonic() < end or waves <= SETTLED:
        requests += wave(engine, rng)
        waves += 1
        if waves == SETTLED:
            before = held(engine)
    after = held(engine)
    preemptions = engine.stats().get("preemptions", 0)
    print(f"{waves} waves, {requests} requests, {preemptions:.0f} preemptions")
    for name, value in after.items():
        print(f"{name:17} {before[name]:15,.0f} then {value:15,.0f} at the end")
    command = f"python -m yaie.bench.evidence.gpu_soak --seconds {given.seconds:g}"
    save(given.json, {"command": command, "waves": waves, "requests": requests,
                      "preemptions": preemptions, "before": before, "after": after})  # fmt: skip


if __name__ == "__main__":
    main()
