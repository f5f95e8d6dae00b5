"""A step in its graphs, made by one method."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts.graphs import Device, Graph

from .inputs import idle
from .padded_step import PaddedStep


class Recording:
    """A PaddedStep in one graph or two."""

    def __init__(self, step: PaddedStep, device: Device, memory: Any, nobody: int) -> None:
        self._device, self._memory, self._step = device, memory, step
        self.inputs = step.inputs
        step.inputs.copy_(torch.from_numpy(idle(step.size, nobody)))
        for _ in range(2):
            hidden = step.forward()
            if not step.size.chunks:
                step.draw(hidden)
        model, hidden = self._recorded(step.forward)
        self._graphs = [model]
        if not step.size.chunks:
            sampler, self._tokens = self._recorded(lambda: step.draw(hidden))
            self._graphs.append(sampler)
        self._address = device.alias(hidden)

    def _recorded(self, work: Callable[[], Tensor]) -> tuple[Graph, Tensor]:
        graph = self._device.graph()
        with self._device.capture(graph, self._memory):
            result = work()
        return graph, result

    def forward(self) -> Tensor:
        self._graphs[0].replay()
        return self._address

    def draw(self, hidden: Tensor) -> Tensor:
        self._graphs[1].replay()
        return self._tokens
