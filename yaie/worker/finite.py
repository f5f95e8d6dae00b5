"""Whether the states that a step stores keys and values of are finite."""

import numpy as np
import torch
from torch import Tensor

from yaie.core.step import StepInput
from yaie.worker.transfer import on_device


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
