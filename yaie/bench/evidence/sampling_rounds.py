"""How many rounds top-p by rejection takes, for chapter "Sampling in Triton", and what each reads.

    python -m yaie.bench.evidence.sampling_rounds

Counts, on the noise of lab 1: they come out the same anywhere.
"""

from typing import Any

import torch
from torch import Tensor

from solutions.sampler.noise import gumbel_noise
from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save

OUT = EVIDENCE / "sampling_rounds.json"
ROWS, VOCAB, CHUNK = 64, 151_936, 128
SPREADS = (1, 2, 4, 8)
SHARES = (0.1, 0.5, 0.9, 0.95)


def main() -> None:
    noise = gumbel_noise(torch.arange(ROWS), torch.zeros(ROWS, dtype=torch.int64), VOCAB)
    logits = torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(0))
    figures = {
        "command": "python -m yaie.bench.evidence.sampling_rounds",
        "workload": f"{ROWS} rows of {VOCAB:,} normally distributed logits with the given spread",
        "spreads": {
            str(spread): {f"p{100 * p:.0f}": _count(logits * spread, noise, p) for p in SHARES}
            for spread in SPREADS
        },
    }
    print(figures)
    save(str(OUT), figures)


def _count(logits: Tensor, noise: Tensor, p: float) -> dict[str, Any]:
    """nucleus: tokens that top-p keeps. rounds: candidates that were weighed, the accepted one included.
    chunks: the share of a row's chunks that the first weighing has to read. All but most_rounds: means.
    """
    probs = logits.softmax(dim=1)
    scores = logits + noise
    low = torch.full((ROWS, 1), float("-inf"))
    is_open = torch.ones(ROWS, dtype=torch.bool)
    rounds = torch.zeros(ROWS)
    live = torch.zeros(ROWS)
    maxima = torch.nn.functional.pad(logits, (0, -VOCAB % CHUNK), value=float("-inf"))
    maxima = maxima.view(ROWS, -1, CHUNK).amax(dim=2)
    while is_open.any():
        candidate = scores.masked_fill(logits <= low, float("-inf")).argmax(dim=1, keepdim=True)
        logit = logits.gather(1, candidate)
        mass = (probs * (logits > logit)).sum(dim=1)
        if not rounds.any():
            live = (maxima > logit).float().mean(dim=1)
        rounds += is_open
        is_open &= (mass >= p) & (mass > 0)
        low = torch.where(is_open[:, None], logit, low)
    ordered = probs.sort(dim=1, descending=True).values
    nucleus = (ordered.cumsum(dim=1) - ordered < p).sum(dim=1).float()
    return {
        "nucleus": nucleus.mean().item(),
        "rounds": rounds.mean().item(),
        "most_rounds": int(rounds.max()),
        "chunks": live.mean().item(),
    }


if __name__ == "__main__":
    main()
