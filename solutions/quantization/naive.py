# ORACLE
"""Lab 19 as it is defined: number by number, and GPTQ with an inverse of what is left for each input."""

import torch
from torch import Tensor

from .int4 import Int4


def nearest(value: float, scale: float, zero: int, lowest: int, highest: int) -> int:
    """The code whose number is nearest to a value; ties to even, before the zero is added."""
    return min(highest, max(lowest, round(value / scale) + zero))


def gptq_codes(
    weight: Tensor, hessian: Tensor, group_size: int, *, symmetric: bool = True,
    damping: float = 0.01,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(codes [out, in], scales, zeros [groups, out]), in float64.

    At each input: round it, and move the rest of the row to where the loss is least with that input
    fixed, w' = w - error * inverse[0] / inverse[0, 0], with the inverse of the Hessian of what is left.
    """
    int4, left, h = Int4(), weight.double().clone(), hessian.double().clone()
    live = h.diagonal() > 0
    mean = h.diagonal()[live].mean() if bool(live.any()) else torch.zeros(())
    h += torch.diag(torch.where(live, damping * mean, torch.ones(len(h)).double()))
    left[:, ~live] = 0
    codes = torch.zeros_like(left, dtype=torch.int32)
    grids = []
    for i in range(left.shape[1]):
        if i % group_size == 0:
            grids.append(int4.grid(left[:, i : i + group_size], symmetric=symmetric))
        scales, zeros = grids[-1]
        codes[:, i] = int4.codes(left[:, i : i + 1], scales, zeros)[:, 0]
        error = left[:, i] - (codes[:, i] - zeros) * scales.double()
        inverse = torch.linalg.inv(h[i:, i:])
        left[:, i:] -= torch.outer(error, inverse[0] / inverse[0, 0])
    return codes, torch.stack([s for s, _ in grids]), torch.stack([z for _, z in grids])
