"""A decode step in two graphs, made by one method."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts.graphs import Device, Graph

from .inputs import idle
from .padded_step import PaddedStep


class Recording:
    """A PaddedStep in two graphs."""

    def __init__(self, step: PaddedStep, device: Device, memory: Any, nobody: int) -> None:
        self._device, self._memory, self._step = device, memory, step
        self.inputs = step.inputs
        step.inputs.copy_(torch.from_numpy(idle(step.size, nobody)))
        for _ in range(2):
            step.draw(step.forward())
        model, logits = self._recorded(step.forward)
        sampler, self._tokens = self._recorded(lambda: step.draw(logits))
        self._graphs = (model, sampler)
        self._address = device.alias(logits)

    def _recorded(self, work: Callable[[], Tensor]) -> tuple[Graph, Tensor]:
        graph = self._device.graph()
        with self._device.capture(graph, self._memory):
            result = work()
        return graph, result

    def forward(self) -> Tensor:
        self._graphs[0].replay()
        return self._address

    def draw(self, logits: Tensor) -> Tensor:
        self._graphs[1].replay()
        return self._tokens
