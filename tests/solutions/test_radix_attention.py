"""Attention of a mixed batch over paged keys equals attention sequence by sequence."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from solutions.paged_cache import KVPool
from solutions.radix_attention import RadixAttention
from solutions.radix_attention.grouping import MAX_WASTE, MIN_GROUP, groups_of
from solutions.radix_attention.naive import naive_radix_attention
from solutions.transformer_ops import TransformerOps
from tests.solutions.properties import effort
from yaie.core.batch import AttentionBatch, AttentionSpec, KVLayerSpec

SIZE, HEADS, KV_HEADS, DIM = 4, 4, 2, 8
SPEC = AttentionSpec(scale=DIM**-0.5)
SPECS = {
    "plain": SPEC,
    "window": AttentionSpec(scale=0.3, window=5),
    "softcap": AttentionSpec(scale=0.3, softcap=2.0),
    "sinks": AttentionSpec(scale=0.3, sinks=torch.tensor([0.0, 1.0, -1.0, 3.0])),
    "all": AttentionSpec(0.3, window=6, softcap=4.0, sinks=torch.tensor([0.5, 0.0, 2.0, -2.0])),
}


def batch_of(lens: list[tuple[int, int]], tables: list[list[int]]) -> AttentionBatch:
    """Sequences of (query_len, kv_len) and the blocks of each."""
    query_lens, kv_lens = [q for q, _ in lens], [kv for _, kv in lens]
    width = max(map(len, tables), default=0)
    positions = [kv - q + j for q, kv in lens for j in range(q)]
    owner = [i for i, (q, _) in enumerate(lens) for _ in range(q)]
    slots = [tables[i][p // SIZE] * SIZE + p % SIZE for i, p in zip(owner, positions, strict=True)]
    return AttentionBatch(
        query_lens=query_lens,
        kv_lens=kv_lens,
        query_start_loc=torch.tensor([0, *query_lens]).cumsum(0).int(),
        seq_lens=torch.tensor(kv_lens, dtype=torch.int32),
        block_tables=torch.tensor([t + [0] * (width - len(t)) for t in tables], dtype=torch.int32),
        slot_mapping=torch.tensor(slots, dtype=torch.int64),
        positions=torch.tensor(positions, dtype=torch.int64),
    )


def own_tables(lens: list[tuple[int, int]], seed: int = 0) -> list[list[int]]:
    """Blocks for each sequence, none of them shared, in no order."""
    counts = [-(-kv // SIZE) for _, kv in lens]
    blocks = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(seed)).tolist()
    return [[blocks.pop() for _ in range(count)] for count in counts]


@dataclass
class Case:
    """A batch, with a pool that holds the keys of earlier steps, and the new q, k and v."""

    batch: AttentionBatch
    pool: KVPool
    qkv: tuple[Tensor, Tensor, Tensor]

    def run(self, spec: AttentionSpec = SPEC) -> Tensor:
        attention = RadixAttention(self.pool, TransformerOps())
        return attention.run(0, *self.qkv, spec, attention.plan(self.batch))

    def expected(self, spec: AttentionSpec = SPEC) -> Tensor:
        """From the pool as `run` has left it."""
        return naive_radix_attention(self.pool, TransformerOps(), 0, self.qkv[0], spec, self.batch)


def make_case(lens: list[tuple[int, int]], tables: list[list[int]], filler: float = 0.0) -> Case:
    """`filler` lies in every slot that no sequence of the batch uses."""
    num_blocks = 1 + max((block for table in tables for block in table), default=0)
    generator = torch.Generator().manual_seed(1)

    def rand(count: int, heads: int) -> Tensor:
        return torch.randn(count, heads, DIM, generator=generator)

    pool = KVPool(
        [KVLayerSpec(KV_HEADS, DIM)], num_blocks, SIZE, torch.float32, torch.device("cpu")
    )
    for stored in pool.blocks(0):
        stored.fill_(filler)
    used = {
        table[i // SIZE] * SIZE + i % SIZE
        for table, (_, kv_len) in zip(tables, lens, strict=True)
        for i in range(kv_len)
    }
    pool.write(0, rand(len(used), KV_HEADS), rand(len(used), KV_HEADS), torch.tensor(sorted(used)))
    num_tokens = sum(query for query, _ in lens)
    qkv = rand(num_tokens, HEADS), rand(num_tokens, KV_HEADS), rand(num_tokens, KV_HEADS)
    return Case(batch_of(lens, tables), pool, qkv)


def assert_right(case: Case, spec: AttentionSpec = SPEC) -> None:
    out = case.run(spec)
    assert out.isfinite().all()
    torch.testing.assert_close(out, case.expected(spec), atol=2e-6, rtol=1e-5)


BATCHES = {
    "one decode": [(1, 1)],
    "one prompt": [(7, 7)],
    "one chunk": [(5, 13)],
    "decodes": [(1, 9), (1, 4), (1, 17), (1, 1)],
    "prompts of one length": [(6, 6), (6, 6)],
    "prompts and decodes": [(6, 6), (1, 12), (3, 3), (1, 5), (4, 11)],
    "twelve decodes": [(1, 1 + 3 * i) for i in range(12)],
    "longest first": [(1, 40), (1, 8), (1, 3)],
    "longest last": [(1, 3), (1, 8), (1, 40)],
}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", BATCHES)
def test_batch_equals_its_sequences_one_by_one(name: str, spec: str) -> None:
    lens = BATCHES[name]
    assert_right(make_case(lens, own_tables(lens)), SPECS[spec])


@st.composite
def mixed_lens(draw: st.DrawFn) -> list[tuple[int, int]]:
    queries = draw(st.lists(st.sampled_from([1, 1, 1, 2, 5]), min_size=1, max_size=14))
    return [(q, q + draw(st.integers(0, 30))) for q in queries]


@effort(60)
@given(mixed_lens(), st.sampled_from(sorted(SPECS)), st.integers(0, 9))
def test_any_batch_equals_its_sequences_one_by_one(
    lens: list[tuple[int, int]], spec: str, seed: int
) -> None:
    assert_right(make_case(lens, own_tables(lens, seed)), SPECS[spec])


@pytest.mark.parametrize("filler", [float("nan"), float("inf")])
@pytest.mark.parametrize("spec", SPECS)
def test_slots_that_nobody_wrote_do_not_matter(spec: str, filler: float) -> None:
    """What the last owner of a block left there, in the last block of a sequence and in padding."""
    lens = BATCHES["prompts and decodes"]
    assert_right(make_case(lens, own_tables(lens), filler), SPECS[spec])


def test_new_keys_are_written_to_their_slots() -> None:
    lens = BATCHES["prompts and decodes"]
    case = make_case(lens, own_tables(lens))
    case.run()
    for stored, new in zip(case.pool.blocks(0), case.qkv[1:], strict=True):
        assert torch.equal(stored.flatten(0, 1)[case.batch.slot_mapping], new)


def test_other_slots_are_left_as_they_were() -> None:
    lens = BATCHES["prompts and decodes"]
    case = make_case(lens, own_tables(lens), filler=7.0)
    before = case.pool.blocks(0)[0].flatten(0, 1).clone()
    case.run()
    after = case.pool.blocks(0)[0].flatten(0, 1)
    others = torch.ones(len(after), dtype=torch.bool)
    others[case.batch.slot_mapping] = False
    assert torch.equal(after[others], before[others])


def test_shared_prefix_is_read_by_all_who_share_it() -> None:
    lens = [(1, 10), (1, 11), (3, 12)]
    case = make_case(lens, [[5, 2, 0], [5, 2, 1], [5, 2, 3]])
    assert_right(case)


def test_block_computed_in_this_very_step_can_be_read_by_another() -> None:
    """Sequence 0 computes blocks 0 and 1; sequence 1 shares them and adds one token of its own."""
    lens = [(8, 8), (1, 9)]
    case = make_case(lens, [[0, 1], [0, 1, 2]])
    out = case.run()
    keys = case.pool.gather(0, torch.tensor([[0, 1, 2]]))[0][0, :9]
    assert torch.equal(keys, case.qkv[1])
    torch.testing.assert_close(out, case.expected(), atol=2e-6, rtol=1e-5)


def test_sequence_alone_and_in_a_batch_agree() -> None:
    lens = [(1, 12)] * 6 + [(4, 9)]
    tables = own_tables(lens)
    case = make_case(lens, tables)
    out = case.run()
    alone = Case(batch_of(lens[:1], tables[:1]), case.pool, tuple(x[:1] for x in case.qkv))  # type: ignore[arg-type]
    torch.testing.assert_close(alone.run(), out[:1], atol=2e-6, rtol=1e-5)


def test_layers_share_one_plan_and_keep_their_own_keys() -> None:
    lens = BATCHES["prompts and decodes"]
    tables = own_tables(lens)
    first = make_case(lens, tables)
    layers = [KVLayerSpec(KV_HEADS, DIM)] * 2
    pool = KVPool(layers, first.pool.num_blocks, SIZE, torch.float32, torch.device("cpu"))
    attention = RadixAttention(pool, TransformerOps())
    plan: Any = attention.plan(first.batch)
    q, k, v = first.qkv
    attention.run(0, q, k, v, SPEC, plan)
    attention.run(1, q, 2 * k, v, SPEC, plan)
    expected = naive_radix_attention(pool, TransformerOps(), 1, q, SPEC, first.batch)
    torch.testing.assert_close(
        attention.run(1, q, 2 * k, v, SPEC, plan), expected, atol=2e-6, rtol=1e-5
    )
    assert torch.equal(pool.blocks(1)[0], 2 * pool.blocks(0)[0])


@effort(200)
@given(mixed_lens())
def test_every_sequence_is_in_one_group_with_its_equals(lens: list[tuple[int, int]]) -> None:
    batch = batch_of(lens, own_tables(lens))
    groups = list(groups_of(batch))
    assert sorted(i for group in groups for i in group) == list(range(len(lens)))
    for group in groups:
        assert len({batch.query_lens[i] for i in group}) == 1
        longest = max(batch.kv_lens[i] for i in group)
        for i in group[MIN_GROUP:]:
            assert batch.kv_lens[i] > (1 - MAX_WASTE) * longest


def test_decodes_of_like_length_are_one_group() -> None:
    lens = [(1, 90 + i % 10) for i in range(40)]
    assert len(list(groups_of(batch_of(lens, own_tables(lens))))) == 1


def test_one_long_sequence_does_not_pad_many_short_ones() -> None:
    lens = [(1, 400)] + [(1, 8)] * 39
    groups = list(groups_of(batch_of(lens, own_tables(lens))))
    padded = sum(len(group) * max(lens[i][1] for i in group) for group in groups)
    assert padded < 0.3 * 40 * 400
