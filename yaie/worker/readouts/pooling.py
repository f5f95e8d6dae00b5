"""Sums of states: what embeddings are made of."""

import torch

from yaie.core.step import StepResult
from yaie.worker.readouts.base import Computed, Readout


class Pooling(Readout):
    """asked: `firsts` [q] int32, beside `rows`: each row's states are summed from that one of its
    computed tokens on. told: `sums` [q, hidden] float32, beside `rows`."""

    def __init__(self, computed: Computed) -> None:
        step, hidden = computed.step, computed.hidden
        asked = computed.asked("pooling")
        self._rows = asked["rows"]
        ends = computed.ends[self._rows]
        begins = ends - step.num_tokens[self._rows] + asked["firsts"]
        parts = [hidden[begin:end] for begin, end in zip(begins, ends, strict=True)]
        sums = torch.stack([part.sum(dim=0, dtype=torch.float32) for part in parts])
        self._sums = computed.to_host(sums)

    def collect(self, result: StepResult) -> None:
        sums = self._sums.get().numpy().copy()
        result.extras["pooling"] = {"rows": self._rows, "sums": sums}
