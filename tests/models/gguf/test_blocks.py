"""Numbers of every type are those of the gguf package, in every bit."""

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type

from tests.models.gguf.random_blocks import random_bytes
from yaie.models.gguf.blocks import CHUNK, KINDS, dequantized, row_bytes

PACKED = [number for number, kind in KINDS.items() if kind.dtype is None]


@pytest.mark.parametrize("number", PACKED, ids=lambda number: KINDS[number].name)
@pytest.mark.parametrize("rows", [1, 3, 2 * CHUNK // 512 + 1])
def test_blocks_are_dequantized_as_the_gguf_package_does(number: int, rows: int) -> None:
    kind, columns = Type(number), 512
    blocks = rows * columns // gguf.GGML_QUANT_SIZES[kind][0]
    data = random_bytes(np.random.default_rng(rows), kind, blocks, 1.0).reshape(rows, -1)
    got = dequantized(torch.from_numpy(data), number)
    want = gguf.quants.dequantize(data, kind)
    assert got.dtype == torch.float32
    assert np.array_equal(got.numpy().view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("number", KINDS, ids=lambda number: KINDS[number].name)
def test_sizes_are_ggmls(number: int) -> None:
    kind = KINDS[number]
    assert (kind.values, kind.bytes) == gguf.GGML_QUANT_SIZES[Type(number)]
    assert Type(number).name == kind.name
    assert row_bytes(number, 512) == 512 // kind.values * kind.bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_numbers_that_stand_by_themselves_stay_as_they_are(dtype: torch.dtype) -> None:
    number = next(number for number, kind in KINDS.items() if kind.dtype == dtype)
    numbers = torch.randn(3, 8).to(dtype)
    got = dequantized(numbers.view(torch.uint8), number)
    assert got.dtype == dtype
    assert torch.equal(got, numbers)
