"""What usual mistakes would give, computed beside what is right: the one that gives what a part gave.

    kinds = {
        "The weight was left out.": lambda: x / root,
        "The weight was multiplied twice.": lambda: x / root * weight * weight,
    }
    expect_near(got, exact, x.dtype, "rms_norm of one row", kinds=kinds)

A kind is said only if it accounts for every wrong value and no other kind does. Nothing is computed
unless a value is wrong.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Kinds = Mapping[str, Callable[[], Tensor]]
"""What is said, and what such a part would give: of the shape of what is right, or one that expands."""


def fitting(got: Tensor, exact: Tensor, kinds: Kinds, tolerance: float) -> str:
    """The text of the one kind that gives each wrong value of `got`; "" if none does, or several."""
    wrong = ~_close(got, exact, tolerance)
    if not bool(wrong.any()):
        return ""
    found = [told for told, compute in kinds.items() if _gives(compute, got, wrong, tolerance)]
    return found[0] if len(found) == 1 else ""


def from_element(got: Tensor, exact: Tensor, tolerance: float) -> str:
    """ "all of them from element 128 of their row on", if every wrong value is, and rows begin right."""
    if got.ndim < 2:
        return ""
    wrong = (~_close(got, exact, tolerance)).flatten(0, -2)
    columns = wrong.any(dim=0).nonzero().flatten()
    if len(columns) < 2 or int(columns[0]) == 0 or int(columns[-1]) != wrong.shape[1] - 1:
        return ""
    return f"all of them from element {int(columns[0]):,} of their row on"


def _gives(compute: Callable[[], Tensor], got: Tensor, wrong: Tensor, tolerance: float) -> bool:
    try:
        values = compute().expand(got.shape)
    except Exception:  # noqa: BLE001, a kind that makes no sense for these shapes is not this mistake
        return False
    return bool(_close(got, values, tolerance)[wrong].all())


def _close(got: Tensor, right: Tensor, tolerance: float) -> Tensor:
    return torch.isclose(
        got.double(), right.double(), rtol=tolerance, atol=tolerance, equal_nan=True
    )


def kept(value: Tensor) -> Callable[[], Tensor]:
    """What a tensor held: for a part that leaves it as it was."""
    before = value.detach().clone()
    return lambda: before


def never_written() -> Tensor:
    """What memory holds that nothing was written to, under `poisoned`."""
    return torch.tensor(math.nan)
