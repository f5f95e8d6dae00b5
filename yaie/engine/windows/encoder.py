"""From a plan to data, where a request has two block tables: `GroupedEncoder`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from yaie.core.batch import StepPlan
from yaie.core.request import Request
from yaie.core.step import StepInput
from yaie.engine.asks.arrays import ints
from yaie.engine.step.encoder import StepEncoder


@dataclass(slots=True)
class Sent:
    """What a seat's second table was sent: the first `length` entries of `table`, which is kept: no
    other request's is the same list."""

    table: list[int]
    length: int = 0


class GroupedEncoder(StepEncoder):
    """See StepEncoder. Entries of the second table have columns behind those of the first."""

    def __init__(
        self,
        *settings: Any,
        second_table: Callable[[Request], list[int]],
        width: int,
    ) -> None:
        """second_table: of a request. width: columns of each table."""
        super().__init__(*settings)
        self._second_table = second_table
        self._width = width
        self._sent: dict[int, Sent] = {}

    def encode(self, plan: StepPlan) -> StepInput | None:
        """See StepEncoder."""
        step = super().encode(plan)
        if step is None:
            return None
        seats, columns, blocks = list[int](), list[int](), list[int]()
        for item in plan.scheduled:
            seat, table = self._seats[item.request].number, self._second_table(item.request)
            sent = self._sent.get(seat)
            # As in StepEncoder: the same list has only grown.
            if sent is None or sent.table is not table:
                sent = self._sent[seat] = Sent(table)
            if new := table[sent.length :]:
                seats += [seat] * len(new)
                columns += range(self._width + sent.length, self._width + len(table))
                blocks += new
                sent.length = len(table)
        if seats:
            step.table_seats = np.concatenate([step.table_seats, ints(seats)])
            step.table_columns = np.concatenate([step.table_columns, ints(columns)])
            step.table_blocks = np.concatenate([step.table_blocks, ints(blocks)])
        return step
