"""Batches of the corpus: of one that is whole, or of shards that are written meanwhile."""

from collections import deque
from collections.abc import Iterator

import numpy as np
import torch

from book.tutor.corpus import Corpus, ShardStream

SHUFFLED_SHARDS = 6
"""Shards of a stream that are shuffled with each other."""
KEPT = 24
"""Shuffled groups that are kept, for when training is faster than writing."""

Batch = tuple[torch.Tensor, torch.Tensor]
"""`tokens` [size, 2048] int64 and `learn` [size, 2048] bool."""


def _batch(corpus: Corpus, chosen: np.ndarray) -> Batch:
    tokens = torch.from_numpy(corpus.tokens[chosen].astype(np.int64))
    return tokens, torch.from_numpy(corpus.learn[chosen])


def stream_batches(
    stream: ShardStream, size: int, shards: int = SHUFFLED_SHARDS
) -> Iterator[Batch]:
    """Batches without end, of new windows, or of earlier ones while the next are still being written."""
    rng = np.random.default_rng(0)
    seen: deque[Corpus] = deque(maxlen=KEPT)
    while True:
        if not seen or stream.has(shards):
            seen.append(stream.take(shards))
            corpus = seen[-1]
        else:
            corpus = seen[rng.integers(len(seen))]
        order = rng.permutation(len(corpus.tokens))
        # The windows of the last, smaller batch are left out.
        for start in range(0, len(order) - size + 1, size):
            yield _batch(corpus, order[start : start + size])


def batches(corpus: Corpus, size: int, steps: int, seed: int) -> Iterator[Batch]:
    """Batches for that many steps, reshuffled each epoch."""
    rng = np.random.default_rng(seed)
    order = np.empty(0, dtype=np.int64)
    for _ in range(steps):
        while len(order) < size:
            order = np.concatenate([order, rng.permutation(len(corpus.tokens))])
        chosen, order = order[:size], order[size:]
        yield _batch(corpus, chosen)
