"""What a sampler draws, and what each filter costs.

    python -m yaie.bench.evidence.token_sampler

For chapter "Sampling". Draws are exact (noise is a function of seeds); times need an
idle machine.
"""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.explore.sampling import sampling_batch
from yaie.parts import load_parts

OUT = EVIDENCE / "token_sampler.json"
WEIGHTS = [16, 8, 4, 2, 1, 1]  # the chapter's row: six tokens, probabilities in 32nds
NUM_DRAWS = 32_000
ROWS, REPEATS = 16, 9
VOCABULARIES = {"tutor": 4096, "llama": 128_256}
CASES = {
    "greedy": SamplingParams(temperature=0),
    "temperature": SamplingParams(temperature=0.8),
    "min_p": SamplingParams(temperature=0.8, min_p=0.05),
    "top_k": SamplingParams(temperature=0.8, top_k=50),
    "top_p": SamplingParams(temperature=0.8, top_p=0.95),
    "penalties": SamplingParams(temperature=0.8, frequency_penalty=0.5),
}


def main() -> None:
    sample = load_parts("none")["sampler"].Sampler().sample
    record = {
        "command": "python -m yaie.bench.evidence.token_sampler",
        "workload": f"{NUM_DRAWS} draws from weights {WEIGHTS}; then {ROWS} rows of random logits, "
        f"medians of {REPEATS}",
        "draws": _draws(sample),
        "ms": {name: _costs(sample, vocab) for name, vocab in VOCABULARIES.items()},
    }
    save(str(OUT), record)


def _draws(sample: Callable[..., Tensor]) -> dict[str, Any]:
    """32,000 requests with seeds of their own draw from the same row, in one call."""
    logits = torch.tensor([[math.log(weight) for weight in WEIGHTS]])
    requests = [Request(f"r{seed}", [0], SamplingParams(), seed=seed) for seed in range(NUM_DRAWS)]
    batch = sampling_batch(requests, len(WEIGHTS))
    drawn = sample(logits.repeat(NUM_DRAWS, 1), batch)
    counts = torch.bincount(drawn, minlength=len(WEIGHTS)).tolist()
    expected = [NUM_DRAWS * weight // sum(WEIGHTS) for weight in WEIGHTS]
    print(counts, expected, flush=True)
    return {"counts": counts, "expected": expected}


def _costs(sample: Callable[..., Tensor], vocab: int) -> dict[str, float]:
    """Milliseconds of one call, by what the requests ask for."""
    torch.manual_seed(0)
    logits = 3 * torch.randn(ROWS, vocab)
    batches = {
        name: sampling_batch(
            [Request(f"r{row}", [0, 1, 2], params, seed=row) for row in range(ROWS)], vocab
        )
        for name, params in CASES.items()
    }
    times: dict[str, list[float]] = {name: [] for name in batches}
    # In turn: what slows the machine down for a while slows all of them down.
    for _ in range(REPEATS + 1):
        for name, batch in batches.items():
            row = logits.clone()
            begin = time.perf_counter()
            sample(row, batch)
            times[name].append(1000 * (time.perf_counter() - begin))
    costs = {name: statistics.median(runs[1:]) for name, runs in times.items()}
    print(vocab, {name: f"{cost:.2f} ms" for name, cost in costs.items()}, flush=True)
    return costs


if __name__ == "__main__":
    main()
