"""`KernelPool` does with lab 13's kernels what lab 3's pool does."""

import shutil
import subprocess
import sys

import pytest
import torch

from solutions.cuda_memory_ops import MemoryKernels
from solutions.paged_cache import KVPool
from yaie.backends.pool import KernelPool
from yaie.core.batch import KVLayerSpec
from yaie.curriculum.manifest import ROOT

pytestmark = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler"
)
LAYERS = [KVLayerSpec(2, 8), KVLayerSpec(1, 16)]
BLOCKS, HOST_BLOCKS, BLOCK = 6, 3, 4
CPU = torch.device("cpu")


def test_everything_that_a_pool_does() -> None:
    sizes = (LAYERS, BLOCKS, BLOCK, torch.float32, CPU, HOST_BLOCKS)
    pool, plain = KernelPool(MemoryKernels(), *sizes), KVPool(*sizes)
    tables = torch.tensor([[4, 0], [2, 2]])
    for layer, spec in enumerate(LAYERS):
        generator = torch.Generator().manual_seed(layer)
        k, v = (torch.randn(2 * BLOCK * BLOCKS // 2, spec.num_kv_heads, spec.head_dim,
                            generator=generator) for _ in range(2))  # fmt: skip
        slots = torch.randperm(BLOCK * BLOCKS, generator=generator)
        for one in (pool, plain):
            one.write(layer, k, v, slots)
    for one in (pool, plain):
        one.copy_blocks([(1, 5), (1, 3)])
        one.swap_out([(4, 0), (2, 2)])
        one.copy_blocks([(0, 4), (0, 2)])
        one.swap_in([(0, 1), (2, 0)])
        one.copy_blocks([])
    for layer in range(len(LAYERS)):
        for mine, theirs in zip(pool.blocks(layer), plain.blocks(layer), strict=True):
            assert torch.equal(mine, theirs)
        for mine, theirs in zip(
            pool.gather(layer, tables), plain.gather(layer, tables), strict=True
        ):
            assert torch.equal(mine, theirs)


def test_slots_lie_where_the_plain_pool_says() -> None:
    sizes = (LAYERS, BLOCKS, BLOCK, torch.float32, CPU, HOST_BLOCKS)
    tables = torch.tensor([[4, 0], [2, 5]], dtype=torch.int32)
    rows, positions = torch.tensor([1, 1, 0, 0]), torch.tensor([3, 4, 0, 7])
    slots = KernelPool(MemoryKernels(), *sizes).slot_mapping(tables, rows, positions)
    assert slots.dtype == torch.int64
    assert slots.tolist() == [11, 20, 16, 3]
    assert torch.equal(slots, KVPool(*sizes).slot_mapping(tables, rows, positions))


GROWTH = """
import psutil
import torch
from tests.backends.test_kernel_pool import new_pool

before = psutil.Process().memory_info().rss
pool = new_pool()
print(psutil.Process().memory_info().rss - before)
assert pool.blocks(1)[0][2500].sum() == 0
"""


def new_pool() -> KernelPool:
    """Of 256 MiB."""
    return KernelPool(MemoryKernels(), [KVLayerSpec(4, 32)] * 2, 4096, 16, torch.float32, CPU, 4096)


def test_a_new_pool_on_a_cpu_takes_no_memory_yet() -> None:
    """In a process of its own: elsewhere an allocation may come from what other tests have freed."""
    ran = subprocess.run(
        [sys.executable, "-c", GROWTH], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 64 * 2**20
