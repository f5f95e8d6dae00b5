"""Where tensors of a checkpoint go: `Destination` for one of them, `Layout` for those of a product."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import torch
from torch import Tensor


class Stored(Protocol):
    """A tensor of a checkpoint, of which no more is read than what is asked for. A Tensor is one."""

    @property
    def shape(self) -> Sequence[int]: ...

    def numel(self) -> int: ...

    def __getitem__(self, index: tuple[slice, ...]) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of an axis of a checkpoint's tensor that a rank holds.

    total: entries of the whole axis. held: those that are here, one run after the other (GPT-2 stores
    query, key and value as one tensor, so that a share of the heads is three runs).
    """

    total: int
    held: tuple[range, ...]

    def __len__(self) -> int:
        return sum(map(len, self.held))


Width = int | Cut
"""Features of a product: all of them, or a rank's."""


def held(width: Width) -> int:
    """How many of these features are here."""
    return width if isinstance(width, int) else len(width)


def _cut(width: Width) -> Cut | None:
    return None if isinstance(width, int) else width


@dataclass(slots=True)
class Destination:
    """Where one tensor of a checkpoint goes: a view of a weight, filled in place.

    transposed: the checkpoint has it as [in, out] (GPT-2's Conv1D), the target is [out, in].
    filled: called afterwards. parameters: of the model, in each number (eight in a word of INT4, none
    in a scale). kept: bytes that the engine keeps of it, if not as many as the target has.
    cuts: for each axis of the target, which part of the checkpoint's it is; None for all of it. Empty
    where every axis is whole.
    """

    target: Tensor
    transposed: bool = False
    filled: Callable[[], None] | None = None
    parameters: int = 1
    kept: int | None = None
    cuts: tuple[Cut | None, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the checkpoint's tensor must have."""
        sizes = zip(self.target.shape, self._cuts, strict=True)
        shape = tuple(size if cut is None else cut.total for size, cut in sizes)
        return shape[::-1] if self.transposed else shape

    @property
    def _cuts(self) -> tuple[Cut | None, ...]:
        return self.cuts or (None,) * self.target.dim()

    @property
    def weight_bytes(self) -> int:
        """Of the engine's memory."""
        return self.target.nbytes if self.kept is None else self.kept

    def fill(self, tensor: Stored) -> None:
        """Copy `tensor` in, or the part of it that is held here, converting dtype and device.

        Raises ValueError on another shape.
        """
        if tuple(tensor.shape) != self.shape:
            raise ValueError(f"has shape {list(tensor.shape)} instead of {list(self.shape)}")
        runs = [self._runs(axis) for axis in range(self.target.dim())]
        for piece in product(*runs):
            here, there = zip(*piece, strict=True) if piece else ((), ())
            part = tensor[there[::-1]].t() if self.transposed else tensor[there]
            self.target[here].copy_(part)
        if self.filled is not None:
            self.filled()

    def _runs(self, axis: int) -> list[tuple[slice, slice]]:
        """(where in the target, where in the checkpoint's tensor), for each run of an axis."""
        cut = self._cuts[axis]
        if cut is None:
            return [(slice(None), slice(None))]
        runs, at = [], 0
        for run in cut.held:
            runs.append((slice(at, at + len(run)), slice(run.start, run.stop)))
            at += len(run)
        return runs


def plus_one(weight: Tensor) -> Destination:
    """Of a norm that multiplies by 1 + its weight: what is held is the sum, in the model's dtype."""

    def add() -> None:
        weight.add_(1)

    return Destination(weight, filled=add)


@dataclass(frozen=True, slots=True)
class Layout:
    """Which tensors of a checkpoint the weight [sum(sizes), in_features] of a product holds.

    sizes: rows of each of them, one above the other. bias: whether each has a bias, [its size].
    transposed: whether the checkpoint has them as [in, out].
    rows, columns: which of the checkpoint's outputs, by tensor, and of its inputs are held; empty and
    None where all are. `sizes` and `in_features` count what is held.
    """

    in_features: int
    sizes: tuple[int, ...]
    bias: bool = False
    transposed: bool = False
    rows: tuple[Cut | None, ...] = ()
    columns: Cut | None = None

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
        rows = self.rows or (None,) * len(self.sizes)
        for name, part, cut in zip(names, weight.split(self.sizes), rows, strict=True):
            cuts = (cut, self.columns)
            places[f"{name}.weight"] = Destination(part, self.transposed, filled, cuts=cuts)
        if bias is not None:
            for name, part, cut in zip(names, bias.split(self.sizes), rows, strict=True):
                places[f"{name}.bias"] = Destination(part, cuts=(cut,))
        return places


def whole(
    in_features: Width, out_features: Width, *, bias: bool = False, transposed: bool = False
) -> Layout:
    """One tensor of the checkpoint, or a rank's part of it: with cut outputs its columns are split, with
    cut inputs its rows, in the words of lab 20."""
    return _laid_out(in_features, (out_features,), bias, transposed)


def stacked(in_features: Width, sizes: Sequence[Width], *, bias: bool = False) -> Layout:
    """Tensors with the same input, so that one product computes them all (query, key and value; gate and
    up)."""
    return _laid_out(in_features, sizes, bias)


def _laid_out(
    in_features: Width, sizes: Sequence[Width], bias: bool, transposed: bool = False
) -> Layout:
    rows = tuple(map(_cut, sizes))
    return Layout(
        held(in_features),
        tuple(map(held, sizes)),
        bias,
        transposed,
        rows if any(row is not None for row in rows) else (),
        _cut(in_features),
    )
