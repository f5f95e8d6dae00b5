"""A step is written into an array of the host's own, and from there into pinned memory."""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from yaie.core.contracts.graphs import Device, Size, StepMachine
from yaie.core.step import StepInput, no_ints

from .inputs import fill, num_uploaded, parts_of
from .padded_step import PaddedStep
from .recording import Recording
from .sizes import size_for, size_of


class GraphRunner:
    """See `yaie.core.contracts.graphs.GraphRunner`.

    records: whether as graphs; otherwise launch by launch, the same kernels on the same rows.
    """

    def __init__(
        self,
        machine: StepMachine,
        device: Device,
        sizes: Sequence[Size],
        *,
        records: bool,
        pool: Any = None,
    ) -> None:
        """sizes: in ascending order of rows. pool: memory that all recordings share, since only one runs
        at a time."""
        self._machine = machine
        self._device = device
        self._sizes = list(sizes)
        self._records = records
        # One buffer for all sizes: only one step is uploaded at a time.
        longest = max(map(num_uploaded, self._sizes))
        self._memory = torch.zeros(longest, dtype=torch.int32, device=device.where)
        self._pool = pool
        self._ready: dict[Size, PaddedStep | Recording] = {}
        self._current: PaddedStep | Recording
        self._hidden: Tensor

    @property
    def sizes(self) -> Sequence[Size]:
        """In ascending order of rows."""
        return self._sizes

    def _made(self, size: Size) -> PaddedStep | Recording:
        """The step of a size, which is recorded when it is first asked for."""
        if size not in self._ready:
            step = PaddedStep(size, self._machine, self._memory)
            if self._records:
                nobody = self._machine.nobody
                self._ready[size] = Recording(step, self._device, self._pool, nobody)
            else:
                self._ready[size] = step
        return self._ready[size]

    def prepare(self) -> Iterator[Size]:
        """Make each size ready, in an order in which each fits into the memory of those before."""
        for size in reversed(self._sizes):
            self._made(size)
            yield size

    def takes(self, step: StepInput) -> bool:
        """Whether there is a size for a step."""
        return self._size(step) is not None

    def _size(self, step: StepInput) -> Size | None:
        """The smallest size for a step; None if there is none. A step in which control has sent a token
        (it is before `num_known`) takes one with chunks: the others read no token that was sent."""
        needed = size_of(step)
        if not needed.chunks and (step.starts < self._machine.num_known[step.seats]).any():
            needed = needed._replace(chunks=1)
        return size_for(self._sizes, needed)

    def draws(self, step: StepInput) -> bool:
        """Whether `draw` may follow: the step takes a size without chunks, and every seat draws."""
        size = self._size(step)
        return size is not None and not size.chunks and bool(step.samples.all())

    def forward(self, step: StepInput) -> Tensor:
        """Queue the step up to the hidden states [T, hidden] of its tokens, which hold until the next.

        It is uploaded by one copy from pinned memory, for which the host does not wait. Table entries
        that have no place there go by `extend_tables`.
        """
        machine, size = self._machine, self._size(step)
        assert size is not None
        if len(step.table_seats) > size.rows:  # requests that come back bring whole tables
            machine.extend_tables(step)
            step = copy(step)
            step.table_seats = step.table_columns = step.table_blocks = no_ints()
        self._current = self._made(size)
        # Other memory for each step: the copy of the one before may still be in the queue.
        array = np.full(num_uploaded(size), -99, dtype=np.int32)
        fill(parts_of(array, size), size, step, machine)
        pinned = self._device.pinned(len(array), dtype=torch.int32)
        pinned.numpy()[:] = array
        self._current.inputs.copy_(pinned, non_blocking=True)
        self._hidden = self._current.forward()
        decodes, tokens, _ = size_of(step)
        if tokens:
            rows = [*range(decodes), *range(size.decodes, size.decodes + tokens)]
            return torch.stack([self._hidden[row] for row in rows])
        return self._hidden[:decodes]

    def draw(self, n: int) -> Tensor:
        """Queue the draws [n] int64 of the step whose hidden states were made last."""
        return self._current.draw(self._hidden)[:n]
