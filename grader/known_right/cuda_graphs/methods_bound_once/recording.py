"""What a recording replays is kept as functions."""

from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts.graphs import Device

from .inputs import idle
from .padded_step import PaddedStep


class Recording:
    """A PaddedStep in graphs. Replays read and write the memory that recording it used."""

    def __init__(self, step: PaddedStep, device: Device, memory: Any, nobody: int) -> None:
        """memory: the pool that all recordings share, since only one of them runs at a time. nobody: the
        seat of padding. Raises whatever the step does.

        No seat moves. One graph is recorded for `forward`; another one for `draw`, which a step with
        chunks does not have. Cost: memory from this pool alone, of which the next recording may use all
        that `draw` does not return.
        """
        self.inputs = step.inputs
        step.inputs.copy_(torch.from_numpy(idle(step.size, nobody)))
        steps = [step.forward] if step.size.chunks else [step.forward, lambda: step.draw(made[0])]
        made: list[Tensor] = []
        made.append(step.forward())
        if not step.size.chunks:
            step.draw(made[0])
        made.clear()
        graphs = [device.graph() for _ in steps]
        for graph, work in zip(graphs, steps, strict=True):
            with device.capture(graph, memory):
                made.append(work())
        made[0] = device.alias(made[0])

        def replay(number: int) -> Tensor:
            graphs[number].replay()
            return made[number]

        self._replay = replay

    def forward(self) -> Tensor:
        return self._replay(0)

    def draw(self, hidden: Tensor) -> Tensor:
        return self._replay(1)
