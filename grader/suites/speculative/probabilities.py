"""Distributions of the suite, and whether what was drawn follows them."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

Probs = NDArray[np.float64]

SURELY_NOT = 1e-9
"""Chances below that are no chance."""
TARGET = np.array([10, 5, 3, 2, 0]) / 20
DRAFT = np.array([6, 9, 4, 1, 0]) / 20
SECOND_TARGET = np.array([1, 2, 6, 4, 7]) / 20
SECOND_DRAFT = np.array([1, 2, 10, 4, 3]) / 20
LAST_TARGET = np.array([4, 4, 1, 10, 1]) / 20


def chance(counts: Probs, probabilities: Probs) -> float:
    """How likely counts so far from the probabilities are (chi-square); 0 if one was impossible."""
    possible = probabilities > 0
    if counts[~possible].any():
        return 0.0
    wanted = probabilities[possible] * counts.sum()
    distance = float(((counts[possible] - wanted) ** 2 / wanted).sum())
    return float(chdtrc(max(1, int(possible.sum()) - 1), distance))


def sure(token: int, vocab: int = 5) -> Probs:
    """All of it on one token."""
    row = np.zeros(vocab)
    row[token] = 1.0
    return row
