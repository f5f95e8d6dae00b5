"""Lays the tokens of a step side by side: what the model and its attention are given."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.batch import AttentionBatch
from yaie.core.contracts import KVPool
from yaie.core.step import Ints, StepInput
from yaie.worker.input_batch import InputBatch
from yaie.worker.transfer import to_device


@dataclass(slots=True)
class FlatBatch:
    """T tokens of n seats. token_ids: [T] int64."""

    token_ids: Tensor
    attention: AttentionBatch


class Singles:
    """What a batch of one token a seat shares with the next one of the same seats.

    seats: [n] int32. starts: [n + 1] int32, where each seat's token lies in the batch. index, rows:
    [n] int64 on the device, the seats and their rows; query_start_loc: `starts` there.
    """

    def __init__(self, seats: Ints, device: torch.device) -> None:
        self.seats = seats
        self.starts = np.arange(len(seats) + 1, dtype=np.int32)
        (self.query_start_loc,), (self.index, self.rows) = to_device(
            (self.starts,), (seats, self.starts[:-1]), device
        )
        self.query_lens = [1] * len(seats)


def lay_out(step: StepInput, kept: InputBatch, pool: KVPool, device: torch.device) -> FlatBatch:
    """The flat batch of a step that computes at least one token."""
    lens = step.num_tokens
    kv_lens = step.starts + lens
    if lens[-1] == 1 and (lens == 1).all():
        same = kept.singles
        if same is None or not np.array_equal(same.seats, step.seats):
            same = kept.singles = Singles(step.seats, device)
        starts, query_lens = same.starts, same.query_lens
        (seq_lens,), (positions,) = to_device((kv_lens,), (step.starts,), device)
        query_start_loc, index, rows = same.query_start_loc, same.index, same.rows
    else:
        starts, query_lens = np.concatenate((_ZERO, np.cumsum(lens, dtype=np.int32))), lens.tolist()
        rows_ = np.repeat(np.arange(len(lens), dtype=np.int32), lens)
        # Token t of the flat batch belongs to a sequence whose position 0 would be at t - offset.
        places = np.arange(starts[-1], dtype=np.int32) - np.repeat(starts[1:] - kv_lens, lens)
        (query_start_loc, seq_lens), (index, rows, positions) = to_device(
            (starts, kv_lens), (step.seats, rows_, places), device
        )
    width = -(-int(kv_lens.max()) // pool.block_size)
    tables = kept.tables[:, :width].index_select(0, index)
    batch = AttentionBatch(
        query_lens=query_lens,
        kv_lens=kv_lens.tolist(),
        query_start_loc=query_start_loc,
        seq_lens=seq_lens,
        block_tables=tables,
        slot_mapping=pool.slot_mapping(tables, rows, positions),
        positions=positions,
    )
    return FlatBatch(_tokens(step, kept, starts, index), batch)


def _tokens(step: StepInput, kept: InputBatch, starts: Ints, seat_index: Tensor) -> Tensor:
    """[T] int64: what control has sent, and each drawn token from where it was drawn."""
    token_ids, is_drawn = sent_tokens(step, kept, starts)
    if is_drawn.all() and not len(step.drafts):  # nothing but decodes
        return kept.last_tokens[seat_index]
    drawn = np.flatnonzero(is_drawn)
    _, (ids, places, drawn_seats) = to_device(
        (), (token_ids, starts[drawn], step.seats[drawn]), seat_index.device
    )
    if len(drawn):
        ids[places] = kept.last_tokens[drawn_seats]
    return ids


def sent_tokens(step: StepInput, kept: InputBatch, starts: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """(token ids [T] int32 that control has sent, whether the first of each seat [n] is another, which
    only the device knows). starts: [n] or more, where the tokens of each seat begin."""
    is_drawn = step.starts >= kept.num_known[step.seats]
    token_ids = np.zeros(int(step.num_tokens.sum()), dtype=np.int32)
    for row in np.flatnonzero(~is_drawn).tolist():
        start = int(step.starts[row])
        known = kept.known_tokens(int(step.seats[row]), start, start + int(step.num_tokens[row]))
        token_ids[starts[row] : starts[row] + len(known)] = known
    if len(step.drafts):
        firsts = np.cumsum(step.num_drafts) - step.num_drafts
        for row in np.flatnonzero(step.num_drafts).tolist():
            drafts = step.drafts[firsts[row] : firsts[row] + step.num_drafts[row]]
            end = starts[row] + step.num_tokens[row]
            token_ids[end - len(drafts) : end] = drafts
    return token_ids, is_drawn


_ZERO = np.zeros(1, dtype=np.int32)
