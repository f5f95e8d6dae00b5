"""Batches of a model that drafts: chunks that catch up, then single tokens, each behind the last."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch
from yaie.core.contracts import KVPool
from yaie.core.step import Ints
from yaie.worker.transfer import to_device


def chunks(pool: KVPool, tables: Tensor, starts: Ints, lens: Ints) -> AttentionBatch:
    """Sequences [n] that compute the tokens [start, start + len). tables: [n, m] int32."""
    kv_lens = starts + lens
    begins = np.concatenate(([0], np.cumsum(lens))).astype(np.int32)
    rows = np.repeat(np.arange(len(lens), dtype=np.int32), lens)
    places = np.arange(begins[-1], dtype=np.int32) - np.repeat(begins[1:] - kv_lens, lens)
    (start_loc, seq_lens), (rows_, positions) = to_device(
        (begins, kv_lens), (rows, places), tables.device
    )
    return AttentionBatch(
        query_lens=lens.tolist(),
        kv_lens=kv_lens.tolist(),
        query_start_loc=start_loc,
        seq_lens=seq_lens,
        block_tables=tables,
        slot_mapping=pool.slot_mapping(tables, rows_, positions),
        positions=positions,
    )


class Singles:
    """One token for each of n sequences, and then another one behind it, of all or of the first few."""

    def __init__(self, pool: KVPool, tables: Tensor, positions: Ints) -> None:
        """tables: [n, m] int32. positions: [n], where the first tokens go."""
        device, count = tables.device, len(positions)
        self._pool = pool
        self._tables = tables
        self._kv_lens: list[int] = (positions + 1).tolist()
        self._loc = torch.arange(count + 1, dtype=torch.int32, device=device)
        self._rows = torch.arange(count, device=device)
        _, (self._positions,) = to_device((), (positions,), device)
        self._seq_lens = (self._positions + 1).int()

    def batch(self, count: int) -> AttentionBatch:
        """Of the first `count` sequences, at their next positions."""
        positions, tables = self._positions[:count], self._tables[:count]
        batch = AttentionBatch(
            query_lens=[1] * count,
            kv_lens=self._kv_lens[:count],
            query_start_loc=self._loc[: count + 1],
            seq_lens=self._seq_lens[:count],
            block_tables=tables,
            slot_mapping=self._pool.slot_mapping(tables, self._rows[:count], positions),
            positions=positions,
        )
        self._positions, self._seq_lens = self._positions + 1, self._seq_lens + 1
        self._kv_lens = [length + 1 for length in self._kv_lens]
        return batch


def falling(numbers: Sequence[int] | Ints) -> list[int]:
    """The rows whose number is above 0, by falling number: those that go on longest come first."""
    rows = [row for row, number in enumerate(numbers) if number > 0]
    return sorted(rows, key=lambda row: -numbers[row])


def columns(drawn: Sequence[Tensor]) -> list[list[int]]:
    """What was drawn in each turn [n], [m <= n], ..., as a list for each of the n rows."""
    turns = [tokens.tolist() for tokens in drawn]
    count = len(turns[0]) if turns else 0
    return [[turn[row] for turn in turns if row < len(turn)] for row in range(count)]
