"""Block tables of the running requests as one array, kept up to date by what changed."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from yaie.core.batch import ScheduledRequest


class BlockTableMirror:
    """Rows of an int32 array [num_rows, max_blocks], one for each request lately scheduled.

    Building the array from lists in every step would cost time in proportion to all blocks in use; a
    decode adds a block every `block_size` steps, so copying tails costs next to nothing.
    """

    def __init__(self, num_rows: int, max_blocks: int) -> None:
        self._array = np.zeros((num_rows, max_blocks), dtype=np.int32)
        self._free = list(range(num_rows))
        self._row_of: dict[str, int] = {}
        self._tables: list[list[int] | None] = [None] * num_rows
        self._lengths = [0] * num_rows

    def rows(self, scheduled: Sequence[ScheduledRequest], width: int) -> NDArray[np.int32]:
        """The tables of `scheduled`, in order, as [n, width] (a copy)."""
        index = [self._row(item, scheduled) for item in scheduled]
        return self._array[index, :width]

    def _row(self, item: ScheduledRequest, scheduled: Sequence[ScheduledRequest]) -> int:
        key, table = item.request.request_id, item.block_table
        row = self._row_of.get(key)
        if row is None:
            if not self._free:
                self._drop_all_but({other.request.request_id for other in scheduled})
            row = self._row_of[key] = self._free.pop()
        # The same list object has only grown; another one may differ anywhere.
        done = self._lengths[row] if self._tables[row] is table else 0
        if done < len(table):
            self._array[row, done : len(table)] = table[done:]
        self._tables[row], self._lengths[row] = table, len(table)
        return row

    def _drop_all_but(self, keep: set[str]) -> None:
        for key in self._row_of.keys() - keep:
            row = self._row_of.pop(key)
            self._tables[row] = None
            self._free.append(row)
