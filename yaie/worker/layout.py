"""Lays the tokens of sequences side by side: what the model and its attention are given."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec, Rotation
from yaie.core.contracts import Attend, KVPool
from yaie.core.step import Ints, StepInput
from yaie.worker.input_batch import InputBatch
from yaie.worker.transfer import to_device


def layout(
    pool: KVPool, tables: Tensor, starts: Ints, lens: Ints, rows: Ints | None = None
) -> tuple[AttentionBatch, Tensor]:
    """The batch of n sequences that compute their tokens [start, start + len), T in all, single tokens
    first; and `rows` on the device, [n] int64.

    tables: [m, max_blocks] int32, on the device. rows: those of the sequences [n], of which no more than
    they need is taken; None for the tables as they are.
    """
    kv_lens = starts + lens
    if lens[-1] == 1:  # single tokens come first, so there is nothing else
        begins, places = np.arange(len(lens) + 1, dtype=np.int32), starts
        sequences = begins[:-1]
    else:
        begins = np.concatenate((_ZERO, np.cumsum(lens, dtype=np.int32)))
        sequences = np.repeat(np.arange(len(lens), dtype=np.int32), lens)
        # Token t of the batch belongs to a sequence whose position 0 would be at t - offset.
        places = np.arange(begins[-1], dtype=np.int32) - np.repeat(begins[1:] - kv_lens, lens)
    (query_start_loc, seq_lens), (index, sequence, positions) = to_device(
        (begins, kv_lens), (_NONE if rows is None else rows, sequences, places), tables.device
    )
    if rows is not None:
        width = -(-int(kv_lens.max()) // pool.block_size)
        tables = tables[:, :width].index_select(0, index)
    batch = AttentionBatch(
        query_lens=lens.tolist(),
        kv_lens=kv_lens.tolist(),
        query_start_loc=query_start_loc,
        seq_lens=seq_lens,
        block_tables=tables,
        slot_mapping=pool.slot_mapping(tables, sequence, positions),
        positions=positions,
    )
    return batch, index


def lay_out(step: StepInput, kept: InputBatch, pool: KVPool) -> tuple[Tensor, AttentionBatch]:
    """(token ids [T] int64, their batch) of a step that computes at least one token."""
    batch, index = layout(pool, kept.tables, step.starts, step.num_tokens, step.seats)
    if step.num_tokens[-1] == 1 and (step.starts >= kept.num_known[step.seats]).all():
        return kept.last_tokens[index], batch  # each token is one that was drawn
    return _tokens(step, kept), batch


def attend_through(attention: Any, plan: Any) -> Attend:
    """What a model calls in each layer: attention that takes the rotation along, or any other."""
    if getattr(attention, "takes_rotation", False):
        return partial(attention.run, plan=plan)

    def attend(
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        spec: AttentionSpec,
        *,
        rotation: Rotation | None = None,
    ) -> Tensor:
        if rotation is not None:
            q, k = rotation.apply(q, k)
        attended: Tensor = attention.run(layer, q, k, v, spec, plan)
        return attended

    return attend


def _tokens(step: StepInput, kept: InputBatch) -> Tensor:
    """[T] int64: what control has sent, and each drawn token from where it was drawn."""
    begins = np.cumsum(step.num_tokens, dtype=np.int32) - step.num_tokens
    token_ids, is_drawn = sent_tokens(step, kept, begins)
    drawn = np.flatnonzero(is_drawn)
    _, (ids, places, drawn_seats) = to_device(
        (), (token_ids, begins[drawn], step.seats[drawn]), kept.last_tokens.device
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
_NONE = np.empty(0, dtype=np.int32)
