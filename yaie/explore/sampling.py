"""The sampling parameters of requests as a sampler is given them, for a look at a sampler alone."""

from collections.abc import Sequence

import numpy as np
import torch

from yaie.core.batch import SamplingBatch
from yaie.core.request import Request
from yaie.engine.step.new_seats import new_seats
from yaie.worker.sampling import SamplingState


def sampling_batch(
    requests: Sequence[Request], vocab_size: int, device: torch.device | None = None
) -> SamplingBatch:
    """A row for each of the requests, at the step where each stands now."""
    seats = np.arange(len(requests), dtype=np.int32)
    state = SamplingState(len(requests), vocab_size, device or torch.device("cpu"))
    state.enter(new_seats(requests, seats, vocab_size))
    return state.rows(seats).batch
