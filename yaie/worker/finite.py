"""Whether the states that a step stores keys and values of are finite."""

import numpy as np
import torch
from torch import Tensor

from yaie.core.step import StepInput
from yaie.worker.transfer import on_device


def finite_chunks(hidden: Tensor, step: StepInput) -> Tensor:
    """Whether the states of each chunk are finite, [chunks] bool: of a step that has some. The sampler
    checks all other rows."""
    lens, samples = step.num_tokens, step.samples
    first = int(np.argmax((lens > 1) | ~samples))
    begin = int(lens[:first].sum())
    bad = ~hidden[begin:].sum(dim=1, dtype=torch.float32).isfinite()
    # How many bad rows stand before each border: their difference is a chunk's own.
    before = torch.nn.functional.pad(bad.cumsum(0), (1, 0))
    borders = np.concatenate(([0], np.cumsum(lens[first:])))
    counts = before[on_device(borders, hidden.device)].diff()
    return counts == 0
