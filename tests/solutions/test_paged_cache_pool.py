"""KVPool against torch indexing: slot s is row s % block_size of block s // block_size."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from solutions.paged_cache import KVPool
from yaie.core.batch import KVLayerSpec
from yaie.curriculum.manifest import ROOT

LAYERS = [KVLayerSpec(2, 8), KVLayerSpec(1, 4)]
BLOCKS, SIZE, HOST = 6, 4, 3


@pytest.fixture
def pool() -> KVPool:
    return KVPool(LAYERS, BLOCKS, SIZE, torch.float32, torch.device("cpu"), HOST)


def rows(layer: int, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    spec, generator = LAYERS[layer], torch.Generator().manual_seed(seed)
    shape = (count, spec.num_kv_heads, spec.head_dim)
    return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)


def fill(pool: KVPool) -> list[tuple[Tensor, Tensor]]:
    """Something else in every slot of every layer; returns what, as [num_blocks, block_size, ...]."""
    content = []
    for layer in range(len(LAYERS)):
        k, v = rows(layer, BLOCKS * SIZE, seed=layer)
        pool.write(layer, k, v, torch.arange(BLOCKS * SIZE))
        content.append((k.unflatten(0, (BLOCKS, SIZE)), v.unflatten(0, (BLOCKS, SIZE))))
    return content


def assert_holds(pool: KVPool, content: list[tuple[Tensor, Tensor]]) -> None:
    for layer, (k, v) in enumerate(content):
        keys, values = pool.blocks(layer)
        assert torch.equal(keys, k)
        assert torch.equal(values, v)


def test_layers_have_their_own_shapes(pool: KVPool) -> None:
    for layer, spec in enumerate(LAYERS):
        for stored in pool.blocks(layer):
            assert stored.shape == (BLOCKS, SIZE, spec.num_kv_heads, spec.head_dim)


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_slot_is_the_row_of_a_token_in_the_block_of_its_own_table(block_size: int) -> None:
    tables = [[5, 1, 3], [2, 0, -1], [4, 4, 2]]
    tokens = [(1, 2 * block_size - 1), (0, 0), (2, block_size), (0, 3 * block_size - 1), (1, 0)]
    pool = KVPool(LAYERS, BLOCKS, block_size, torch.float32, torch.device("cpu"))
    rows, positions = torch.tensor(tokens).unbind(1)
    slots = pool.slot_mapping(torch.tensor(tables, dtype=torch.int32), rows, positions)
    assert slots.dtype == torch.int64
    assert slots.tolist() == [
        tables[row][position // block_size] * block_size + position % block_size
        for row, position in tokens
    ]


def test_slots_beyond_32_bits_do_not_wrap(pool: KVPool) -> None:
    table = torch.tensor([[2**30]], dtype=torch.int32)
    slots = pool.slot_mapping(table, torch.tensor([0]), torch.tensor([3]))
    assert slots.tolist() == [2**32 + 3]


def test_write_puts_each_token_in_its_slot_and_touches_no_other(pool: KVPool) -> None:
    content = fill(pool)
    slots = torch.tensor([23, 0, 6, 13])
    k, v = rows(0, 4, seed=9)
    pool.write(0, k, v, slots)
    for stored, new in zip(content[0], (k, v), strict=True):
        stored[slots // SIZE, slots % SIZE] = new
    assert_holds(pool, content)


def test_write_takes_rows_that_are_not_contiguous(pool: KVPool) -> None:
    k, v = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in rows(0, 3))
    assert not k.is_contiguous()
    pool.write(0, k, v, torch.tensor([4, 5, 9]))
    assert torch.equal(pool.blocks(0)[0].flatten(0, 1)[[4, 5, 9]], k)
    assert torch.equal(pool.blocks(0)[1].flatten(0, 1)[[4, 5, 9]], v)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_gather_joins_the_blocks_of_each_row(pool: KVPool, dtype: torch.dtype) -> None:
    content = fill(pool)
    tables = torch.tensor([[5, 1, 1], [0, 2, 5]], dtype=dtype)
    for layer, (k, v) in enumerate(content):
        keys, values = pool.gather(layer, tables)
        assert torch.equal(keys, k[tables.long()].flatten(1, 2))
        assert torch.equal(values, v[tables.long()].flatten(1, 2))


def test_gathered_keys_are_copies(pool: KVPool) -> None:
    content = fill(pool)
    for gathered in pool.gather(0, torch.tensor([[0, 1]])):
        gathered.fill_(torch.nan)
    assert_holds(pool, content)


def test_copying_blocks_copies_every_layer(pool: KVPool) -> None:
    content = fill(pool)
    pool.copy_blocks([(0, 4), (1, 5), (0, 3)])
    for stored in (tensor for pair in content for tensor in pair):
        stored[[4, 5, 3]] = stored[[0, 1, 0]]
    assert_holds(pool, content)


def test_copies_read_before_any_of_them_writes(pool: KVPool) -> None:
    content = fill(pool)
    pool.copy_blocks([(0, 1), (1, 2), (2, 0)])
    for stored in (tensor for pair in content for tensor in pair):
        stored[[1, 2, 0]] = stored[[0, 1, 2]]
    assert_holds(pool, content)


def test_swapping_out_and_in_brings_the_content_to_other_blocks(pool: KVPool) -> None:
    content = fill(pool)
    pool.swap_out([(2, 1), (3, 0)])
    for layer in range(len(LAYERS)):
        k, v = rows(layer, 2 * SIZE, seed=5)
        pool.write(layer, k, v, torch.arange(2 * SIZE, 4 * SIZE))
        for stored, new in zip(content[layer], (k, v), strict=True):
            was, stored[2:4] = stored[2:4].clone(), new.unflatten(0, (2, SIZE))
            stored[5], stored[0] = was[0], was[1]
    pool.swap_in([(1, 5), (0, 0)])
    assert_holds(pool, content)


def test_no_pairs_move_nothing(pool: KVPool) -> None:
    content = fill(pool)
    pool.copy_blocks([])
    pool.swap_out([])
    pool.swap_in([])
    assert_holds(pool, content)


def test_dtype_is_as_asked() -> None:
    pool = KVPool(LAYERS, 2, SIZE, torch.bfloat16, torch.device("cpu"))
    assert {stored.dtype for stored in pool.blocks(0)} == {torch.bfloat16}


GROWTH = """
import psutil
import torch
from solutions.paged_cache.kv_pool import KVPool
from yaie.core.batch import KVLayerSpec

before = psutil.Process().memory_info().rss
layers = [KVLayerSpec(4, 32)] * 2
pool = KVPool(layers, 2**14, 16, torch.float32, torch.device("cpu"), num_host_blocks=2**14)
k = torch.ones(1, 4, 32)
pool.write(1, k, k, torch.tensor([40_000]))
pool.swap_out([(2500, 3000)])
assert pool.blocks(1)[0][2500].sum() == 4 * 32
print(psutil.Process().memory_info().rss - before)
"""


def test_pools_take_memory_when_blocks_are_first_written() -> None:
    """In a process of its own: elsewhere memory may come from what other tests have freed."""
    ran = subprocess.run(
        [sys.executable, "-c", GROWTH], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 256 * 2**20  # of 1 GiB
