from typing import Any

import torch

from yaie.core.batch import SamplingBatch


def batch(
    n: int, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> SamplingBatch:
    """n rows with the same parameters; row i has seed i."""
    return SamplingBatch(
        temperature=torch.full((n,), temperature),
        top_k=torch.full((n,), top_k, dtype=torch.int64),
        top_p=torch.full((n,), top_p),
        min_p=torch.full((n,), min_p),
        seeds=torch.arange(n),
        steps=torch.zeros(n, dtype=torch.int64),
        all_greedy=temperature == 0,
        any_top_k=top_k > 0,
        any_top_p=top_p < 1,
        any_min_p=min_p > 0,
    )


def attack_top_k_of_one(part: Any) -> Any:
    """With top_k = 1 the largest logit of each row is drawn, whatever the seed."""
    torch.manual_seed(0)
    return part.Sampler().sample(torch.randn(4, 50), batch(4, top_k=1))
