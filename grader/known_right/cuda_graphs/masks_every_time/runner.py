"""What a step needs is found in a loop over its seats; sizes are walked by their numbers."""

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
        number = len(self._sizes)
        while number:
            number -= 1
            self._made(self._sizes[number])
            yield self._sizes[number]

    def takes(self, step: StepInput) -> bool:
        """Whether there is a size for a step."""
        return self._size(step) is not None

    def _size(self, step: StepInput) -> Size | None:
        """The smallest size for a step; None if there is none. A step in which control has sent a token
        (it is before `num_known`) takes one with chunks: the others read no token that was sent."""
        decodes, tokens, chunks, is_sent = 0, 0, 0, False
        shares = zip(
            step.seats.tolist(), step.starts.tolist(), step.num_tokens.tolist(), strict=True
        )
        for seat, start, count in shares:
            if count == 1 and not chunks:
                decodes += 1
            else:
                chunks, tokens = chunks + 1, tokens + count
            is_sent = is_sent or start < self._machine.num_known[seat]
        return size_for(self._sizes, Size(decodes, tokens, chunks or int(is_sent)))

    def draws(self, step: StepInput) -> bool:
        """Whether `draw` may follow: the step takes a size without chunks, and every seat draws."""
        size = self._size(step)
        return size is not None and size.chunks == 0 and all(step.samples.tolist())

    def forward(self, step: StepInput) -> Tensor:
        """Queue the step up to the hidden states [T, hidden] of its tokens, which hold until the next.

        It is uploaded by one copy from pinned memory, for which the host does not wait. Table entries
        that have no place there go by `extend_tables`.
        """
        machine, size = self._machine, self._size(step)
        assert size is not None
        if len(step.table_seats) > size.rows:  # requests that come back bring whole tables
            machine.extend_tables(step)
            nothing = no_ints()
            step = replace(step, table_seats=nothing, table_columns=nothing, table_blocks=nothing)
        self._current = self._made(size)
        # Other memory for each step: the copy of the one before may still be in the queue.
        pinned = self._device.pinned(num_uploaded(size), dtype=torch.int32)
        fill(parts_of(pinned.numpy(), size), size, step, machine)
        self._current.inputs.copy_(pinned, non_blocking=True)
        self._hidden = self._current.forward()
        decodes, tokens, _ = size_of(step)
        if not tokens:
            return self._hidden[:decodes]
        chunks = self._hidden[size.decodes : size.decodes + tokens]
        return torch.cat((self._hidden[:decodes], chunks))

    def draw(self, n: int) -> Tensor:
        """Queue the draws [n] int64 of the step whose hidden states were made last."""
        return self._current.draw(self._hidden)[:n]
