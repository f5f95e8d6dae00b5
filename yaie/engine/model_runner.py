"""Carries out a plan: moves blocks, flattens the batch, runs the model, returns the logits needed."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch, SamplingBatch, ScheduledRequest, StepPlan
from yaie.core.contracts import KVPool, RadixAttention
from yaie.core.request import Request
from yaie.engine.backends.attention import attend_through
from yaie.engine.block_table_mirror import BlockTableMirror
from yaie.engine.logprobs import lacks_prompt_logprobs, note_prompt_logprobs
from yaie.engine.sampling import SamplingBatchBuilder
from yaie.models.adapter import ModelAdapter


class ModelRunner:
    """See `yaie.core.contracts.ModelRunner`. max_num_seqs bounds a step's requests; max_model_len
    bounds a sequence."""

    def __init__(
        self,
        adapter: ModelAdapter,
        attention: RadixAttention,
        pool: KVPool,
        device: torch.device,
        max_num_seqs: int,
        max_model_len: int,
        on_plan: Callable[[StepPlan], None] | None = None,
    ) -> None:
        """`on_plan` is told of each plan before it is carried out."""
        self._on_plan = on_plan
        self._adapter = adapter
        self._attention = attention
        self._pool = pool
        self._device = device
        # Twice the seats: a batch that ended and the one that takes over, without re-copying.
        max_blocks = -(-max_model_len // pool.block_size)
        self._tables = BlockTableMirror(2 * max_num_seqs, max_blocks)
        self._sampling = SamplingBatchBuilder(adapter.vocab_size, device)

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> Tensor:
        """Logits [num_sampling, vocab] float32 of the scheduled requests that sample, in order."""
        if self._on_plan is not None:
            self._on_plan(plan)
        self._pool.swap_out(plan.swap_out)
        self._pool.swap_in(plan.swap_in)
        self._pool.copy_blocks(plan.copies)
        # Sequences that attention may treat alike stand side by side (decodes, chunks, whole prompts;
        # equal query lengths, then by length), so that its groups are slices and need no copies.
        order = sorted(range(len(plan.scheduled)), key=lambda i: _shape(plan.scheduled[i]))
        scheduled = [plan.scheduled[i] for i in order]
        batch = self._attention_batch(scheduled)
        attend = attend_through(self._attention, self._attention.plan(batch))
        token_ids = self._tensor(np.array(_token_ids(scheduled), dtype=np.int64))
        hidden = self._adapter.forward(token_ids, batch.positions, attend)
        self._note_prompt_logprobs(scheduled, hidden)
        ends = np.empty(len(order), dtype=np.int64)
        ends[order] = np.cumsum(batch.query_lens) - 1
        wanted = ends[[item.samples for item in plan.scheduled]]
        return self._adapter.logits(hidden[self._tensor(wanted)])

    def sampling_batch(self, requests: Sequence[Request]) -> SamplingBatch:
        """The sampling parameters of these requests as tensors on the device."""
        return self._sampling.build(requests)

    def _note_prompt_logprobs(self, scheduled: Sequence[ScheduledRequest], hidden: Tensor) -> None:
        start = 0
        for item in scheduled:
            if lacks_prompt_logprobs(item):
                states = hidden[start : start + item.num_tokens]
                note_prompt_logprobs(item, states, self._adapter.logits)
            start += item.num_tokens

    def _attention_batch(self, scheduled: Sequence[ScheduledRequest]) -> AttentionBatch:
        query_lens = [item.num_tokens for item in scheduled]
        kv_lens = [item.start + item.num_tokens for item in scheduled]
        width = -(-max(kv_lens) // self._pool.block_size)
        starts = np.concatenate(([0], np.cumsum(query_lens)))
        # Token t of the flat batch belongs to a sequence whose position 0 would be at t - offset.
        offsets = np.repeat(starts[1:] - kv_lens, query_lens)
        slots = [slot for item in scheduled for slot in item.slots]
        return AttentionBatch(
            query_lens=query_lens,
            kv_lens=kv_lens,
            query_start_loc=self._tensor(starts.astype(np.int32)),
            seq_lens=self._tensor(np.array(kv_lens, dtype=np.int32)),
            block_tables=self._tensor(self._tables.rows(scheduled, width)),
            slot_mapping=self._tensor(np.array(slots, dtype=np.int64)),
            positions=self._tensor(np.arange(len(offsets)) - offsets),
        )

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device, non_blocking=True)


def _shape(item: ScheduledRequest) -> tuple[bool, int, int]:
    """Whole prompts last; by number of queries; among those, the longest sequence first."""
    return item.start == 0 and item.num_tokens > 1, item.num_tokens, -item.start


def _token_ids(scheduled: Sequence[ScheduledRequest]) -> list[int]:
    """The tokens that the step computes, flat."""
    return [
        token
        for item in scheduled
        for token in item.request.token_ids[item.start : item.start + item.num_tokens]
    ]
