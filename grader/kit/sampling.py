"""What a sampler must draw, in float64. Suites import it from `grader.kit.kernels`."""

import math
from typing import Any

import torch
from torch import Tensor

from yaie.core.batch import SamplingBatch


def sampling_batch(
    n: int,
    *,
    temperature: float | list[float] = 1.0,
    top_k: int | list[int] = 0,
    top_p: float | list[float] = 1.0,
    min_p: float | list[float] = 0.0,
    seeds: list[int] | None = None,
    steps: list[int] | None = None,
) -> SamplingBatch:
    """n rows; one number means all rows."""

    def rows(value: Any, dtype: torch.dtype) -> Tensor:
        return torch.tensor(value if isinstance(value, list) else [value] * n, dtype=dtype)

    heat, p, floor = (rows(x, torch.float32) for x in (temperature, top_p, min_p))
    k = rows(top_k, torch.int64)
    return SamplingBatch(
        temperature=heat,
        top_k=k,
        top_p=p,
        min_p=floor,
        seeds=rows(list(range(n)) if seeds is None else seeds, torch.int64),
        steps=rows(0 if steps is None else steps, torch.int64),
        all_greedy=bool((heat == 0).all()),
        any_top_k=bool((k > 0).any()),
        any_top_p=bool((p < 1).any()),
        any_min_p=bool((floor > 0).any()),
    )


def probabilities(logits: Tensor, batch: SamplingBatch) -> Tensor:
    """The distribution of each row after temperature, top-k, top-p and min-p, in that order."""
    found = torch.zeros(logits.shape, dtype=torch.float64)
    for row, values in enumerate(logits.double()):
        heat = float(batch.temperature[row])
        if heat == 0:
            found[row, values.argmax()] = 1.0
            continue
        values = values / heat
        if 0 < (k := int(batch.top_k[row])) < len(values):
            values = values.masked_fill(values < values.topk(k).values[-1], -math.inf)
        if (p := float(batch.top_p[row])) < 1:
            ordered, order = values.softmax(0).sort(descending=True, stable=True)
            num_kept = max(1, int((ordered.cumsum(0) - ordered < p).sum()))
            values = values.index_fill(0, order[num_kept:], -math.inf)
        chances = values.softmax(0)
        floor = float(batch.min_p[row]) * chances.max()
        found[row] = chances.where(chances >= floor, 0.0)
        found[row] /= found[row].sum()
    return found


def gumbel_noise(seeds: Tensor, steps: Tensor, vocab: int) -> Tensor:
    """-log(-log(1 - u)), u = (hash of seed, step and token + 1/2) / 2**32; see solutions/sampler."""
    from solutions.sampler.noise import hash_32, row_keys

    bits = hash_32(row_keys(seeds, steps)[:, None] ^ hash_32(torch.arange(vocab))[None, :])
    return -(-torch.log1p(-(bits.double() + 0.5) * 2.0**-32)).log()
