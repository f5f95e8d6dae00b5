"""Weights in eight bits with a floating point (E4M3), and the scales they are multiplied by.

float-quantized (compressed-tensors), and fp8 without blocks:
name.weight         [out, in] float8_e4m3fn
name.weight_scale   [out, 1], or a single number

fp8 in blocks (DeepSeek-V3's way, 128 x 128):
name.weight_scale_inv   [out / block, in / block], the last blocks of a side may be cut; a factor too,
                        in spite of its name
"""

from dataclasses import replace

import torch
from torch import Tensor

from yaie.core.gemm import PlainWeight
from yaie.core.quantized import Fp8Weight
from yaie.models.layout import Cut, Destination, Stored
from yaie.models.packing import WHOLE
from yaie.models.schemes.base import choose_scheme
from yaie.models.schemes.cutting import in_units
from yaie.models.schemes.words import DENSE, KINDS, WordScheme


class Fp8(WordScheme):
    """Kept in eight bits where the backend has a product for it, which takes a scale for each output.
    Otherwise, and for blocks, multiplied out into the model's dtype when all of it is there: then a
    checkpoint is read, and no memory is saved. x is not rounded to eight bits, as other engines do."""

    name = "fp8"
    _kept: Fp8Weight | None = None

    def _check_sizes(self) -> None:
        """Any size will do."""

    def _make(self, inputs: int, outputs: int, groups: int, device: torch.device) -> None:
        self._codes8 = torch.empty(outputs, inputs, dtype=torch.float8_e4m3fn, device=device)
        self._scales = [self._scales_of(size, device) for size in self.layout.sizes]
        assert self._how.block is not None
        rows, columns = self._how.block
        by_output = rows == 0 or (rows == 1 and columns == WHOLE)
        self._is_kept = by_output and self._products.takes_fp8(outputs, inputs, self._dtype)

    def _scales_of(self, outputs: int, device: torch.device) -> Tensor:
        assert self._how.block is not None
        rows, columns = self._how.block
        inputs = self.layout.in_features
        shape: tuple[int, ...] = (1,)
        if rows:
            columns = inputs if columns == WHOLE else columns
            shape = (-(-outputs // rows), -(-inputs // columns))
        return torch.empty(shape, dtype=torch.float32, device=device)

    def destinations(self, *names: str) -> dict[str, Destination]:
        suffix = "weight_scale_inv" if self._how.method == "fp8" else "weight_scale"
        sizes = self.layout.sizes
        places = self._biases(names)
        self._unfilled += 2 * len(sizes)
        parts = zip(names, self._codes8.split(sizes), self._scales, self._rows, strict=True)
        for name, codes, scales, row in parts:
            kept = codes.numel() * (1 if self._is_kept else self._dtype.itemsize)
            places[f"{name}.weight"] = Destination(
                codes, filled=self._filled, kept=kept, cuts=(row, self.layout.columns)
            )
            kind = Destination if self._how.block != (0, 0) else SingleNumber
            cuts = self._scale_cuts(row)
            places[f"{name}.{suffix}"] = kind(
                scales, filled=self._filled, parameters=0, kept=0, cuts=cuts
            )
        return places

    def _scale_cuts(self, row: Cut | None) -> tuple[Cut | None, ...]:
        """Which of a product's scales are held. row: which of its outputs are."""
        assert self._how.block is not None
        rows, columns = self._how.block
        if not rows:
            return ()
        across = None if columns == WHOLE else in_units(self.layout.columns, columns)
        return in_units(row, rows), across

    def _complete(self) -> None:
        sizes, inputs = self.layout.sizes, self.layout.in_features
        if self._is_kept:
            pairs = zip(self._scales, sizes, strict=True)
            scales = torch.cat([own.flatten().expand(size) for own, size in pairs])
            self._kept = Fp8Weight(self._codes8, scales)
            del self._codes8, self._scales
            return
        weight = torch.empty(sum(sizes), inputs, dtype=self._dtype, device=self._codes8.device)
        parts = zip(weight.split(sizes), self._codes8.split(sizes), self._scales, strict=True)
        for part, codes, scales in parts:
            part.copy_(codes.float() * self._spread(scales, len(part)))
        del self._codes8, self._scales
        if self._products is DENSE:
            self._dense = weight
            return
        kind = choose_scheme(sum(sizes), inputs, self._dtype, weight.device)
        self._inner = kind(replace(self.layout, bias=False), self._dtype, weight.device, weight)

    def dense(self) -> Tensor:
        return self._dense

    def _spread(self, scales: Tensor, outputs: int) -> Tensor:
        """What each weight is multiplied by: [outputs, in], or what broadcasts to it."""
        assert self._how.block is not None
        rows, columns = self._how.block
        if rows > 1:
            scales = scales.repeat_interleave(rows, dim=0)[:outputs]
        if columns > 1:
            scales = scales.repeat_interleave(columns, dim=1)[:, : self.layout.in_features]
        return scales

    @property
    def plain(self) -> PlainWeight | None:
        if self._kept is not None:
            fuses = self._products.fuses(self._kept)
            return PlainWeight(self._kept, self._bias) if fuses else None
        inner = self._inner.plain
        return None if inner is None else PlainWeight(inner.weight, self._bias)

    def __call__(self, x: Tensor) -> Tensor:
        if self._kept is not None:
            assert self._products.fp8 is not None
            return self._biased(self._products.fp8(x, self._kept))
        return self._biased(self._inner(x))

    def in_float32(self, x: Tensor) -> Tensor:
        return (
            self(x).float() if self._kept is not None else self._biased(self._inner.in_float32(x))
        )


class SingleNumber(Destination):
    """Stored as [1], or without a dimension."""

    def fill(self, tensor: Stored) -> None:
        every = tensor[(slice(None),) * len(tensor.shape)]
        Destination.fill(self, every.reshape(1) if every.numel() == 1 else every)


KINDS |= {("float-quantized", 8): Fp8, ("fp8", 8): Fp8}
