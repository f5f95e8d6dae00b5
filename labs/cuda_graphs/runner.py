# Lab 17, your part (edition 3): tasks 17.4, 17.5. The rest is given.
"""`GraphRunner`: steps of any number of requests, carried out by padded ones of a few sizes."""

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

    # ANCHOR: given
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

    # ANCHOR_END: given

    # ANCHOR: prepare
    def prepare(self) -> Iterator[Size]:
        """Make each size ready, in an order in which each fits into the memory of those before."""
        # TODO 17.4: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.4: not implemented yet; see chapter CUDA graphs"
        )

    # ANCHOR_END: prepare

    # ANCHOR: takes
    def takes(self, step: StepInput) -> bool:
        """Whether there is a size for a step."""
        return self._size(step) is not None

    def _size(self, step: StepInput) -> Size | None:
        """The smallest size for a step; None if there is none. A step in which control has sent a token
        (it is before `num_known`) takes one with chunks: the others read no token that was sent."""
        # TODO 17.5: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.5: not implemented yet; see chapter CUDA graphs"
        )

    def draws(self, step: StepInput) -> bool:
        """Whether `draw` may follow: the step takes a size without chunks, and every seat draws."""
        # TODO 17.5: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.5: not implemented yet; see chapter CUDA graphs"
        )

    # ANCHOR_END: takes

    # ANCHOR: forward
    def forward(self, step: StepInput) -> Tensor:
        """Queue the step up to the hidden states [T, hidden] of its tokens, which hold until the next.

        It is uploaded by one copy from pinned memory, for which the host does not wait. Table entries
        that have no place there go by `extend_tables`.
        """
        # TODO 17.5: your code here (the reference: 16 lines).
        raise NotImplementedError(
            "cuda_graphs task 17.5: not implemented yet; see chapter CUDA graphs"
        )

    def draw(self, n: int) -> Tensor:
        """Queue the draws [n] int64 of the step whose hidden states were made last."""
        # TODO 17.5: your code here (the reference: 1 line).
        raise NotImplementedError(
            "cuda_graphs task 17.5: not implemented yet; see chapter CUDA graphs"
        )

    # ANCHOR_END: forward
