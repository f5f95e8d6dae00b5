"""What padded steps run on: a worker's model, sampler and batch, as lab 17 sees them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch
from yaie.core.contracts import BatchAttention, KVPool, Sampler
from yaie.core.step import Ints, StepInput
from yaie.models.adapter import ModelAdapter
from yaie.worker.input_batch import InputBatch
from yaie.worker.layout import attend_through, sent_tokens


@dataclass(frozen=True, slots=True)
class PaddedMachine:
    """See `yaie.core.contracts.graphs.StepMachine`, and `Worker`. max_model_len: a bound on the keys of
    every sequence."""

    adapter: ModelAdapter
    attention: BatchAttention
    pool: KVPool
    sampler: Sampler
    split_sampler: Sampler | None
    batch: InputBatch
    max_model_len: int
    device: torch.device

    @property
    def nobody(self) -> int:
        """See the contract."""
        return self.batch.nobody

    @property
    def tables(self) -> Tensor:
        """See the contract."""
        return self.batch.tables

    @property
    def last_tokens(self) -> Tensor:
        """See the contract."""
        return self.batch.last_tokens

    @property
    def num_known(self) -> Ints:
        """See the contract."""
        return self.batch.num_known

    def slots(self, step: StepInput) -> Ints:
        """See the contract."""
        seats = step.seats
        if len(positions := step.positions) > len(seats):
            seats = seats.repeat(step.num_tokens)
        return self.batch.slots(seats, positions, self.pool.block_size)

    def token_ids(self, step: StepInput) -> Ints:
        """See the contract."""
        begins = np.cumsum(step.num_tokens, dtype=np.int32) - step.num_tokens
        token_ids, is_drawn = sent_tokens(step, self.batch, begins)
        token_ids[begins[is_drawn]] = ~step.seats[is_drawn]
        return token_ids

    def extend_tables(self, step: StepInput) -> None:
        """See the contract."""
        self.batch.extend_tables(step)

    def hidden(self, token_ids: Tensor, batch: AttentionBatch) -> Tensor:
        """See the contract."""
        attend = attend_through(self.attention, self.attention.plan(batch))
        return self.adapter.forward(token_ids, batch.positions, attend)

    def logits(self, hidden: Tensor) -> Tensor:
        """See the contract."""
        if self.split_sampler is not None:
            return self.adapter.local_logits(hidden)
        return self.adapter.logits(hidden)

    def sample(self, logits: Tensor, seats: Tensor) -> Tensor:
        """See the contract. By each seat's temperature and seed alone: no flag tells who is there."""
        sampler = self.split_sampler or self.sampler
        return sampler.sample(logits, self.batch.plain_batch(seats))

    def count_draws(self, seats: Tensor) -> None:
        """See the contract."""
        self.batch.count_draws(seats)
