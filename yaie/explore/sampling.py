"""The sampling parameters of requests as a sampler is given them, for a look at a sampler alone."""

from collections.abc import Sequence

import numpy as np
import torch

from yaie.core.batch import SamplingBatch
from yaie.core.request import Request
from yaie.engine.asks.base import Vocabulary
from yaie.engine.step.encoder import new_seats
from yaie.worker.input_batch import InputBatch


def sampling_batch(
    requests: Sequence[Request], vocab_size: int, device: torch.device | None = None
) -> SamplingBatch:
    """A row for each of the requests, at the step where each stands now."""
    seats = np.arange(len(requests), dtype=np.int32)
    device = device or torch.device("cpu")
    batch = InputBatch(len(requests), 1, vocab_size, device)
    batch.enter(new_seats(requests, seats, Vocabulary(vocab_size)))
    rows = batch.rows(seats)
    if "penalties" in batch.rules:
        batch.rules["penalties"].apply(torch.empty(0, device=device), rows)
    return rows.batch
