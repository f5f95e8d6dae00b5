"""Which of several mistakes a wrong result is: compute what each would give, and compare.

    why = told_by(got, {"eps stands outside of the root: ...": x / (root + eps), "...": ...})
    lost_digits(got, exact)      "by at most 0.0046", where no more than digits are lost
    rounded_input(got, reading, tolerance=1e-5)

A paragraph on a mistake is for a part that has made it. Where no mistake, or more than one, gives what
the part gave, the facts stand alone.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from grader.kit.layout import Reading

CLOSE = 1e-4
"""Relative, and absolute: how near a wrong result must be to what a mistake would give."""
FEW_DIGITS = 0.01
"""Off by no more than this share, a number has lost digits; the narrowest dtype here loses 0.4%."""
DIGITS = (
    "The formula may well be right, and digits are lost: a number that passes through bfloat16 keeps 8 "
    "bits (it is off by up to 0.4%), one that passes through float16 keeps 11 (0.05%)."
)
NARROW = {
    torch.bfloat16: "bfloat16, which keeps 8 bits",
    torch.float16: "float16, which keeps 11 bits",
}


def told_by(got: Any, gives: Mapping[str, Any], right: Any = None) -> str:
    """The explanation whose mistake gives `got`, if it is the only one. gives: what each mistake would
    give, by its explanation; tensors, or what `==` compares. right: a mistake that gives this, where it
    makes no difference, is none."""
    found = [
        why
        for why, value in gives.items()
        if _alike(got, value) and (right is None or not _alike(right, value))
    ]
    return found[0] if len(found) == 1 else ""


def lost_digits(got: Any, exact: Tensor) -> str:
    """How far numbers are off that are right but for their last digits; "" if they are not."""
    if not isinstance(got, Tensor) or got.shape != exact.shape or not exact.numel():
        return ""
    wide, right = got.double(), exact.double()
    off, size = (wide - right).abs(), right.abs()
    # Where large numbers cancel, a small one is off by what those have lost. NaN is not <=.
    if not bool((off <= FEW_DIGITS * (size + size.median())).all()):
        return ""
    return f"by at most {float(off.max()):.2g} where values go up to {float(right.abs().max()):.3g}"


def rounded_input(got: Tensor, reading: Reading, *, tolerance: float) -> str:
    """Which input was rounded to fewer bits, if that gives `got`; "" if none, or if it fits as it is."""
    floats = {name: x for name, x in reading.inputs.items() if x.is_floating_point()}
    names = [some for count in range(1, len(floats) + 1) for some in combinations(floats, count)]
    for dtype, told in NARROW.items():
        for chosen in names:
            narrow = {name: floats[name].to(dtype).to(floats[name].dtype) for name in chosen}
            values = reading.compute(**{**reading.inputs, **narrow})
            if values.shape == got.shape and _close(got, values, tolerance):
                verb = "is" if len(chosen) == 1 else "are"
                return f"This comes out if {' and '.join(chosen)} {verb} rounded to {told}."
    return ""


def _alike(got: Any, value: Any) -> bool:
    if not isinstance(value, Tensor):
        return bool(got == value)
    is_tensor = isinstance(got, Tensor) and got.shape == value.shape
    return is_tensor and _close(got, value, CLOSE)


def _close(got: Tensor, value: Tensor, tolerance: float) -> bool:
    wide, other = got.double(), value.double()
    return torch.allclose(wide, other, rtol=tolerance, atol=tolerance, equal_nan=True)
