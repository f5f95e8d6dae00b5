"""Zeros are zeros, of every type, and take memory when they are written."""

import subprocess
import sys

import pytest
import torch

from yaie.curriculum.manifest import ROOT
from yaie.system.lazy_zeros import zeros

CPU = torch.device("cpu")


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


GROWTH = """
import psutil
import torch
from yaie.system.lazy_zeros import zeros

before = psutil.Process().memory_info().rss
made = zeros((512, 2**19), torch.bfloat16, torch.device("cpu"))
made[7] = 1
print(psutil.Process().memory_info().rss - before)
"""


def test_half_a_gibibyte_takes_no_memory_before_it_is_written() -> None:
    """In a process of its own: elsewhere memory may come from what other tests have freed."""
    ran = subprocess.run(
        [sys.executable, "-c", GROWTH], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 64 * 2**20
