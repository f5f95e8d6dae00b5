"""The flat batch of a step, against plain loops over its tokens."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from solutions.paged_cache import KVPool
from tests.worker.rig import (
    BLOCK,
    CPU,
    MAX_BLOCKS,
    MAX_LEN,
    NUM_SEATS,
    VOCAB,
    Share,
    new_of,
    request_of,
    scattered_tables,
    step_of,
    tables_as_sent,
)
from yaie.core.batch import AttentionBatch, KVLayerSpec
from yaie.core.step import StepInput
from yaie.worker.input_batch import InputBatch
from yaie.worker.layout import lay_out, layout
from yaie.worker.padded import PaddedMachine

Tokens = dict[int, list[int]]
Flat = tuple[torch.Tensor, AttentionBatch]


def pool() -> KVPool:
    return KVPool([], NUM_SEATS * MAX_BLOCKS, BLOCK, torch.float32, CPU)


def seats_with(tokens: Tokens, last: list[int]) -> InputBatch:
    """Seats that were sent these tokens, and have drawn `last`."""
    seats = InputBatch(NUM_SEATS, MAX_BLOCKS, VOCAB, CPU)
    requests = {seat: request_of(own) for seat, own in tokens.items()}
    step = step_of(new=new_of(requests), **tables_as_sent())
    assert step.new is not None
    seats.enter(step.new)
    seats.extend_tables(step)
    seats.last_tokens = torch.tensor(last)
    return seats


def naive(shares: list[Share], tokens: Tokens, last: list[int]) -> dict[str, list[int]]:
    """What the flat batch must hold, token by token."""
    tables = scattered_tables().tolist()
    flat: dict[str, list[int]] = {"ids": [], "positions": [], "slots": [], "ends": []}
    for share in shares:
        own = share.num_tokens - len(share.drafts)
        for offset in range(share.num_tokens):
            position = share.start + offset
            if offset >= own:
                flat["ids"].append(share.drafts[offset - own])
            elif position < len(tokens[share.seat]):
                flat["ids"].append(tokens[share.seat][position])
            else:
                flat["ids"].append(last[share.seat])
            flat["positions"].append(position)
            block = tables[share.seat][position // BLOCK]
            flat["slots"].append(block * BLOCK + position % BLOCK)
        flat["ends"].append(len(flat["ids"]))
    return flat


def random_share(rng: random.Random, seat: int, length: int) -> Share:
    """A decode, a chunk or a single token of a prompt, a tail of one; some with drafts."""
    drafts = tuple(rng.randrange(VOCAB) for _ in range(rng.choice([0, 0, 1, 3])))
    if rng.random() < 0.4:  # further on than what was sent: its last token was drawn here
        start = length + rng.randrange(5)
        return Share(seat, start, 1 + len(drafts), drafts=drafts)
    start = rng.randrange(length)
    count = rng.choice([1, 2, length - start, rng.randint(1, length - start)])
    count = min(count, length - start)
    if start + count < length:
        return Share(seat, start, count, samples=False)
    return Share(seat, start, count + len(drafts), drafts=drafts)


def assert_equal(flat: Flat, step: StepInput, wanted: dict[str, list[int]]) -> None:
    token_ids, batch = flat
    lens = step.num_tokens.tolist()
    assert token_ids.tolist() == wanted["ids"]
    assert batch.positions.tolist() == wanted["positions"]
    assert batch.slot_mapping.tolist() == wanted["slots"]
    assert batch.query_start_loc.tolist() == [0, *wanted["ends"]]
    assert batch.query_lens == lens
    assert batch.kv_lens == batch.seq_lens.tolist() == (step.starts + step.num_tokens).tolist()
    width = -(-max(batch.kv_lens) // BLOCK)
    assert batch.block_tables.shape == (len(lens), width)
    for seat, length, row in zip(step.seats, batch.kv_lens, batch.block_tables, strict=True):
        used = -(-length // BLOCK)
        assert row[:used].tolist() == scattered_tables()[seat, :used].tolist()


@pytest.mark.parametrize("seed", range(4))
def test_a_flat_batch_is_what_loops_over_its_tokens_give(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        tokens = {
            seat: [rng.randrange(VOCAB) for _ in range(rng.randint(1, MAX_LEN - 10))]
            for seat in range(NUM_SEATS)
        }
        last = [rng.randrange(VOCAB) for _ in range(NUM_SEATS)]
        chosen = rng.sample(range(NUM_SEATS), rng.randint(1, NUM_SEATS))
        shares = [random_share(rng, seat, len(tokens[seat])) for seat in chosen]
        shares.sort(key=lambda share: share.num_tokens > 1)
        step = step_of(*shares)
        flat = lay_out(step, seats_with(tokens, last), pool())
        assert_equal(flat, step, naive(shares, tokens, last))


def test_decodes_alone_take_all_their_tokens_from_the_device() -> None:
    tokens = {seat: [1] * (3 + seat) for seat in range(NUM_SEATS)}
    last = [20, 21, 22, 23, 19]
    shares = [Share(seat, 3 + seat, 1) for seat in (4, 0, 2)]
    step = step_of(*shares)
    flat = lay_out(step, seats_with(tokens, last), pool())
    assert flat[0].tolist() == [19, 20, 22]
    assert_equal(flat, step, naive(shares, tokens, last))


def test_tables_of_their_own_are_taken_as_they_are() -> None:
    tables = torch.from_numpy(scattered_tables()[:2])
    starts, lens = np.array([5, 0], np.int32), np.array([1, 3], np.int32)
    batch, _ = layout(pool(), tables, starts, lens)
    step = step_of(Share(0, 5, 1), Share(1, 0, 3))
    _, wanted = lay_out(step, seats_with({0: [1] * 6, 1: [2] * 3}, [0] * NUM_SEATS), pool())
    assert batch.block_tables is tables
    for name in ("positions", "slot_mapping", "seq_lens", "query_start_loc"):
        assert torch.equal(getattr(batch, name), getattr(wanted, name))


def test_dtypes_are_those_of_the_contract() -> None:
    step = step_of(Share(0, 3, 1), Share(1, 0, 2))
    flat = lay_out(step, seats_with({0: [1, 2, 3], 1: [4, 5]}, [0] * NUM_SEATS), pool())
    token_ids, batch = flat
    assert token_ids.dtype == batch.positions.dtype == batch.slot_mapping.dtype == torch.int64
    for part in (batch.query_start_loc, batch.seq_lens, batch.block_tables):
        assert part.dtype == torch.int32


def test_flat_batch_shares_no_memory_with_its_step() -> None:
    """Attention may keep what it was given while the next step is laid out."""
    step = step_of(Share(0, 3, 1), Share(1, 0, 2))
    flat = lay_out(step, seats_with({0: [1, 2, 3], 1: [4, 5]}, [0] * NUM_SEATS), pool())
    parts = (flat[0], flat[1].seq_lens, flat[1].query_start_loc)
    for part in parts:
        for array in (step.seats, step.starts, step.num_tokens):
            assert not np.shares_memory(part.numpy(), array)


def test_the_host_counts_slots_as_the_pool_does() -> None:
    rng = np.random.default_rng(0)
    pool = KVPool([KVLayerSpec(1, 4)], 50, 8, torch.float32, CPU)
    seats = InputBatch(6, 7, VOCAB, CPU)
    entries = [(seat, column) for seat in range(6) for column in range(7)]
    step = StepInput(
        0, np.arange(6), np.zeros(6), np.ones(6), np.ones(6, np.bool_),
        table_seats=np.array([seat for seat, _ in entries], np.int32),
        table_columns=np.array([column for _, column in entries], np.int32),
        table_blocks=rng.integers(0, 50, len(entries), dtype=np.int32),
    )  # fmt: skip
    seats.note_blocks(step)
    seats.extend_tables(step)
    asked = rng.permutation(6)[:4].astype(np.int32)
    positions = rng.integers(0, 56, 4, dtype=np.int32)
    rows = torch.from_numpy(asked).long()
    expected = pool.slot_mapping(seats.tables, rows, torch.from_numpy(positions).long())
    machine: Any = SimpleNamespace(batch=seats, pool=pool)
    decode = StepInput(0, asked, positions, np.ones(4, np.int32), np.ones(4, np.bool_))
    assert PaddedMachine.slots(machine, decode).tolist() == expected.tolist()
