"""What mistakes make of codes and of numbers that come back, beside what a part gave."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from grader.kit import quietly

MOST_TIES = 0.002
"""The share of codes that may fall the other way: a division in another order rounds otherwise."""
CUT = "A weight takes the nearest code. These are cut off, towards 0 or downwards."
OTHER_DTYPE = "These are the codes for the scale rounded to {}, which is another number."
WRAPPED = "These are codes beyond the range of an int8, which begins again at the other end."
OVER_128 = (
    "The scale is the largest weight over 128. It is over 127: a symmetric row has no code -128."
)
RIGHT_STORED = "Codes and scales are stored as they must be. gather gives other numbers"
AS_HALF = ": what comes back is codes times the scale rounded to float16."
OF_OTHERS = ": what comes back is codes times the scales of {}."


def why_codes(
    weight: Tensor,
    codes: Tensor,
    grid: tuple[Tensor, Tensor],
    lowest: int,
    highest: int,
    stored: str,
) -> str:
    """How codes [out, n] were made that are not the nearest ones; "" if that is not known. stored: what
    to say if they fit the scale before it was rounded."""
    found = {
        why
        for why, other in _codes_of(weight, grid, lowest, highest, stored)
        if float((other != codes.double()).double().mean()) <= MOST_TIES
    }
    return found.pop() if len(found) == 1 else ""


def _codes_of(
    weight: Tensor, grid: tuple[Tensor, Tensor], lowest: int, highest: int, stored: str
) -> Iterator[tuple[str, Tensor]]:
    wide = weight.float()
    scales, zeros = (each.float()[:, None] for each in grid)
    low, high = (f(dim=1, keepdim=True) for f in (wide.amin, wide.amax))
    widest = wide.abs().amax(dim=1, keepdim=True)
    exact = (
        (high.clamp(min=0) - low.clamp(max=0)) / (highest - lowest),
        widest / 127,
        widest / 7.5,
    )

    def steps(scale: Tensor) -> Tensor:
        return wide / scale.masked_fill(scale == 0, 1.0)

    def ends(codes: Tensor) -> Tensor:
        return codes.clamp(lowest, highest).double()

    for scale in exact:
        yield stored, ends(steps(scale).round() + zeros)
    for dtype in (torch.bfloat16, torch.float16):
        if not torch.equal(scales.to(dtype).float(), scales):
            why = OTHER_DTYPE.format(str(dtype).removeprefix("torch."))
            yield why, ends(steps(scales.to(dtype).float()).round() + zeros)
    for cut in (torch.trunc, torch.floor):
        yield CUT, ends(cut(steps(scales)) + zeros)
        yield CUT, ends(cut(steps(scales) + zeros))
    codes = (steps(scales).round() + zeros).long()
    if bool(((codes < -128) | (codes > 127)).any()):
        yield WRAPPED, ((codes + 128) % 256 - 128).double()
    if lowest == -127 and torch.allclose(scales, widest / 128, rtol=1e-3, atol=0):
        yield OVER_128, codes.clamp(-128, 127).double()


def why_back(
    pool: Any,
    layer: int,
    half: int,
    slots: Tensor,
    given: Tensor,
    got: Tensor,
    sentences: tuple[str, ...],
) -> str:
    """Why K or V (half 0 or 1) of these slots [n, heads, head_dim] comes back as other numbers; "" if
    that is not known. sentences: on a scale for each head, on its slot, and on the scale as stored."""
    of_head, at_slot, as_stored = sentences
    blocks, all_scales = quietly(pool).blocks(layer), quietly(pool).scales(layer)
    codes, scales, of_other = (
        each.flatten(0, 1)[slots] for each in (blocks[half], all_scales[half], all_scales[1 - half])
    )
    wide = given.float()
    exact = wide.abs().amax(dim=-1) / 127
    right = exact.bfloat16().masked_fill(exact.bfloat16() == 0, 1.0)
    steps = wide / right.float()[..., None]
    if _alike(scales, right) and _alike(codes, steps.round().clamp(-127, 127)):
        return RIGHT_STORED + _read_as(codes, scales, of_other, "KV"[1 - half], got)
    if not _alike(scales, right):
        if _alike(all_scales[half].flatten(0, 1)[: len(right)], right):
            return at_slot
        shared = (exact.amax(dim=-1, keepdim=True), exact.amax(dim=0, keepdim=True), exact.amax())
        is_shared = any(_alike(scales, one.bfloat16().expand_as(scales)) for one in shared)
        return of_head if is_shared else ""
    unrounded = (wide / exact.masked_fill(exact == 0, 1.0)[..., None]).round()
    if _alike(codes, unrounded.clamp(-127, 127)):
        return as_stored
    if any(_alike(codes, each(steps)) for each in (torch.trunc, torch.floor)):
        return CUT
    narrow = (wide / right.half().float()[..., None]).nan_to_num().round().clamp(-127, 127)
    return OTHER_DTYPE.format("float16") if _alike(codes, narrow) else ""


def _read_as(codes: Tensor, scales: Tensor, of_other: Tensor, other: str, got: Tensor) -> str:
    numbers = codes.float()
    if _near(got, numbers * scales.half().float()[..., None]):
        return AS_HALF
    if _near(got, numbers * of_other.float()[..., None]):
        return OF_OTHERS.format(other)
    return "."


def _near(got: Tensor, other: Tensor) -> bool:
    return torch.allclose(got.double(), other.double(), rtol=2e-3, atol=0)


def _alike(got: Tensor, right: Tensor) -> bool:
    """Up to a few ties."""
    if got.shape != right.shape:
        return False
    return float((got.double() != right.double()).double().mean()) <= MOST_TIES
