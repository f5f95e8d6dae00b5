"""The warm-up is uploaded from pinned memory, and runs in a size's own order: all of it, twice."""

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
        self._step = step
        self.inputs = step.inputs
        draws = not step.size.chunks
        padding = torch.from_numpy(idle(step.size, nobody))
        upload = device.pinned(len(padding), dtype=torch.int32)
        upload.copy_(padding)
        step.inputs.copy_(upload, non_blocking=True)
        for _ in range(2):
            hidden = step.forward()
            if draws:
                step.draw(hidden)
        del hidden
        self._forward, self._draw = device.graph(), device.graph()
        with device.capture(self._forward, memory):
            hidden = step.forward()
        if draws:
            with device.capture(self._draw, memory):
                self._drawn = step.draw(hidden)
        self._hidden = device.alias(hidden)

    def forward(self) -> Tensor:
        """See PaddedStep; valid until another recording is replayed."""
        self._forward.replay()
        return self._hidden

    def draw(self, hidden: Tensor) -> Tensor:
        """See PaddedStep."""
        self._draw.replay()
        return self._drawn
