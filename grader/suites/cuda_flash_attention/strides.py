"""Tensors with gaps between their tokens, and which of them a part walks through by whose stride."""

import re
from collections.abc import Callable

import torch
from torch import Tensor

from grader.kit import Mismatch
from yaie.cuda.on_cpu import KernelFault

GAPS = {"q": 8, "k": 16, "v": 32}
"""Elements of NaN between two tokens of a tensor, and twice as many between two sequences."""
STRIDES = (
    "q, k and v may each be a view of a larger tensor. The way from a token to the next is that "
    "tensor's own token_stride, and the way to a head or a sequence goes through its own at()."
)
NEXT = "The next token of {0} lies {0}.token_stride on."


def padded(tensor: Tensor, name: str) -> Tensor:
    """A copy whose heads lie side by side, and its tokens and sequences with gaps in between."""
    return padded_by(tensor, GAPS[name])


def padded_by(tensor: Tensor, gap: int) -> Tensor:
    """With so many elements of NaN between two tokens."""
    token = tensor[0, 0].numel() + gap
    sequence = tensor.shape[1] * token + 2 * gap
    flat = torch.full((len(tensor) * sequence,), torch.nan, dtype=tensor.dtype)
    strides = (sequence, token, tensor.shape[-1], 1)
    return flat.as_strided(tensor.shape, strides).copy_(tensor)


def expect_with_strides(
    check: Callable[..., None], qkv: tuple[Tensor, Tensor, Tensor], *grad_out: Tensor
) -> None:
    """`check` holds for these views, and grad_out if there is one. If it holds for packed copies alone,
    strides are what is wrong."""
    tensors = dict(zip(("q", "k", "v", "grad_out"), (*qkv, *grad_out), strict=False))

    def holds(**changed: Tensor) -> bool:
        given = tensors | changed
        try:
            check((given["q"], given["k"], given["v"]), *list(given.values())[3:])
        except (Mismatch, KernelFault):
            return False
        return True

    try:
        check(qkv, *grad_out)
    except (Mismatch, KernelFault) as failure:
        if not holds(**{name: _packed(tensors[name]) for name in "qkv"}):
            raise
        said = failure.message if isinstance(failure, KernelFault) else str(failure)
        expected, got, why = _strides_told(tensors, holds, said)
        raise Mismatch(
            f"right if q, k and v are packed, wrong with gaps between their tokens: {said}",
            expected,
            got,
            why,
        ) from failure


def _packed(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _strides_told(
    tensors: dict[str, Tensor], holds: Callable[..., bool], said: str
) -> tuple[str, str, str]:
    """(expected, got, why): which tensor is walked through by whose strides. It is so if the call is
    right once the other one has the strides of this one."""
    steps = {name: x.stride(1) for name, x in tensors.items()}
    # Either of two may go by the other's stride: it is the one that the fault names.
    for name in (name for name in tensors if re.search(rf" of {name}(:| \[)", said)):
        step, row = steps[name], tensors[name][0, 0].numel()
        expected = (
            f"{name} walked through by its own stride: the next token lies {step} elements on"
        )
        for other in (other for other in tensors if steps[other] != step):
            gap = step - tensors[other][0, 0].numel()
            if gap >= 0 and holds(**{other: padded_by(tensors[other], gap)}):
                got = f"by that of {other}, {steps[other]}: if {other} has {step} too, all is right"
                return expected, got, NEXT.format(name)
        if step != row and holds(**{name: _packed(tensors[name])}):
            got = f"by the length of its rows, {row}: if {name} alone is packed, all is right"
            return expected, got, NEXT.format(name)
    strides = ", ".join(f"{name} {list(x.stride())}" for name, x in tensors.items())
    return (
        f"each tensor walked through by its own strides, [sequence, token, head, element]: {strides}",
        "",
        STRIDES,
    )
