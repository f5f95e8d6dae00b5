"""Numbers of the types that GGUF files store weights in: from bytes to float32.

A quantized type cuts each row into blocks of 32 or 256 numbers, and stores small codes and what they
are multiplied with and shifted by. The layouts are ggml's (`block_q4_0` and so on in ggml-common.h);
`gguf.quants` is the oracle, to whose float32 results these are equal in every bit.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of tensors. values: in a block; 1 where numbers stand by themselves. bytes: of a block.
    dtype: of such numbers; None of blocks."""

    name: str
    values: int
    bytes: int
    dtype: torch.dtype | None = None


KINDS = {
    0: Kind("F32", 1, 4, torch.float32),
    1: Kind("F16", 1, 2, torch.float16),
    30: Kind("BF16", 1, 2, torch.bfloat16),
    2: Kind("Q4_0", 32, 18),
    3: Kind("Q4_1", 32, 20),
    6: Kind("Q5_0", 32, 22),
    7: Kind("Q5_1", 32, 24),
    8: Kind("Q8_0", 32, 34),
    12: Kind("Q4_K", 256, 144),
    13: Kind("Q5_K", 256, 176),
    14: Kind("Q6_K", 256, 210),
    39: Kind("MXFP4", 32, 17),
}
"""By ggml's number."""


CHUNK = 1 << 15
"""Numbers that are unpacked at a time: they stay in a core's cache, and are too few for PyTorch to share
out among threads, which costs more than it brings."""


def row_bytes(kind: int, columns: int) -> int:
    """What a row of so many numbers takes in a file."""
    return columns // KINDS[kind].values * KINDS[kind].bytes


def dequantized(data: Tensor, kind: int) -> Tensor:
    """data: [rows, row_bytes] uint8. Returns [rows, columns], float32, or as they are stored where
    numbers stand by themselves."""
    plain = KINDS[kind].dtype
    if plain is not None:
        return data.contiguous().view(plain)
    unpack, block = _UNPACK[KINDS[kind].name], KINDS[kind]
    blocks = data.reshape(-1, block.bytes)
    numbers = torch.empty(len(blocks), block.values)
    step = CHUNK // block.values
    for start in range(0, len(blocks), step):
        chunk = blocks[start : start + step]
        numbers[start : start + step] = unpack(chunk).view(len(chunk), -1)
    return numbers.view(len(data), -1)


def _half(blocks: Tensor, at: int) -> Tensor:
    """The float16 at these two bytes of each block: [blocks, 1] float32."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _nibbles(codes: Tensor) -> Tensor:
    """[..., n] bytes to [..., 2 n] codes: all low halves, then all high ones."""
    return torch.cat([codes & 15, codes >> 4], -1)


def _fifth_bits(blocks: Tensor, at: int) -> Tensor:
    """32 bits, lowest first, as the fifth of each code: [blocks, 32] uint8 of 0 and 16."""
    bits = blocks[:, at : at + 4, None] >> torch.arange(8, dtype=torch.uint8)
    return (bits & 1).flatten(1) << 4


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).to(torch.int8) - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    return (_half(blocks, 0) * _nibbles(blocks[:, 4:])).add_(_half(blocks, 2))


def _q5_0(blocks: Tensor) -> Tensor:
    codes = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)
    return _half(blocks, 0) * (codes.to(torch.int8) - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    codes = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)
    return (_half(blocks, 0) * codes).add_(_half(blocks, 2))


def _q8_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * blocks[:, 2:].view(torch.int8)


def _sixths(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Eight scales and eight minima of six bits each from 12 bytes: [blocks, 8] uint8 twice."""
    low, middle, high = packed.split(4, 1)
    scales = torch.cat([low & 63, (high & 15) | (low >> 6 << 4)], 1)
    minima = torch.cat([middle & 63, (high >> 4) | (middle >> 6 << 4)], 1)
    return scales, minima


def _in_32s(blocks: Tensor, codes: Tensor) -> Tensor:
    """codes [blocks, 8, 32] with the scale and the minimum of each 32 (Q4_K and Q5_K)."""
    scales, minima = _sixths(blocks[:, 4:16])
    factor = (_half(blocks, 0) * scales)[..., None]
    return (factor * codes).sub_((_half(blocks, 2) * minima)[..., None])


def _q4_k(blocks: Tensor) -> Tensor:
    return _in_32s(blocks, _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).view(-1, 8, 32))


def _q5_k(blocks: Tensor) -> Tensor:
    """Bit i of byte j is the fifth of code j in the i-th 32."""
    low = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).view(-1, 8, 32)
    fifth = (blocks[:, None, 16:48] >> torch.arange(8, dtype=torch.uint8)[:, None]) & 1
    return _in_32s(blocks, low | (fifth << 4))


def _q6_k(blocks: Tensor) -> Tensor:
    """Halves of 128 codes: four low bits from 64 bytes, two high ones from 32. 16 codes a scale."""
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).view(-1, 2, 4, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8)[:, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3
    codes = (low | (high << 4)).to(torch.int8) - 32
    factor = _half(blocks, 208) * blocks[:, 192:208].view(torch.int8)
    return factor[..., None] * codes.view(-1, 16, 16)


_DOUBLED = torch.tensor(
    [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=torch.float32
)
"""What the codes of MXFP4 stand for, times two."""


def _mxfp4(blocks: Tensor) -> Tensor:
    """A power of two, stored with 127 added, for 32 codes."""
    return torch.ldexp(_DOUBLED[_nibbles(blocks[:, 1:]).int()], blocks[:, :1].int() - 128)


_UNPACK: dict[str, Callable[[Tensor], Tensor]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "MXFP4": _mxfp4,
}
