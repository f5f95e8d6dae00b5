"""Zeros are zeros, of every type, and take memory when they are written."""

import psutil
import pytest
import torch

from yaie.system.lazy_zeros import zeros

CPU = torch.device("cpu")
MIB = 2**20


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
@pytest.mark.parametrize("shape", [(3, 4, 2, 8), (0, 4, 2, 8)])
def test_they_have_type_and_shape_and_can_be_written(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    made = zeros(shape, dtype, CPU)
    assert made.dtype == dtype
    assert made.shape == shape
    assert made.is_contiguous()
    assert torch.equal(made, torch.zeros(shape, dtype=dtype))
    made += 1
    assert torch.equal(made, torch.ones(shape, dtype=dtype))


def test_half_a_gibibyte_takes_no_memory_before_it_is_written() -> None:
    before = psutil.Process().memory_info().rss
    made = zeros((512, MIB // 2), torch.bfloat16, CPU)
    made[7] = 1
    assert psutil.Process().memory_info().rss - before < 64 * MIB
    assert made.sum(dtype=torch.float64) == MIB // 2
