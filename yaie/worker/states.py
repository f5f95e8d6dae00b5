"""A worker of a model whose layers keep a state: one slot of fixed size a sequence, beside the blocks.

A request's slot has the number of its seat, and it has a seat for as long as it runs: so nothing gives
these out. What a slot holds of a request before is never read, because a sequence that begins at its
first token counts as fresh, whoever had the seat, and a step that was still in flight for that request
has been carried out by then. Rows of padding have the slot of the seat that no request has. Behind them
are slots for copies, which control gives out (`yaie.engine.states`).

Keys and values may be computed twice, at the same place; a state may not, since the second time it
would begin from the state after these tokens. So those of a sequence with drafts wait until it is known
which tokens count (`unsettled.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec, Rotation
from yaie.core.contracts import Attend
from yaie.core.contracts.graphs import GraphRunner
from yaie.core.contracts.rollback import Rollback
from yaie.core.contracts.states import StateBatch, StateOps, StatePool, StepStates
from yaie.core.step import Ints, StepInput, StepResult
from yaie.models.adapter import ModelAdapter
from yaie.worker.layout import attend_through, lay_out
from yaie.worker.padded import PaddedMachine
from yaie.worker.replaying import Begun
from yaie.worker.row_order import RowOrder
from yaie.worker.transfer import on_device, to_device
from yaie.worker.unsettled import UnsettledChunks, UnsettledStates, UnsettledStep
from yaie.worker.worker import Worker

MOST_REPLAYED = 64
"""Tokens of chunks in a step with drafts that is replayed: the memory of every size of fewer holds what
they bring into states. Steps with more are launched as they are."""


class AttendWithStates:
    """See `Attend`. states: for the layers that do not attend."""

    def __init__(self, attend: Attend, states: StepStates) -> None:
        self.states = states
        self._attend = attend

    def __call__(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        spec: AttentionSpec,
        rotation: Rotation | None = None,
    ) -> Tensor:
        return self._attend(layer, q, k, v, spec, rotation=rotation)


class StatefulWorker(Worker):
    """See Worker. The tables of its batch have one column more, in which each seat has its number."""

    computes_again: ClassVar[bool] = False

    def __init__(
        self,
        adapter: ModelAdapter,
        *parts: Any,
        state_ops: StateOps,
        make_pool: Callable[..., StatePool],
        rollback: Rollback,
        num_checkpoints: int = 0,
        replays_drafts: bool = False,
        **settings: Any,
    ) -> None:
        """state_ops: what computes the layers with a state. make_pool: the pool of lab 22.
        rollback: its functions for sequences with drafts. num_checkpoints: slots behind those of the
        seats. replays_drafts: whether padded steps are made for drafts, too.

        has_drafts: [seats] bool, in a step that is replayed. replayed: which size of step with chunks
        was the last one, as its machine counts them. Both are on the device, where a replay finds them.
        """
        super().__init__(adapter, *parts, **settings)
        self._ops = state_ops
        self.rollback = rollback
        tables = self.batch.tables
        seats = torch.arange(len(tables), dtype=tables.dtype, device=tables.device)
        self.batch.tables = torch.cat([tables, seats[:, None]], dim=1)
        num_slots = len(tables) + num_checkpoints
        self.states = make_pool(adapter.state_layers, num_slots, self.device)
        self.replays_drafts = replays_drafts
        self.has_drafts = torch.zeros(len(tables), dtype=torch.bool, device=self.device)
        self.replayed = torch.zeros((), dtype=torch.int64, device=self.device)
        self._machine: StatefulMachine | None = None
        self._unsettled: UnsettledStates | None = None
        """Of the step under way, if it is not replayed."""

    def step_states(self, batch: StateBatch) -> StepStates:
        """What the layers with a state are given for these sequences."""
        return StepStates(self._ops, self.states.layers, batch)

    def forward(self, step: StepInput) -> Tensor:
        """See Worker."""
        self.batch.extend_tables(step)
        token_ids, batch = lay_out(step, self.batch, self.pool)
        states = self.step_states(self._state_batch(step, batch))
        if len(step.drafts):
            self._unsettled = UnsettledStep(self._ops, self.rollback, step, states.batch)
            states = replace(states, ops=self._unsettled)
        attend = attend_through(self.attention, self.attention.plan(batch))
        self.before_forward()
        self._resume(step)
        hidden = self.adapter.forward(token_ids, batch.positions, AttendWithStates(attend, states))
        self._keep(step)
        return hidden

    def _replay(self, step: StepInput, runner: GraphRunner) -> tuple[Begun, RowOrder | None]:
        """See Worker."""
        if len(step.drafts):
            return self._replay_drafts(step, runner)
        self._resume(step)
        begun = super()._replay(step, runner)
        self._keep(step)
        return begun

    def _replay_drafts(self, step: StepInput, runner: GraphRunner) -> tuple[Begun, RowOrder | None]:
        if not self.replays_drafts or step.num_tokens[step.num_decodes :].sum() > MOST_REPLAYED:
            return self.begin(step, self.forward(step)), None
        seats = on_device(step.seats[step.num_drafts > 0].astype(np.int64), self.device)
        self._resume(step)
        self.has_drafts.index_fill_(0, seats, True)
        try:
            begun = super()._replay(step, runner)
        finally:
            self.has_drafts.zero_()
        self._keep(step)
        return begun

    def collect(self, begun: Begun) -> StepResult:
        """See Worker. States of sequences with drafts move on."""
        unsettled, self._unsettled = self._unsettled, None
        result = super().collect(begun)
        if len(begun.step.drafts) and begun.rows is not None:
            if unsettled is None:
                assert self._machine is not None
                unsettled = self._machine.unsettled[int(self.replayed)]
            unsettled.settle(begun.step, result.token_ids)
        return result

    def padded_machine(self) -> PaddedMachine:
        """See Worker. Steps are replayed on the one that was made last."""
        plain = super().padded_machine()
        parts = {one.name: getattr(plain, one.name) for one in fields(plain) if one.init}
        self._machine = StatefulMachine(**parts, worker=self)
        return self._machine

    def _state_batch(self, step: StepInput, batch: AttentionBatch) -> StateBatch:
        return StateBatch(
            lens=batch.query_lens,
            starts=batch.query_start_loc,
            slots=on_device(step.seats.astype(np.int64), self.device),
            is_fresh=on_device(step.starts == 0, self.device),
        )

    def _resume(self, step: StepInput) -> None:
        """From checkpoints to seats. See `yaie.engine.states`."""
        if "states" in step.extras:
            slots, seats = _moved(step, "resumed")
            self._copy(slots, seats)

    def _keep(self, step: StepInput) -> None:
        """From seats to checkpoints."""
        if "states" in step.extras:
            slots, seats = _moved(step, "kept")
            self._copy(seats, slots)

    def _copy(self, sources: Ints, targets: Ints) -> None:
        if len(sources):
            _, (here, there) = to_device((), (sources, targets), self.device)
            self.states.copy(here, there)


def _moved(step: StepInput, which: str) -> tuple[Ints, Ints]:
    """The checkpoints' slots, and the seats."""
    moves = step.extras["states"]
    rows = moves[which] >= 0
    return moves[which][rows], step.seats[moves["rows"][rows]]


@dataclass(slots=True, eq=False)
class StatefulMachine(PaddedMachine):
    """See PaddedMachine. worker: whose states these are. unsettled: what steps with chunks have kept,
    by the number of their size, of which there are as many as `sizes` counts."""

    worker: StatefulWorker
    unsettled: dict[int, UnsettledStates] = field(default_factory=dict)
    sizes: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def hidden(self, token_ids: Tensor, batch: AttentionBatch) -> Tensor:
        """See PaddedMachine. Each row's seat stands behind its blocks. A row of padding has no keys: it
        is not fresh, and has the slot of the seat that no request has."""
        tables = batch.block_tables
        batch = replace(batch, block_tables=tables[:, :-1])
        lens = batch.query_start_loc.diff()
        states = self.worker.step_states(
            StateBatch(
                lens=batch.query_lens,
                starts=batch.query_start_loc,
                slots=tables[:, -1].long(),
                is_fresh=batch.seq_lens == lens,
            )
        )
        if batch.num_decodes is not None and self.worker.replays_drafts:
            states = self._unsettled(states, len(token_ids), batch.num_decodes)
        attend = attend_through(self.attention, self.attention.plan(batch))
        return self.adapter.forward(token_ids, batch.positions, AttendWithStates(attend, states))

    def _unsettled(self, states: StepStates, rows: int, num_decodes: int) -> StepStates:
        """States of which some may have to wait. The lengths of chunks are known on the device alone, so
        it is the size that counts: one with room for more tokens keeps nothing."""
        size = rows, num_decodes, len(states.batch.lens)
        number = self.sizes.setdefault(size, len(self.sizes))
        self.worker.replayed.fill_(number)
        if rows - num_decodes > MOST_REPLAYED:
            return states
        slots = states.batch.slots
        has_drafts = self.worker.has_drafts.index_select(0, slots)
        back = torch.where(has_drafts, slots, self.nobody)
        ops = self.unsettled[number] = UnsettledChunks(
            states.ops, self.worker.rollback, states.batch, back, num_decodes
        )
        return replace(states, ops=ops)
