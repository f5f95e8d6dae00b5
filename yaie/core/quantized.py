"""Weights that are stored in few bits: what lab 19 makes, and what the engine's schemes multiply by."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


# ANCHOR: int8
@dataclass(frozen=True, slots=True)
class Int8Weight:
    """A weight [out, in] in eight bits: w[o, i] is about (codes[o, i] - zeros[o]) * scales[o].

    codes: [out, in] int8. scales: [out] float16. zeros: [out] int32, None if all of them are 0.
    """

    codes: "Tensor"
    scales: "Tensor"
    zeros: "Tensor | None" = None

    @property
    def nbytes(self) -> int:
        zeros = 0 if self.zeros is None else self.zeros.nbytes
        return self.codes.nbytes + self.scales.nbytes + zeros


# ANCHOR_END: int8


# ANCHOR: int4
@dataclass(frozen=True, slots=True)
class Int4Weight:
    """A weight [out, in] in four bits: w[o, i] is about (code - zero) * scale, code and zero 0 to 15.

    `group_size` inputs in a row, i // group_size of them, share scale and zero. As in
    checkpoints of GPTQ the input comes first, and an int32 holds eight numbers, the first in its lowest
    bits:

    qweight: [in / 8, out] int32; the code of w[o, i] is in bits 4 * (i % 8) of qweight[i // 8, o].
    scales: [in / group_size, out] float16.
    qzeros: [in / group_size, out / 8] int32; that of output o is in bits 4 * (o % 8) of column o // 8.
    """

    qweight: "Tensor"
    scales: "Tensor"
    qzeros: "Tensor"
    group_size: int

    @property
    def in_features(self) -> int:
        return 8 * self.qweight.shape[0]

    @property
    def out_features(self) -> int:
        return self.qweight.shape[1]

    @property
    def nbytes(self) -> int:
        return self.qweight.nbytes + self.scales.nbytes + self.qzeros.nbytes


# ANCHOR_END: int4


@dataclass(frozen=True, slots=True)
class LoadedInt4Weight(Int4Weight):
    """One that a checkpoint has filled.

    is_even: whether every zero is 8, as symmetric rounding has it; a kernel then need not read them.
    scales_by_dtype: other forms of the scales, as kernels have asked for them.
    """

    is_even: bool = False
    scales_by_dtype: "dict[torch.dtype, Tensor]" = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Fp8Weight:
    """A weight [out, in] in floating-point numbers of eight bits: w[o, i] is codes[o, i] * scales[o].

    codes: [out, in] float8_e4m3fn. scales: [out] float32.
    """

    codes: "Tensor"
    scales: "Tensor"

    @property
    def in_features(self) -> int:
        return self.codes.shape[1]

    @property
    def out_features(self) -> int:
        return self.codes.shape[0]

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes
