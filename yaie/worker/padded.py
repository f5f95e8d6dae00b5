"""What padded steps run on: a worker's model, sampler and batch, as lab 17 sees them."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, SamplingBatch
from yaie.core.contracts import BatchAttention, KVPool, Sampler
from yaie.core.step import Ints, StepInput
from yaie.models.adapter import ModelAdapter
from yaie.worker.input_batch import InputBatch
from yaie.worker.layout import attend_through, sent_tokens


@dataclass(slots=True, eq=False)
class PaddedMachine:
    """See `yaie.core.contracts.graphs.StepMachine`, and `Worker`. max_model_len: a bound on the keys of
    every sequence. zeros, ones, int_zeros: [seats], filters that are off."""

    adapter: ModelAdapter
    attention: BatchAttention
    pool: KVPool
    sampler: Sampler
    split_sampler: Sampler | None
    batch: InputBatch
    max_model_len: int
    device: torch.device
    zeros: Tensor = field(init=False)
    ones: Tensor = field(init=False)
    int_zeros: Tensor = field(init=False)

    def __post_init__(self) -> None:
        count = self.batch.nobody + 1
        self.zeros = torch.zeros(count, device=self.device)
        self.ones = torch.ones(count, device=self.device)
        self.int_zeros = torch.zeros(count, dtype=torch.int64, device=self.device)

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
        columns, offsets = np.divmod(positions, self.pool.block_size)
        slots: Ints = self.batch.host_tables[seats, columns] * self.pool.block_size + offsets
        return slots

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
        n, sampler = len(seats), self.split_sampler or self.sampler
        _, seeds, steps = self.batch.ints.index_select(1, seats)
        batch = SamplingBatch(
            temperature=self.batch.floats[0].index_select(0, seats),
            top_k=self.int_zeros[:n],
            top_p=self.ones[:n],
            min_p=self.zeros[:n],
            seeds=seeds,
            steps=steps,
            all_greedy=False,
            any_top_k=False,
            any_top_p=False,
            any_min_p=False,
        )
        return sampler.sample(logits, batch)

    def count_draws(self, seats: Tensor) -> None:
        """See the contract."""
        self.batch.count_draws(seats)
