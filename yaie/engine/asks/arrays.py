"""Lists of numbers as the arrays of a step."""

from functools import partial

import numpy as np

ints = partial(np.array, dtype=np.int32)
longs = partial(np.array, dtype=np.int64)
floats = partial(np.array, dtype=np.float32)
