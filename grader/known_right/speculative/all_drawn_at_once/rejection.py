"""All random numbers are drawn before the first draft is looked at; samples come from running sums."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Probs = NDArray[np.float64]


def residual(target: Probs, draft: Probs) -> Probs:
    rest = np.where(target > draft, target - draft, 0.0)
    total = float(rest.sum())
    return np.array(target) if total == 0 else np.divide(rest, total)


def rejection_sample(
    drafts: Sequence[int], draft: Probs, target: Probs, rng: np.random.Generator
) -> list[int]:
    tokens = np.asarray(drafts, dtype=np.int64)
    count = len(tokens)
    *uniform, last = rng.random(count + 1).tolist()
    rows = np.arange(count)
    chances = target[rows, tokens] / draft[rows, tokens] if count else np.empty(0)
    accepted = np.less(uniform, chances)
    number = count if accepted.all() else int(accepted.argmin())
    weights = target[count]
    if number < count:
        weights = np.maximum(target[number] - draft[number], 0)
        weights = weights if weights.any() else target[number]
    sums = np.cumsum(weights)
    token = int(np.searchsorted(sums, last * sums[-1], side="right"))
    return [*tokens[:number].tolist(), token]
