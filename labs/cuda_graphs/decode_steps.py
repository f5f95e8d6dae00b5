# Lab 17, your part: tasks 17.4, 17.5. The rest is given.
"""Decode steps of any number of requests, carried out by a few padded ones."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts.graphs import Device, StepMachine
from yaie.core.step import StepInput

from .inputs import FIELDS, fill
from .padded_step import PaddedStep
from .recording import Recording
from .sizes import size_for


class DecodeSteps:
    """See `yaie.core.contracts.graphs.DecodeSteps`.

    records: whether as graphs; otherwise launch by launch, the same kernels on the same rows.
    """

    # ANCHOR: given
    def __init__(
        self,
        machine: StepMachine,
        device: Device,
        sizes: Sequence[int],
        *,
        records: bool,
        pool: Any = None,
    ) -> None:
        """sizes: ascending. pool: memory that all recordings share, since only one runs at a time."""
        self._machine = machine
        self._device = device
        self._sizes = list(sizes)
        self._records = records
        # One buffer for all sizes: only one step is uploaded at a time.
        self._memory = torch.zeros(FIELDS * self._sizes[-1], dtype=torch.int32, device=device.where)
        self._pool = pool
        self._ready: dict[int, PaddedStep | Recording] = {}
        self._current: PaddedStep | Recording
        self._logits: Tensor

    @property
    def sizes(self) -> Sequence[int]:
        """Ascending."""
        return self._sizes

    def _made(self, size: int) -> PaddedStep | Recording:
        """The step of a size, which is recorded when it is first asked for."""
        if size not in self._ready:
            step = PaddedStep(size, self._machine, self._memory)
            if self._records:
                nobody = self._machine.nobody
                self._ready[size] = Recording(step, self._device, self._pool, nobody)
            else:
                self._ready[size] = step
        return self._ready[size]

    # ANCHOR_END: given

    # ANCHOR: prepare
    def prepare(self) -> Iterator[int]:
        """Make each size ready, in an order in which each fits into the memory of those before."""
        # TODO 17.4: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.4: not implemented yet; see chapter A step in one launch"
        )

    # ANCHOR_END: prepare

    # ANCHOR: takes
    def takes(self, step: StepInput) -> bool:
        """Whether a step is one that this carries out; the contract lists the conditions.
        `step.num_tokens` has single tokens first."""
        # TODO 17.5: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.5: not implemented yet; see chapter A step in one launch"
        )

    # ANCHOR_END: takes

    # ANCHOR: forward
    def forward(self, step: StepInput) -> Tensor:
        """Queue the step up to its logits [n, vocab], which hold until the next step.

        It is uploaded by one copy from pinned memory, for which the host does not wait. The rows alone
        choose the size. Table entries that have no place there go by `extend_tables`.
        """
        # TODO 17.5: your code here (the reference: 12 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.5: not implemented yet; see chapter A step in one launch"
        )

    def draw(self, n: int) -> Tensor:
        """Queue the draws [n] int64 of the step whose logits were made last."""
        # TODO 17.5: your code here (the reference: 1 line).
        raise NotImplementedError(
            "cuda_graphs task 17.5: not implemented yet; see chapter A step in one launch"
        )

    # ANCHOR_END: forward
