"""Another right noise: the Philox generator of NumPy, keyed afresh for every row.

Philox is a function of a key and a counter (Salmon et al. 2011): the key of a row is its seed and its
step, and its counter runs over the tokens. Numbers are float64, so u needs no care near 1.
"""

import numpy as np
import torch
from torch import Tensor

_MASK = (1 << 64) - 1


def gumbel_noise(seeds: Tensor, steps: Tensor, vocab: int) -> Tensor:
    """Standard Gumbel noise [n, vocab] float32, a function of (seed, step, token) only."""
    rows = []
    for seed, step in zip(seeds.tolist(), steps.tolist(), strict=True):
        key = (seed & _MASK) << 64 | (step & _MASK)
        generator = np.random.Generator(np.random.Philox(key=key))
        uniform = generator.random(vocab)  # of the counter, token by token; 0 is possible
        rows.append(-np.log(-np.log1p(-np.maximum(uniform, 2.0**-54))))
    # -log(1 - u) is exponential for u in [0, 1) as -log(u) is for u in (0, 1].
    noise = np.array(rows, dtype=np.float32).reshape(len(rows), vocab)
    return torch.from_numpy(noise).to(seeds.device)
