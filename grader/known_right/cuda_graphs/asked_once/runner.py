"""The size of a step is found once, for all questions about it; what is recorded is kept by size."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts.graphs import Device, Size, StepMachine
from yaie.core.step import StepInput, no_ints

from .inputs import fill, num_uploaded, parts_of
from .padded_step import PaddedStep
from .recording import Recording
from .sizes import size_for, size_of


class GraphRunner:
    def __init__(
        self,
        machine: StepMachine,
        device: Device,
        sizes: Sequence[Size],
        *,
        records: bool,
        pool: Any = None,
    ) -> None:
        self._machine, self._device, self._pool = machine, device, pool
        self._sizes, self._records = tuple(sizes), records
        most = max(num_uploaded(size) for size in self._sizes)
        self._memory = torch.zeros(most, dtype=torch.int32, device=device.where)
        self._ready: dict[Size, PaddedStep | Recording] = {}
        self._last: tuple[StepInput, Size | None] | None = None

    @property
    def sizes(self) -> Sequence[Size]:
        return self._sizes

    def _made(self, size: Size) -> PaddedStep | Recording:
        found = self._ready.get(size)
        if found is None:
            found = step = PaddedStep(size, self._machine, self._memory)
            if self._records:
                found = Recording(step, self._device, self._pool, self._machine.nobody)
            self._ready[size] = found
        return found

    def prepare(self) -> Iterator[Size]:
        for size in sorted(self._sizes, key=lambda size: size.rows, reverse=True):
            self._made(size)
            yield size

    def takes(self, step: StepInput) -> bool:
        return self._size(step) is not None

    def _size(self, step: StepInput) -> Size | None:
        if self._last is None or self._last[0] is not step:
            needed = size_of(step)
            is_sent = step.starts < self._machine.num_known[step.seats]
            if is_sent.any():
                needed = Size(needed.decodes, needed.tokens, max(needed.chunks, 1))
            self._last = step, size_for(self._sizes, needed)
        return self._last[1]

    def draws(self, step: StepInput) -> bool:
        size = self._size(step)
        return size is not None and size.chunks == 0 and bool(np_all(step.samples))

    def forward(self, step: StepInput) -> Tensor:
        size = self._size(step)
        assert size is not None
        given = step
        if len(step.table_seats) > size.rows:
            self._machine.extend_tables(step)
            given = replace(
                step, table_seats=no_ints(), table_columns=no_ints(), table_blocks=no_ints()
            )
        self._now = self._made(size)
        upload = self._device.pinned(num_uploaded(size), dtype=torch.int32)
        fill(parts_of(upload.numpy(), size), size, given, self._machine)
        self._now.inputs.copy_(upload, non_blocking=True)
        self._states = self._now.forward()
        decodes, tokens, _ = size_of(step)
        if not tokens:
            return self._states[:decodes]
        if decodes == size.decodes or not decodes:
            return self._states[size.decodes - decodes : size.decodes + tokens]
        zones = self._states.split([size.decodes, size.tokens])
        return torch.cat([zones[0][:decodes], zones[1][:tokens]])

    def draw(self, n: int) -> Tensor:
        drawn: Tensor = self._now.draw(self._states)
        return drawn.narrow(0, 0, n)


def np_all(flags: Any) -> bool:
    return not (~flags).any()
