"""Other right operations: a rotation is a matrix for each token, an RMS a product with itself.

Functions are kept in a table of the module, from which the class is made.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .attention import attention, causal_mask


def rms_norm(ops: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x times the inverse root of its own dot product over d."""
    wide = x.float()
    squares = torch.einsum("...d,...d->...", wide, wide) / x.shape[-1]
    return torch.einsum("...d,...->...d", wide, (squares + eps).pow(-0.5)).to(x.dtype) * weight


def fused_add_rms_norm(
    ops: Any, x: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Nothing is reused."""
    total = x + residual
    return rms_norm(ops, total, weight, eps), total


def rope(
    ops: Any, q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor]:
    """Every token has a matrix [d, d]: a rotation of its pairs, and ones for what is not rotated."""
    d, half = q.shape[-1], cos.shape[-1]
    turns = torch.eye(d, device=q.device).repeat(len(positions), 1, 1)
    upper = torch.arange(half, device=q.device)
    lower = upper + half
    turns[:, upper, upper] = turns[:, lower, lower] = cos[positions]
    turns[:, upper, lower], turns[:, lower, upper] = -sin[positions], sin[positions]
    turned = [torch.einsum("tij,thj->thi", turns, x.float()).to(x.dtype) for x in (q, k)]
    return turned[0], turned[1]


def silu_mul(ops: Any, x: Tensor) -> Tensor:
    """The hyperbolic tangent of half the gate, moved to lie between 0 and 1."""
    gate, up = x.float().tensor_split(2, dim=-1)
    return (up * gate * (0.5 + 0.5 * (gate / 2).tanh())).to(x.dtype)


class _Method:
    """A function as a method: `ops.name(...)` calls it with the instance first."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __get__(self, instance: Any, owner: type) -> Any:
        return partial(self._function, instance)


class TransformerOps(nn.Module):
    """See `yaie.core.contracts.TransformerOps`. A module without parameters."""


for _function in (rms_norm, fused_add_rms_norm, rope, silu_mul):
    setattr(TransformerOps, _function.__name__, _Method(_function))
TransformerOps.causal_mask = staticmethod(causal_mask)  # type: ignore[attr-defined]
TransformerOps.attention = staticmethod(attention)  # type: ignore[attr-defined]
