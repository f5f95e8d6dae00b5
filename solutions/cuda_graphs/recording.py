"""A step as CUDA graphs: one up to the hidden states, and without chunks one more, which samples.

A step that needs more than a sample (a grammar's mask, penalties, log-probabilities) replays the first,
and samples one call at a time. So does every step with chunks: any of its rows may be sampled from.
"""

from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts.graphs import Device

from .inputs import idle
from .padded_step import PaddedStep


class Recording:
    """A PaddedStep in graphs. Replays read and write the memory that recording it used."""

    # ANCHOR: record
    def __init__(self, step: PaddedStep, device: Device, memory: Any, nobody: int) -> None:
        """memory: the pool that all recordings share, since only one of them runs at a time. nobody: the
        seat of padding. Raises whatever the step does.

        No seat moves. One graph is recorded for `forward`; another one for `draw`, which a step with
        chunks does not have. Cost: memory from this pool alone, of which the next recording may use all
        that `draw` does not return.
        """
        self._step = step
        self.inputs = step.inputs
        # BEGIN SOLUTION 17.4
        draws = not step.size.chunks
        step.inputs.copy_(torch.from_numpy(idle(step.size, nobody)))
        hidden = step.forward()
        if draws:
            step.draw(hidden)
        self._forward, self._draw = device.graph(), device.graph()
        with device.capture(self._forward, memory):
            hidden = step.forward()
        if draws:
            with device.capture(self._draw, memory):
                self._drawn = step.draw(hidden)
        self._hidden = device.alias(hidden)
        # END SOLUTION

    # ANCHOR_END: record

    # ANCHOR: replay
    def forward(self) -> Tensor:
        """See PaddedStep; valid until another recording is replayed."""
        # BEGIN SOLUTION 17.4
        self._forward.replay()
        return self._hidden
        # END SOLUTION

    def draw(self, hidden: Tensor) -> Tensor:
        """See PaddedStep."""
        # BEGIN SOLUTION 17.4
        self._draw.replay()
        return self._drawn
        # END SOLUTION

    # ANCHOR_END: replay
