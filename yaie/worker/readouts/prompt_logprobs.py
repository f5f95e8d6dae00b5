"""Log-probabilities of the prompt tokens behind those that a step computes."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.step import Ints, StepResult
from yaie.worker.readouts.base import Computed, Readout
from yaie.worker.readouts.token_logprobs import arrays, table
from yaie.worker.transfer import on_device

MOST_ROWS = 128
"""Prompt positions whose logits are in memory at once: 64 MiB in a vocabulary of 128 thousand."""


class PromptLogprobs(Readout):
    """asked: `num_top` [p] int32, how many of the most likely tokens to tell, beside `rows`. told: see
    `yaie.core.told`, with ranks."""

    def __init__(self, computed: Computed) -> None:
        step, batch, hidden = computed.step, computed.batch, computed.hidden
        asked = computed.asked("prompt_logprobs")
        widest = int(asked["num_top"].max())
        rows, num_top, tables = [], [], []
        for row, most in zip(asked["rows"].tolist(), asked["num_top"].tolist(), strict=True):
            seat, start, count = (int(x[row]) for x in (step.seats, step.starts, step.num_tokens))
            known = min(start + count + 1, int(batch.num_prompt[seat]))
            tokens = batch.known_tokens(seat, start + 1, known)
            states = hidden[computed.ends[row] - count :][: len(tokens)]
            tables += self._tables(computed, states, tokens, widest)
            rows += [row] * len(tokens)
            num_top += [most] * len(tokens)
        self._rows, self._num_top = (np.array(x, np.int32) for x in (rows, num_top))
        self._told = computed.to_host(torch.cat(tables)) if tables else None

    def _tables(self, computed: Computed, states: Tensor, tokens: Ints, most: int) -> list[Tensor]:
        """Of tokens [m], each of which follows one of the states [m, hidden]."""
        made = []
        for start in range(0, len(tokens), MOST_ROWS):
            logits = computed.head(states[start : start + MOST_ROWS])
            ids = on_device(tokens[start : start + MOST_ROWS].astype(np.int64), logits.device)
            made.append(table(logits, ids, most, with_rank=True))
        return made

    def collect(self, result: StepResult) -> None:
        if self._told is not None:
            told: NDArray[np.float64] = self._told.get().numpy()
            result.extras["prompt_logprobs"] = arrays(self._rows, told, self._num_top)
