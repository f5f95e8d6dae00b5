"""Lists of numbers as the arrays of a step."""

import numpy as np
from numpy.typing import NDArray

from yaie.core.step import Ints


def ints(values: list[int]) -> Ints:
    """[n] int32."""
    return np.array(values, dtype=np.int32)


def longs(values: list[int]) -> NDArray[np.int64]:
    """[n] int64."""
    return np.array(values, dtype=np.int64)


def floats(values: list[float]) -> NDArray[np.float32]:
    """[n] float32."""
    return np.array(values, dtype=np.float32)
