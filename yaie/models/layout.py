"""Where tensors of a checkpoint go: `Destination` for one of them, `Layout` for those of a product."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True)
class Destination:
    """Where one tensor of a checkpoint goes: a view of a weight, filled in place.

    transposed: the checkpoint has it as [in, out] (GPT-2's Conv1D), the target is [out, in].
    filled: called afterwards. parameters: of the model, in each number (eight in a word of INT4, none
    in a scale). kept: bytes that the engine keeps of it, if not as many as the target has.
    """

    target: Tensor
    transposed: bool = False
    filled: Callable[[], None] | None = None
    parameters: int = 1
    kept: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the checkpoint's tensor must have."""
        shape = tuple(self.target.shape)
        return shape[::-1] if self.transposed else shape

    @property
    def weight_bytes(self) -> int:
        """Of the engine's memory."""
        return self.target.nbytes if self.kept is None else self.kept

    def fill(self, tensor: Tensor) -> None:
        """Copy `tensor` in, converting dtype and device. Raises ValueError on another shape."""
        if tuple(tensor.shape) != self.shape:
            raise ValueError(f"has shape {list(tensor.shape)} instead of {list(self.shape)}")
        self.target.copy_(tensor.t() if self.transposed else tensor)
        if self.filled is not None:
            self.filled()


@dataclass(frozen=True, slots=True)
class Layout:
    """Which tensors of a checkpoint the weight [sum(sizes), in_features] of a product holds.

    sizes: rows of each of them, one above the other. bias: whether each has a bias, [its size].
    transposed: whether the checkpoint has them as [in, out].
    """

    in_features: int
    sizes: tuple[int, ...]
    bias: bool = False
    transposed: bool = False

    @property
    def out_features(self) -> int:
        return sum(self.sizes)

    def empty(self, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor | None]:
        """Memory for weight [out, in] and bias [out], uninitialised."""
        rows = self.out_features
        weight = torch.empty(rows, self.in_features, dtype=dtype, device=device)
        return weight, torch.empty(rows, dtype=dtype, device=device) if self.bias else None

    def destinations(
        self,
        names: Sequence[str],
        weight: Tensor,
        bias: Tensor | None,
        filled: Callable[[], None] | None = None,
    ) -> dict[str, Destination]:
        """`name.weight` (and `name.bias`) of the stacked tensors `names`, in the order of `sizes`.

        filled: called after each weight.
        """
        places = {}
        for name, part in zip(names, weight.split(self.sizes), strict=True):
            places[f"{name}.weight"] = Destination(part, self.transposed, filled)
        if bias is not None:
            for name, part in zip(names, bias.split(self.sizes), strict=True):
                places[f"{name}.bias"] = Destination(part)
        return places


def whole(
    in_features: int, out_features: int, *, bias: bool = False, transposed: bool = False
) -> Layout:
    """One tensor of the checkpoint, all of it."""
    return Layout(in_features, (out_features,), bias, transposed)


def stacked(in_features: int, sizes: Sequence[int], *, bias: bool = False) -> Layout:
    """Tensors with the same input, so that one product computes them all (query, key and value; gate and
    up)."""
    return Layout(in_features, tuple(sizes), bias)
