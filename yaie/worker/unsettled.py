"""States of sequences with drafts: they move on when it is known which tokens count.

What a rule reads of a token are a few numbers a channel, and a state is a matrix a head. So the tokens'
numbers are kept from the forward pass, and not the states behind each of them:

    forward pass    compute with all drafts, and put the states before them back, layer by layer
    settled         compute once more, from those numbers, with the tokens alone that count

Projections, attention and feed-forward layers are computed once. Until then a state is the one before
the step, whatever becomes of that. Lab 22's part puts states back, and computes them once more.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.contracts.rollback import Kept, Rollback, Verified
from yaie.core.contracts.states import StateBatch, StateOps
from yaie.core.step import StepInput
from yaie.worker.transfer import on_device

Compute = Callable[..., Tensor]


class UnsettledStates(ABC):
    """See `StateOps`, for the layers of one step."""

    def __init__(self, ops: StateOps, rollback: Rollback, slots: Tensor, back: Tensor) -> None:
        """slots: [m] int64, whose states from before the step are put to the slots `back`. rollback: the
        part of lab 22."""
        self.delta_inputs, self.gated_norm = ops.delta_inputs, ops.gated_norm
        self.sigmoid_gate = ops.sigmoid_gate
        self._ops = ops
        self._rollback = rollback
        self._slots = slots
        self._back = back
        self._kept: list[Kept] = []

    @abstractmethod
    def _rows(self, one: Tensor) -> Tensor:
        """Of a tensor of a row a token, the rows that are kept: all of some sequences."""

    @abstractmethod
    def _are_kept(self, step: StepInput) -> NDArray[np.bool_]:
        """[n] whether the rows of a sequence are."""

    def short_conv(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        pool: Tensor,
        batch: StateBatch,
        silu: bool = False,
    ) -> Tensor:
        ops = self._ops

        def compute(x: Tensor, batch: StateBatch) -> Tensor:
            return ops.short_conv(x, weight, bias, pool, batch, silu)

        return self._both(compute, pool, batch, x)

    def gated_delta_rule(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        log_decay: Tensor,
        beta: Tensor,
        pool: Tensor,
        batch: StateBatch,
    ) -> Tensor:
        ops = self._ops

        def compute(
            q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, batch: StateBatch
        ) -> Tensor:
            return ops.gated_delta_rule(q, k, v, log_decay, beta, pool, batch)

        return self._both(compute, pool, batch, q, k, v, log_decay, beta)

    def selective_scan(
        self,
        x: Tensor,
        dt: Tensor,
        a: Tensor,
        b: Tensor,
        c: Tensor,
        d: Tensor | None,
        pool: Tensor,
        batch: StateBatch,
    ) -> Tensor:
        ops = self._ops

        def compute(x: Tensor, dt: Tensor, b: Tensor, c: Tensor, batch: StateBatch) -> Tensor:
            return ops.selective_scan(x, dt, a, b, c, d, pool, batch)

        return self._both(compute, pool, batch, x, dt, b, c)

    def _both(self, compute: Compute, pool: Tensor, batch: StateBatch, *tokens: Tensor) -> Tensor:
        """Compute for now, and keep what computes it again."""
        now = partial(compute, *tokens, batch)
        out = self._rollback.run_ahead(now, pool, self._slots, self._back)
        self._kept.append(Kept(compute, [self._rows(one) for one in tokens]))
        return out

    def settle(self, step: StepInput, gained: Sequence[Sequence[int]]) -> None:
        """gained: what each row of the step that samples has drawn. One with drafts that has drawn
        nothing has failed, and its state stays as it was."""
        num_gained = np.zeros(len(step.seats), np.int64)
        num_gained[step.samples] = [len(tokens) for tokens in gained]
        rows = np.flatnonzero(self._are_kept(step))
        verified = Verified(
            lens=step.num_tokens[rows].astype(np.int64),
            num_drafts=step.num_drafts[rows].astype(np.int64),
            num_gained=num_gained[rows],
            slots=step.seats[rows].astype(np.int64),
            is_fresh=step.starts[rows] == 0,
        )
        upload = partial(on_device, device=self._slots.device)
        self._rollback.settle(self._kept, verified, upload)


class UnsettledStep(UnsettledStates):
    """Of a step that is launched as it is: of the sequences with drafts alone."""

    def __init__(
        self, ops: StateOps, rollback: Rollback, step: StepInput, batch: StateBatch
    ) -> None:
        """batch: the step's."""
        drafted, device = self._are_kept(step), batch.slots.device
        slots = batch.slots.index_select(0, on_device(np.flatnonzero(drafted), device))
        super().__init__(ops, rollback, slots, slots)
        tokens = np.flatnonzero(np.repeat(drafted, step.num_tokens))
        self._tokens = on_device(tokens, device)

    def _rows(self, one: Tensor) -> Tensor:
        return one.index_select(0, self._tokens)

    def _are_kept(self, step: StepInput) -> NDArray[np.bool_]:
        return step.num_drafts > 0


class UnsettledChunks(UnsettledStates):
    """Of a step that may be replayed: of all chunks, where they lie, until the next replay."""

    def __init__(
        self, ops: StateOps, rollback: Rollback, batch: StateBatch, back: Tensor, num_decodes: int
    ) -> None:
        """back: [n] the slots of sequences with drafts, and for others the slot of padding. num_decodes:
        rows and sequences before the chunks."""
        super().__init__(ops, rollback, batch.slots[num_decodes:], back[num_decodes:])
        self._num_decodes = num_decodes

    def _rows(self, one: Tensor) -> Tensor:
        return one[self._num_decodes :]

    def _are_kept(self, step: StepInput) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = np.arange(len(step.seats)) >= step.num_decodes
        return kept
