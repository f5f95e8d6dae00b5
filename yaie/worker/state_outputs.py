"""What a step returns of the model's states [T, hidden] besides sampled tokens.

ends: [n] int32, where the tokens of each row of the step end in the flat batch.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from yaie.core.request import TokenLogprob
from yaie.core.step import Ints, StepInput
from yaie.worker.logprobs import prompt_logprobs
from yaie.worker.transfer import on_device

if TYPE_CHECKING:
    from yaie.worker.worker import Worker


def finite_chunks(hidden: Tensor, step: StepInput) -> Tensor | None:
    """Whether the states of each chunk are finite, [chunks] bool; the sampler checks all other rows.
    None if there are no chunks."""
    lens, samples = step.num_tokens, step.samples
    if lens[-1] == 1 and samples.all():  # single tokens come first, so there is nothing else
        return None
    first = int(np.argmax((lens > 1) | ~samples))
    begin = int(lens[:first].sum())
    bad = ~hidden[begin:].sum(dim=1, dtype=torch.float32).isfinite()
    # How many bad rows stand before each border: their difference is a chunk's own.
    before = torch.nn.functional.pad(bad.cumsum(0), (1, 0))
    borders = np.concatenate(([0], np.cumsum(lens[first:])))
    counts = before[on_device(borders, hidden.device)].diff()
    return counts == 0


def logprobs_of_prompts(
    hidden: Tensor, step: StepInput, ends: Ints, worker: "Worker"
) -> dict[int, list[TokenLogprob]]:
    """By row, the log-probabilities of the prompt tokens behind those that this step computes."""
    found = {}
    for row in step.prompt_logprobs.tolist():
        seat, start, count = (int(part[row]) for part in (step.seats, step.starts, step.num_tokens))
        known = min(start + count + 1, int(worker.seats.num_prompt[seat]))
        told = worker.seats.known_tokens(seat, start + 1, known)
        states = hidden[ends[row] - count :][: len(told)]
        num_top = int(worker.sampling.prompt_logprobs[seat])
        found[row] = prompt_logprobs(states, told, num_top, worker.adapter.logits)
    return found


def pooled_sums(hidden: Tensor, step: StepInput, ends: Ints) -> Tensor | None:
    """The sums of the pooled rows' states, [q, hidden] float32; None if none are asked for."""
    asked = step.pooled.tolist()
    if not asked:
        return None
    begins = [int(ends[row] - step.num_tokens[row]) + first for row, first in asked]
    parts = [hidden[at : ends[row]] for at, (row, _) in zip(begins, asked, strict=True)]
    return torch.stack([part.sum(dim=0, dtype=torch.float32) for part in parts])
