"""What mistakes make of a product with packed weights: the one that gives what a part gave is told."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from grader.kit import Mismatch
from grader.kit.kernels import TOLERANCE, expect_near
from solutions import quantization as reference
from yaie.core.quantized import Int4Weight, Int8Weight

FEW_STEPS = 0.05
"""An error below this, relative to the largest result, may be one of rounding."""
Kind = tuple[str, Callable[[], Tensor]]
"""The name of a sentence, and what its mistake gives, [rows, out] float64."""


def expect_product(
    got: Any,
    exact: Tensor,
    x: Tensor,
    weight: Int4Weight | Int8Weight,
    what: str,
    sentences: Mapping[str, str],
) -> None:
    """That a product is near the exact one. If not, the sentence whose mistake gives it: words, group,
    zero, sum, those that there are."""
    try:
        expect_near(got, exact, x.dtype, what)
    except Mismatch as error:
        if isinstance(got, Tensor) and got.shape == exact.shape:
            kinds = of_int4(x, weight) if isinstance(weight, Int4Weight) else of_int8(x, weight)
            error.why = sentences.get(_fitting(got.double(), exact.double(), x.dtype, kinds), "")
        raise


def _fitting(got: Tensor, exact: Tensor, dtype: torch.dtype, kinds: Iterator[Kind]) -> str:
    """The name of the only sentence whose mistakes give every number that was got; "" if none does.
    Without one it is "sum", where float16 or bfloat16 may have rounded on the way."""
    size = float(exact.abs().max())
    near = TOLERANCE[dtype] * max(1.0, size)
    found = {name for name, compute in kinds if bool(((got - compute()).abs() <= near).all())}
    if found:
        return found.pop() if len(found) == 1 else ""
    if not bool(got.isfinite().all()):
        return "sum" if dtype == torch.float16 and size < torch.finfo(dtype).max else ""
    return "sum" if float((got - exact).abs().max()) <= FEW_STEPS * size else ""


def of_int4(x: Tensor, weight: Int4Weight) -> Iterator[Kind]:
    """Mistakes with codes, scales and zeros of four bits."""
    codes, zeros = (each.double() for each in reference.Int4().unpack(weight))
    scales, size = weight.scales.double(), weight.group_size
    inputs = torch.arange(codes.shape[1])

    def product(
        codes: Tensor = codes, zeros: Tensor = zeros, scales: Tensor = scales
    ) -> Callable[[], Tensor]:
        def compute() -> Tensor:
            steps = codes.unflatten(1, (-1, size)) - zeros.t()[..., None]
            return x.double() @ (steps * scales.t()[..., None]).flatten(1).t()

        return compute

    for bits in (7, 1, 3, 4):  # codes of a word in another order
        yield "words", product(codes=codes[:, inputs ^ bits])
    tile = 16
    while tile < 128 and size % (2 * tile) == 0:
        tile *= 2
    for words in {tile // 8, size // 8, codes.shape[1] // 8} - {1}:
        # The first codes of several words side by side, then their second ones.
        at = inputs % (8 * words)
        order = inputs - at + at % words * 8 + at // words
        if int(order.max()) < len(inputs):
            yield "words", product(codes=codes[:, order])
    for other in (zeros * 0, zeros * 0 + 8, -zeros, zeros[:1].expand_as(zeros)):
        yield "zero", product(zeros=other)
    outputs = torch.arange(zeros.shape[1])
    for bits in (7, 1):
        yield "zero", product(zeros=zeros[:, outputs ^ bits])
    firsts = outputs // 8 * 8
    of_inputs = zeros[:, firsts].repeat_interleave(size, dim=0)
    for bit in range(8):  # the zero whose place in the word is the input's
        mine = inputs % 8 == bit
        of_inputs[mine] = zeros[:, firsts + bit].repeat_interleave(size, dim=0)[mine]
    yield "zero", lambda: x.double() @ ((codes - of_inputs.t()) * _spread(scales, size)).t()
    groups = torch.arange(len(scales))
    for order in (groups * 0, groups * 0 + len(groups) - 1, groups.roll(1), groups.roll(-1)):
        yield "group", product(scales=scales[order])
        yield "group", product(scales=scales[order], zeros=zeros[order])
    for step in {16, 32, 64, 128}:
        if codes.shape[1] % step == 0 and step < size:  # a group for each tile of inputs
            order = inputs // step % len(groups)
            at = (codes - zeros[order].t()) * scales[order].t()
            yield "group", lambda at=at: x.double() @ at.t()  # type: ignore[misc]
    yield "group", product(scales=scales * 0 + 1)


def _spread(scales: Tensor, size: int) -> Tensor:
    """Scales [groups, out] for each input: [out, in]."""
    return scales.repeat_interleave(size, dim=0).t()


def of_int8(x: Tensor, weight: Int8Weight) -> Iterator[Kind]:
    """Mistakes with codes, scales and zeros of eight bits."""
    codes, scales = weight.codes.double(), weight.scales.double()
    wide = x.double()
    if weight.zeros is None:
        return
    zeros = weight.zeros.double()
    for other in (zeros * 0, -zeros, zeros[:1].expand_as(zeros)):
        yield "zero", lambda other=other: wide @ ((codes - other[:, None]) * scales[:, None]).t()  # type: ignore[misc]
    yield "zero", lambda: wide @ (codes * scales[:, None]).t() - zeros * scales
    yield "zero", lambda: wide @ (codes * scales[:, None]).t() - zeros
    yield "zero", lambda: wide @ (codes * scales[:, None]).t() - wide.sum(1, keepdim=True) * zeros
