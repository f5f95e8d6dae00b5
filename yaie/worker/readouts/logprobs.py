"""Log-probabilities of the tokens that a step draws."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.contracts.graphs import ToHost
from yaie.core.step import Ints, StepResult
from yaie.worker.readouts.base import Computed, Readout
from yaie.worker.readouts.token_logprobs import arrays, table
from yaie.worker.rows import Rows
from yaie.worker.transfer import on_device


class Logprobs(Readout):
    """asked: `num_top` [p] int32, how many of the most likely tokens to tell, and `named` [p, k] int32
    with `num_named` [p] int32, tokens to tell in their place, beside `rows`, which draw. told: see
    `yaie.core.told`."""

    def __init__(self, computed: Computed) -> None:
        self._step, self._to_host = computed.step, computed.to_host
        asked = computed.asked("logprobs")
        self._asked = asked["rows"]
        self._num_top: Ints = asked["num_top"]
        self._named = [
            own[:count].tolist()
            for own, count in zip(asked["named"], asked["num_named"], strict=True)
        ]
        self._told: ToHost | None = None

    def see(self, logits: Tensor, rows: Rows) -> None:
        """Copy what is asked for: the rules change these logits."""
        step = self._step
        counts = step.num_drafts + 1 if rows.drafts is not None else np.ones(len(step.seats), int)
        ends = np.cumsum(counts * step.samples)
        self._counts = counts[self._asked]
        begins = ends[self._asked] - self._counts
        draws = [np.arange(at, at + n) for at, n in zip(begins, self._counts, strict=True)]
        self._index = on_device(np.concatenate(draws), logits.device)
        self._raw: Tensor | None = logits[self._index]

    def drew(self, token_ids: Tensor) -> None:
        assert self._raw is not None
        named = [own for own, count in zip(self._named, self._counts, strict=True)
                 for _ in range(count)]  # fmt: skip
        most = int(self._num_top.max())
        self._told = self._to_host(table(self._raw, token_ids[self._index], most, named))
        self._raw = None

    def collect(self, result: StepResult) -> None:
        """Of a seat with drafts those of the tokens that it gained."""
        if self._told is None:
            return
        told: NDArray[np.float64] = self._told.get().numpy()
        position = np.cumsum(self._step.samples) - 1
        gained = [len(result.token_ids[position[row]]) for row in self._asked]
        begins = np.cumsum(self._counts) - self._counts
        kept = [np.arange(at, at + n) for at, n in zip(begins, gained, strict=True)]
        named = [own for own, n in zip(self._named, gained, strict=True) for _ in range(n)]
        result.extras["logprobs"] = arrays(
            np.repeat(self._asked, gained),
            told[np.concatenate(kept)],
            np.repeat(self._num_top, gained),
            named if any(named) else (),
        )
