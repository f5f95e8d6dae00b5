"""A worker of a model whose layers keep a state: one slot of fixed size a sequence, beside the blocks.

A request's slot has the number of its seat, and it has a seat for as long as it runs: so nothing gives
these out. What a slot holds of a request before is never read, because a sequence that begins at its
first token counts as fresh, whoever had the seat, and a step that was still in flight for that request
has been carried out by then. Rows of padding have the slot of the seat that no request has. Behind them
are slots for copies, which control gives out (`yaie.engine.states`).

Keys and values may be computed twice, at the same place; a state may not, since the second time it
would begin from the state after these tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from yaie.backends.attend import attend_through
from yaie.core.batch import AttentionBatch, AttentionSpec, Rotation
from yaie.core.contracts import Attend
from yaie.core.contracts.graphs import GraphRunner
from yaie.core.contracts.states import StateBatch, StateOps, StatePool, StepStates
from yaie.core.step import Ints, StepInput
from yaie.models.adapter import ModelAdapter
from yaie.worker.layout import lay_out
from yaie.worker.padded import PaddedMachine
from yaie.worker.row_order import RowOrder
from yaie.worker.transfer import on_device, to_device
from yaie.worker.worker import Begun, Worker


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
        return self._attend(layer, q, k, v, spec, rotation)


class StatefulWorker(Worker):
    """See Worker. The tables of its batch have one column more, in which each seat has its number."""

    computes_again: ClassVar[bool] = False

    def __init__(
        self,
        adapter: ModelAdapter,
        *parts: Any,
        state_ops: StateOps,
        make_pool: Callable[..., StatePool],
        num_checkpoints: int = 0,
        **settings: Any,
    ) -> None:
        """state_ops: what computes the layers with a state. make_pool: the pool of lab 22.
        num_checkpoints: slots behind those of the seats."""
        super().__init__(adapter, *parts, **settings)
        self._ops = state_ops
        tables = self.batch.tables
        seats = torch.arange(len(tables), dtype=tables.dtype, device=tables.device)
        self.batch.tables = torch.cat([tables, seats[:, None]], dim=1)
        num_slots = len(tables) + num_checkpoints
        self.states = make_pool(adapter.state_layers, num_slots, self.device)

    def step_states(self, batch: StateBatch) -> StepStates:
        """What the layers with a state are given for these sequences."""
        return StepStates(self._ops, self.states.layers, batch)

    def forward(self, step: StepInput) -> Tensor:
        """See Worker."""
        self.batch.extend_tables(step)
        token_ids, batch = lay_out(step, self.batch, self.pool)
        states = self.step_states(self._state_batch(step, batch))
        attend = attend_through(self.attention, self.attention.plan(batch))
        self.before_forward()
        self._resume(step)
        hidden = self.adapter.forward(token_ids, batch.positions, AttendWithStates(attend, states))
        self._keep(step)
        return hidden

    def _replay(self, step: StepInput, runner: GraphRunner) -> tuple[Begun, RowOrder | None]:
        """See Worker."""
        self._resume(step)
        begun = super()._replay(step, runner)
        self._keep(step)
        return begun

    def padded_machine(self) -> PaddedMachine:
        """See Worker."""
        plain = super().padded_machine()
        parts = {one.name: getattr(plain, one.name) for one in fields(plain)}
        return StatefulMachine(**parts, worker=self)

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


@dataclass(frozen=True, slots=True)
class StatefulMachine(PaddedMachine):
    """See PaddedMachine. worker: whose states these are."""

    worker: StatefulWorker

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
        attend = attend_through(self.attention, self.attention.plan(batch))
        return self.adapter.forward(token_ids, batch.positions, AttendWithStates(attend, states))
