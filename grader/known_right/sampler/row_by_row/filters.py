"""Other right filters: one row at a time, as the definitions read, in plain Python and NumPy.

Each row leaves PyTorch as an array, is filtered by itself in float64, and the rows are stacked again.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.batch import PenaltyBatch

Row = NDArray[np.float64]


def _each_row(logits: Tensor, values: Tensor, rule: Callable[[Row, float], Row]) -> Tensor:
    """rule: a row and its parameter in, the row that comes of it out."""
    given = zip(logits.detach().cpu().double().numpy(), values.tolist(), strict=True)
    rows = [rule(row.copy(), value) for row, value in given]
    return torch.from_numpy(np.stack(rows)).to(logits.device, logits.dtype)


def apply_penalties(logits: Tensor, penalties: PenaltyBatch) -> Tensor:
    """Only the tokens that were seen are visited."""
    out = logits.clone()
    rows = zip(
        penalties.repetition.tolist(),
        penalties.frequency.tolist(),
        penalties.presence.tolist(),
        strict=True,
    )
    for i, (repetition, frequency, presence) in enumerate(rows):
        counts = penalties.output_counts[i]
        for token in (penalties.prompt_mask[i] | (counts > 0)).nonzero().flatten().tolist():
            value, count = float(out[i, token]), float(counts[token])
            value = value / repetition if value > 0 else value * repetition
            out[i, token] = value - frequency * count - (presence if count else 0.0)
    return out


def apply_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """Divide what is left of each row when its best logit is taken off."""

    def rule(row: Row, value: float) -> Row:
        return (row - row.max()) / (value or 1.0)

    return _each_row(logits, temperature, rule)


def apply_top_k(logits: Tensor, top_k: Tensor) -> Tensor:
    """The k-th largest of a partial sort is the threshold."""

    def rule(row: Row, value: float) -> Row:
        k = int(value)
        if 0 < k < len(row):
            row[row < np.partition(row, -k)[-k]] = -math.inf
        return row

    return _each_row(logits, top_k, rule)


def apply_top_p(logits: Tensor, top_p: Tensor) -> Tensor:
    """Tokens join, the most likely first, until their probabilities add up to p."""

    def rule(row: Row, value: float) -> Row:
        if value >= 1:
            return row
        weights = np.exp(row - row.max())
        order = np.argsort(-weights, kind="stable")
        sums = np.cumsum(weights[order]) / weights.sum()
        # Parameters are float32: 0.7 comes as a hair less or more than the sum of what the row says.
        needed = 1 + int(np.searchsorted(sums, value, side="left"))
        row[order[needed:]] = -math.inf
        return row

    return _each_row(logits, top_p, rule)


def apply_min_p(logits: Tensor, min_p: Tensor) -> Tensor:
    """A ratio of probabilities is the exponential of a difference of logits."""

    def rule(row: Row, value: float) -> Row:
        if value > 0:
            row[np.exp(row - row.max()) < value] = -math.inf
        return row

    return _each_row(logits, min_p, rule)
