"""`KernelAttention` sends each sequence of a batch to the right kernel, and the result is lab 5's."""

import random

import pytest
import torch
from torch import Tensor

from solutions.paged_cache import KVPool
from solutions.radix_attention import RadixAttention
from solutions.transformer_ops import TransformerOps
from tests.backends.plain_kernels import Flash, Paged, Store
from yaie.backends.attention import KernelAttention, RotateAndStore
from yaie.core.batch import AttentionBatch, AttentionSpec, KVLayerSpec, Rotation
from yaie.worker.layout import attend_through

BLOCK, KV_HEADS, HEADS, DIM = 4, 2, 4, 8
CPU = torch.device("cpu")
SPECS = {
    "plain": AttentionSpec(0.3),
    "window": AttentionSpec(0.3, window=5),
    "softcap": AttentionSpec(0.3, softcap=2.0),
    "sinks": AttentionSpec(0.3, sinks=torch.randn(HEADS)),
}


def batch_of(shapes: list[tuple[int, int]], seed: int = 0) -> AttentionBatch:
    """Sequences of (queries, keys), in blocks of no order."""
    queries, keys = [q for q, _ in shapes], [k for _, k in shapes]
    width = max(-(-k // BLOCK) for k in keys)
    blocks = torch.randperm(len(shapes) * width, generator=torch.Generator().manual_seed(seed))
    tables = blocks.view(len(shapes), width)
    positions = torch.cat([torch.arange(k - q, k) for q, k in shapes])
    owner = torch.repeat_interleave(torch.arange(len(shapes)), torch.tensor(queries))
    slots = tables[owner, positions // BLOCK] * BLOCK + positions % BLOCK
    starts = torch.tensor([0, *queries]).cumsum(0).int()
    lens = torch.tensor(keys, dtype=torch.int32)
    return AttentionBatch(queries, keys, starts, lens, tables.int(), slots, positions)


def pool_of(num_blocks: int) -> KVPool:
    pool = KVPool([KVLayerSpec(KV_HEADS, DIM)], num_blocks, BLOCK, torch.float32, CPU)
    generator = torch.Generator().manual_seed(3)
    for blocks in pool.blocks(0):
        blocks.copy_(torch.randn(blocks.shape, generator=generator))
    return pool


def inputs(tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Views of one product, as a layer has them."""
    fused = torch.randn(
        tokens, HEADS + 2 * KV_HEADS, DIM, generator=torch.Generator().manual_seed(4)
    )
    q, k, v = fused.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
    return q, k, v


def gather(blocks: Tensor, tables: Tensor) -> Tensor:
    return blocks[tables.long()].flatten(1, 2)


def made(
    pool: KVPool, fused: bool = False, gathers: bool = False, worth_a_call: int = 0
) -> tuple[KernelAttention, Flash, Paged]:
    flash, paged = Flash(), Paged()
    store = RotateAndStore(Store(), _rope_and_store if fused else None)
    optional = (gather if gathers else None, worth_a_call)
    return KernelAttention(pool, store, flash, paged, *optional), flash, paged


def _rope_and_store(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, cos: Tensor, sin: Tensor,
    keys: Tensor, values: Tensor, slots: Tensor,
) -> None:  # fmt: skip
    turned, k = TransformerOps().rope(q, k, positions, cos, sin)
    q.copy_(turned)
    Store().store_kv(k, v, keys, values, slots)


def assert_same(
    shapes: list[tuple[int, int]],
    spec: AttentionSpec,
    gathers: bool = False,
    worth_a_call: int = 0,
) -> tuple[Flash, Paged]:
    batch = batch_of(shapes)
    num_blocks = batch.block_tables.numel()
    attention, flash, paged = made(pool_of(num_blocks), False, gathers, worth_a_call)
    plain = RadixAttention(pool_of(num_blocks), TransformerOps())
    q, k, v = inputs(len(batch.positions))
    got = attention.run(0, q, k, v, spec, attention.plan(batch))
    expected = plain.run(0, q, k, v, spec, plain.plan(batch))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    return flash, paged


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("seed", range(12))
def test_any_batch_in_any_order(
    seed: int, spec: AttentionSpec, gathers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yaie.backends.attention_plan.GATHER_FROM", 5)
    rng = random.Random(seed)
    shapes = []
    for _ in range(rng.randint(1, 9)):
        queries = rng.choice([1, 1, 2, 5, 7])
        shapes.append((queries, queries + rng.choice([0, 0, 3, 8])))
    assert_same(shapes, spec, gathers, rng.choice([0, 5, 9, 1000]))


def test_long_chunks_are_gathered_where_a_kernel_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie.backends.attention_plan.GATHER_FROM", 5)
    shapes = [(1, 9), (2, 7), (5, 11), (7, 20), (6, 6)]
    flash, paged = assert_same(shapes, SPECS["window"], gathers=True)
    assert paged.prefills == [[2]]
    assert flash.calls == [(1, 5), (1, 7), (1, 6)]
    flash, paged = assert_same(shapes, SPECS["sinks"], gathers=True)
    assert (paged.prefills, flash.calls) == ([[2, 5, 7, 6]], [])


def test_heads_that_lie_apart_are_brought_together() -> None:
    """A model of transformers has [heads, T, d], and hands over its transpose."""
    batch = batch_of([(1, 9), (2, 7), (3, 3)])
    seen: list[Tensor] = []

    class Strict(Store):
        def store_kv(self, k: Tensor, v: Tensor, *others: Tensor) -> None:  # type: ignore[override]
            seen.extend((k, v))
            super().store_kv(k, v, *others)

    pool = pool_of(batch.block_tables.numel())
    attention = KernelAttention(pool, RotateAndStore(Strict()), Flash(), Paged())
    q, k, v = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in inputs(6))
    got = attention.run(0, q, k, v, SPECS["plain"], attention.plan(batch))
    assert all(x.stride()[1:] == (DIM, 1) for x in seen)
    plain = RadixAttention(pool_of(batch.block_tables.numel()), TransformerOps())
    expected = plain.run(0, *inputs(6), SPECS["plain"], plain.plan(batch))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_each_kind_goes_to_its_kernel() -> None:
    flash, paged = assert_same(
        [(1, 9), (1, 1), (2, 7), (5, 11), (3, 3), (6, 6), (6, 6)], SPECS["plain"]
    )
    assert paged.decodes == [2]
    assert paged.prefills == [[2, 5]]
    assert flash.calls == [(1, 3), (2, 6)]


@pytest.mark.parametrize("name", ["softcap", "sinks"])
def test_flash_attention_is_spared_what_it_does_not_know(name: str) -> None:
    flash, paged = assert_same([(1, 9), (2, 7), (3, 3), (6, 6)], SPECS[name])
    assert flash.calls == []
    assert paged.prefills == [[2, 3, 6]]


def test_whole_prompts_are_found_before_and_behind_chunks() -> None:
    shapes = [(1, 9), (3, 7), (6, 6), (6, 6), (2, 5), (7, 11), (4, 4)]
    flash, paged = assert_same(shapes, SPECS["plain"])
    assert paged.decodes == [1]
    assert flash.calls == [(2, 6), (1, 4)]
    assert paged.prefills == [[3], [2, 7]]


def test_prompts_that_are_not_worth_a_call_are_chunks_with_their_neighbours() -> None:
    shapes = [(3, 7), (6, 6), (2, 5), (8, 8), (4, 4)]
    flash, paged = assert_same(shapes, SPECS["plain"], worth_a_call=8)
    assert flash.calls == [(1, 8), (1, 4)]  # the last has a call of its own in any case
    assert paged.prefills == [[3, 6, 2]]


def test_prompts_of_many_lengths_are_one_call() -> None:
    flash, paged = assert_same([(n, n) for n in range(2, 9)], SPECS["plain"], worth_a_call=10)
    assert (paged.prefills, flash.calls) == ([[2, 3, 4, 5, 6, 7, 8]], [])


def test_small_prompts_of_one_length_are_worth_a_call_together() -> None:
    shapes = [(3, 7), *[(4, 4)] * 5, (2, 5)]
    flash, paged = assert_same(shapes, SPECS["plain"], worth_a_call=20)
    assert (paged.prefills, flash.calls) == ([[3], [2]], [(5, 4)])


def test_a_lone_prompt_needs_no_call_more() -> None:
    flash, paged = assert_same([(1, 9), (5, 5)], SPECS["plain"], worth_a_call=1000)
    assert (paged.prefills, flash.calls) == ([], [(1, 5)])


def test_decodes_alone_are_one_call() -> None:
    flash, paged = assert_same([(1, 9), (1, 4), (1, 1)], SPECS["plain"])
    assert (paged.decodes, paged.prefills, flash.calls) == ([3], [], [])


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("shapes", [[(1, 9), (1, 4)], [(1, 9), (3, 8), (4, 4)]])
def test_rotation_is_applied_once_whoever_does_it(
    fused: bool, shapes: list[tuple[int, int]]
) -> None:
    batch = batch_of(shapes)
    num_blocks = batch.block_tables.numel()
    pool, other = pool_of(num_blocks), pool_of(num_blocks)
    attention, _, _ = made(pool, fused)
    plain = RadixAttention(other, TransformerOps())
    angles = torch.outer(torch.arange(32.0), torch.tensor([1.0, 0.3, 0.1, 0.02]))
    rotation = Rotation(TransformerOps().rope, batch.positions, angles.cos(), angles.sin())
    outputs = []
    for kind in (attention, plain):
        q, k, v = inputs(len(batch.positions))
        attend = attend_through(kind, kind.plan(batch))
        outputs.append(attend(0, q, k, v, SPECS["plain"], rotation=rotation))
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(pool.blocks(0), other.blocks(0), strict=True):
        torch.testing.assert_close(mine, theirs)
