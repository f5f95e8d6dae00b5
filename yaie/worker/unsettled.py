"""States of sequences with drafts: they move on when it is known which tokens count.

What a rule reads of a token are a few numbers a channel, and a state is a matrix a head. So the tokens'
numbers are kept from the forward pass, and not the states behind each of them:

    forward pass    compute with all drafts, and put the states before them back, layer by layer
    settled         compute once more, from those numbers, with the tokens alone that count

Projections, attention and feed-forward layers are computed once. Until then a state is the one before
the step, whatever becomes of that.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from yaie.core.contracts.states import StateBatch, StateOps
from yaie.core.step import Ints, StepInput
from yaie.worker.transfer import on_device

Compute = Callable[..., Tensor]


class UnsettledStates:
    """See `StateOps`, for the layers of one step. Sequences without drafts are computed as they are."""

    def __init__(self, ops: StateOps, step: StepInput, batch: StateBatch) -> None:
        """batch: that of the step, on the device."""
        device = batch.slots.device
        self.delta_inputs, self.gated_norm = ops.delta_inputs, ops.gated_norm
        self._ops = ops
        self.drafted = np.flatnonzero(step.num_drafts)
        """[m] the rows of the step that have drafts."""
        self._num_tokens = step.num_tokens[self.drafted].astype(np.int64)
        self._num_drafts = step.num_drafts[self.drafted].astype(np.int64)
        ends = np.cumsum(step.num_tokens, dtype=np.int64)[self.drafted]
        index = on_device(self.drafted, device)
        self._slots = batch.slots.index_select(0, index)
        self._is_fresh = batch.is_fresh.index_select(0, index)
        self._tokens = on_device(runs(ends - self._num_tokens, self._num_tokens), device)
        self._kept: list[tuple[Compute, list[Tensor]]] = []

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
        """Compute for now, and keep what computes it again. tokens: tensors of a row a token."""
        before = pool.index_select(0, self._slots)
        out = compute(*tokens, batch)
        pool.index_copy_(0, self._slots, before)
        self._kept.append((compute, [one.index_select(0, self._tokens) for one in tokens]))
        return out

    def settle(self, num_gained: Sequence[int]) -> None:
        """Each row of `drafted` has gained so many tokens [m]. One that gained none has failed, and its
        state stays as it was."""
        gained = np.array(num_gained, dtype=np.int64)
        held: Ints = np.where(gained > 0, self._num_tokens - self._num_drafts + gained - 1, 0)
        which = np.flatnonzero(held)
        if not len(which):
            return
        begins = (np.cumsum(self._num_tokens) - self._num_tokens)[which]
        lens, device = held[which], self._slots.device
        index, tokens = (on_device(one, device) for one in (which, runs(begins, lens)))
        batch = StateBatch(
            lens=lens.tolist(),
            starts=on_device(np.concatenate(([0], np.cumsum(lens))).astype(np.int32), device),
            slots=self._slots.index_select(0, index),
            is_fresh=self._is_fresh.index_select(0, index),
        )
        for compute, kept in self._kept:
            compute(*(one.index_select(0, tokens) for one in kept), batch)


def runs(begins: Ints, lens: Ints) -> Ints:
    """The numbers from each of `begins` on, as many as `lens` says, behind each other."""
    ends = np.cumsum(lens)
    numbers: Ints = np.arange(ends[-1]) + np.repeat(begins - (ends - lens), lens)
    return numbers
