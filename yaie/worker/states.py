"""A worker of a model whose layers keep a state: one slot of fixed size a sequence, beside the blocks.

A request's slot has the number of its seat, and it has a seat for as long as it runs: so nothing gives
these out. What a slot holds of a request before is never read, because a sequence that begins at its
first token counts as fresh, whoever had the seat, and a step that was still in flight for that request
has been carried out by then. Rows of padding have the slot of the seat that no request has. Behind them
are slots for copies, which control gives out (`yaie.engine.states`).

Keys and values may be computed twice, at the same place; a state may not, since the second time it
would begin from the state after these tokens.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from yaie.backends.attention import attend_through
from yaie.core.batch import AttentionBatch, AttentionSpec, Rotation
from yaie.core.contracts import Attend
from yaie.core.contracts.states import StateBatch, StateLayerSpec, StateOps, StepStates
from yaie.core.step import Arrays, Ints, StepInput
from yaie.models.adapter import ModelAdapter
from yaie.system.lazy_zeros import zeros
from yaie.worker.layout import lay_out
from yaie.worker.transfer import on_device, to_device
from yaie.worker.worker import Worker


class StatePool:
    """The states of all sequences.

    layers: for each layer that keeps some, its tensors [num_slots, *shape].
    """

    def __init__(
        self, layers: Sequence[StateLayerSpec], num_slots: int, device: torch.device
    ) -> None:
        self._device = device
        self.layers: list[list[Tensor]] = [
            [zeros((num_slots, *one.shape), one.dtype, device) for one in layer] for layer in layers
        ]

    def copy(self, sources: Ints, targets: Ints) -> None:
        """Slots [n] to other slots [n], of which no two are alike."""
        if len(sources):
            (), (there, here) = to_device((), (targets, sources), self._device)
            for layer in self.layers:
                for one in layer:
                    one.index_copy_(0, there, one.index_select(0, here))


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
    """See Worker."""

    computes_again: ClassVar[bool] = False

    def __init__(
        self,
        adapter: ModelAdapter,
        *parts: Any,
        state_ops: StateOps,
        num_checkpoints: int = 0,
        **settings: Any,
    ) -> None:
        """state_ops: what computes the layers with a state. num_checkpoints: slots behind those of the
        seats."""
        super().__init__(adapter, *parts, **settings)
        self._ops = state_ops
        num_slots = self.batch.nobody + 1 + num_checkpoints
        self.states = StatePool(adapter.state_layers, num_slots, self.device)

    def forward(self, step: StepInput) -> Tensor:
        """See Worker."""
        self.batch.extend_tables(step)
        token_ids, batch = lay_out(step, self.batch, self.pool)
        states = StepStates(self._ops, self.states.layers, self._state_batch(step, batch))
        attend = attend_through(self.attention, self.attention.plan(batch))
        self.before_forward()
        moves = step.extras.get("states")
        if moves is not None:
            self._copy(step, moves, "resumed")
        hidden = self.adapter.forward(token_ids, batch.positions, AttendWithStates(attend, states))
        if moves is not None:
            self._copy(step, moves, "kept")
        return hidden

    def _copy(self, step: StepInput, moves: Arrays, which: Literal["resumed", "kept"]) -> None:
        """From checkpoints to seats, or from seats to checkpoints; see `yaie.engine.states`."""
        slots = moves[which]
        rows = slots >= 0
        seats, slots = step.seats[moves["rows"][rows]], slots[rows]
        self.states.copy(*((slots, seats) if which == "resumed" else (seats, slots)))

    def _state_batch(self, step: StepInput, batch: AttentionBatch) -> StateBatch:
        return StateBatch(
            lens=batch.query_lens,
            starts=batch.query_start_loc,
            slots=on_device(step.seats.astype(np.int64), self.device),
            is_fresh=on_device(step.starts == 0, self.device),
        )
