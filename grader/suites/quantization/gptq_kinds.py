"""What mistakes make of GPTQ's codes: the one that gives what a part gave is told."""

from collections.abc import Iterator

import torch
from torch import Tensor

from solutions import quantization as reference
from yaie.core.quantized import Int4Weight

FEW = 0.01
"""The share of codes that may fall the other way."""
NONE = "These are the nearest codes of the weights as they were given: no error has gone on."
SIGN = (
    "The errors have gone on with the wrong sign: what rounding took away is taken away once more."
)
UNDIVIDED = "An error is divided by U[i, i] before it goes on: these are the codes without that."
IN_BLOCK = "Inputs behind a block have got none of its errors."
BEHIND = "Inputs of the same block have got no errors, only those behind it."
TWICE = "The errors have gone into inputs behind the block twice."
GIVEN_ERROR = (
    "Here the error of an input is taken from the weight as it was given, and that is wrong: it must be "
    "taken from what the errors before it have left."
)
GIVEN_GRIDS = (
    "Here the grids are those of the weights as they were given, and that is wrong: errors before a "
    "group change it, and its grid is taken after them."
)


def why_grid(got: Int4Weight, *, symmetric: bool) -> str:
    """Whether the grids are of the other kind than was asked for."""
    zeros = reference.Int4().unpack(got)[1]
    if symmetric or not bool((zeros == 8).all()):
        return ""
    return "Every group has the zero 8, as a symmetric grid has; symmetric=False was asked for."


def why_dead(codes: Tensor, got: Int4Weight, weight: Tensor, hessian: Tensor) -> str:
    """Whether inputs that were used have the codes of 0."""
    zeros = reference.Int4().unpack(got)[1].t().repeat_interleave(got.group_size, 1)
    lost = ((codes == zeros) & (weight != 0)).all(dim=0) & (hessian.diagonal() > 0)
    if not bool(lost.any()):
        return ""
    first = int(lost.nonzero()[0])
    return (
        f"{int(lost.sum())} inputs have the code of 0 in every output: they were taken for dead. Input "
        f"{first} is used: its entry on the Hessian's diagonal is {float(hessian[first, first]):.3g}."
    )


def why_codes(
    codes: Tensor,
    got: Int4Weight,
    weight: Tensor,
    hessian: Tensor,
    *,
    symmetric: bool = True,
    damping: float = 0.01,
    block: int = 128,
) -> str:
    """The words of the only mistake that gives these codes; "" if there is none, or more than one."""
    if told := why_grid(got, symmetric=symmetric) or why_dead(codes, got, weight, hessian):
        return told
    upper = reference.Gptq(reference.Int4()).factor(hessian, damping)
    found = {
        words
        for words, step in _kinds()
        if float((_codes(weight, hessian, upper, got.group_size, symmetric, block, step) != codes)
                 .float().mean()) <= FEW
    }  # fmt: skip
    return found.pop() if len(found) == 1 else ""


Step = tuple[float, float, bool, bool, bool]
"""Times the error goes into inputs of its block, and behind; is it divided, taken from the weight that
was given, and are grids that weight's."""


def _kinds() -> Iterator[tuple[str, Step]]:
    yield NONE, (0, 0, True, False, False)
    yield SIGN, (-1, -1, True, False, False)
    yield SIGN, (-1, 1, True, False, False)
    yield UNDIVIDED, (1, 1, False, False, False)
    yield IN_BLOCK, (1, 0, True, False, False)
    yield BEHIND, (0, 1, True, False, False)
    yield TWICE, (1, 2, True, False, False)
    yield GIVEN_ERROR, (1, 1, True, True, False)
    yield GIVEN_GRIDS, (1, 1, True, False, True)


def _codes(
    weight: Tensor,
    hessian: Tensor,
    upper: Tensor,
    size: int,
    symmetric: bool,
    block: int,
    step: Step,
) -> Tensor:
    within, behind, is_divided, of_given, grids_given = step
    int4 = reference.Int4()
    given = weight.float().clone()
    given[:, hessian.diagonal() == 0] = 0
    left, codes = given.clone(), torch.empty_like(given, dtype=torch.int32)
    scales = zeros = torch.empty(0)
    for i in range(left.shape[1]):
        if i % size == 0:
            group = (given if grids_given else left)[:, i : i + size]
            scales, zeros = int4.grid(group, symmetric=symmetric)
        column = left[:, i : i + 1]
        code = int4.codes(column, scales, zeros)
        codes[:, i : i + 1] = code
        error = (given if of_given else left)[:, i : i + 1] - (code - zeros[:, None]) * scales[
            :, None
        ]
        error = error / (upper[i, i] if is_divided else 1.0)
        end = min(i // block * block + block, left.shape[1])
        left[:, i + 1 : end] -= within * error @ upper[i : i + 1, i + 1 : end]
        left[:, end:] -= behind * error @ upper[i : i + 1, end:]
    return codes
