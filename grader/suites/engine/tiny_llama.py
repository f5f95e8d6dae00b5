"""A Llama of a few thousand random weights on the reference's parts, and what it says without any cache.

The judge is the model itself, run over the whole sequence anew for each token. That the model is a
Llama as transformers has it, the project's own tests show.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from solutions.engine import Detokenizer, StopChecker
from solutions.paged_cache import BlockManager, KVCacheManager, KVPool
from solutions.radix_attention import RadixAttention
from solutions.radix_tree import RadixTree
from solutions.scheduler import POLICIES, Scheduler
from solutions.transformer_ops import TransformerOps
from yaie.core.batch import AttentionBatch, AttentionSpec, Rotation, StepOutcome, StepPlan
from yaie.models.llama import LlamaAdapter
from yaie.models.naive_kv import ContiguousKV

VOCAB = 64
LONGEST = 64
BLOCK_SIZE = 4
CPU = torch.device("cpu")
CONFIG = SimpleNamespace(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=VOCAB,
    rms_norm_eps=1e-5,
    rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    attention_bias=False,
    mlp_bias=False,
    tie_word_embeddings=False,
)


def tiny_llama(seed: int) -> LlamaAdapter:
    """Weights spread widely, so that the best token leads by more than rounding."""
    adapter = LlamaAdapter(CONFIG, TransformerOps(), torch.float32, CPU, LONGEST)
    generator = torch.Generator().manual_seed(seed)
    adapter.load_weights(
        (
            name,
            torch.randn(place.shape, generator=generator) * (0.5 if len(place.shape) > 1 else 1.0),
        )
        for name, place in adapter.destinations().items()
    )
    return adapter


@torch.inference_mode()
def greedy(model: LlamaAdapter, prompt: Sequence[int], count: int) -> list[int]:
    """Every token from the whole sequence before it."""
    token_ids = list(prompt)
    for _ in range(count):
        length = len(token_ids)
        attend = ContiguousKV().attend([("all", length)])
        hidden = model.forward(torch.tensor(token_ids), torch.arange(length), attend)
        token_ids.append(int(model.logits(hidden[-1:]).argmax()))
    return token_ids[len(prompt) :]


def core_with(kind: Callable[..., Any], model: LlamaAdapter, num_blocks: int) -> Any:
    """A core on a small pool with a small budget: prompts come in chunks, and one is preempted."""
    blocks = BlockManager(num_blocks, BLOCK_SIZE, 0)
    cache = KVCacheManager(blocks, RadixTree(BLOCK_SIZE))
    scheduler = Scheduler(cache, POLICIES["fcfs"](cache), max_num_seqs=3, token_budget=8)
    pool = KVPool(model.kv_layers, num_blocks, BLOCK_SIZE, torch.float32, CPU, 0)
    return kind(
        scheduler,
        LlamaExecutor(model, pool),
        lambda: Detokenizer(lambda ids: " ".join(map(str, ids))),
        StopChecker,
        set(),
    )


class LlamaExecutor:
    """Carries out a plan at once, on the reference's pool and attention. Greedy."""

    def __init__(self, model: LlamaAdapter, pool: KVPool) -> None:
        self._model = model
        self._pool = pool
        self._attention = RadixAttention(pool, model.ops)

    def execute(self, plan: StepPlan) -> "LlamaStep":
        return LlamaStep(self._compute(plan))

    @torch.inference_mode()
    def _compute(self, plan: StepPlan) -> StepOutcome:
        self._pool.copy_blocks(plan.copies)
        if not plan.scheduled:
            return StepOutcome()
        batch = self._batch(plan)
        shared = self._attention.plan(batch)

        def attend(
            layer: int,
            q: Tensor,
            k: Tensor,
            v: Tensor,
            spec: AttentionSpec,
            rotation: Rotation | None = None,
        ) -> Tensor:
            if rotation is not None:
                q, k = rotation.apply(q, k)
            return self._attention.run(layer, q, k, v, spec, shared)

        tokens = [
            token
            for item in plan.scheduled
            for token in item.request.token_ids[item.start : item.start + item.num_tokens]
        ]
        hidden = self._model.forward(torch.tensor(tokens), batch.positions, attend)
        samples = torch.tensor([item.samples for item in plan.scheduled])
        last = batch.query_start_loc[1:][samples].long() - 1
        drawn = self._model.logits(hidden[last]).argmax(dim=-1)
        return StepOutcome([[int(token)] for token in drawn])

    def _batch(self, plan: StepPlan) -> AttentionBatch:
        query_lens = [item.num_tokens for item in plan.scheduled]
        kv_lens = [item.start + item.num_tokens for item in plan.scheduled]
        rows = torch.repeat_interleave(torch.tensor(query_lens))
        positions = torch.cat(
            [torch.arange(end - count, end) for end, count in zip(kv_lens, query_lens, strict=True)]
        )
        width = max(len(item.block_table) for item in plan.scheduled)
        tables = torch.tensor(
            [item.block_table + [0] * (width - len(item.block_table)) for item in plan.scheduled],
            dtype=torch.int32,
        )
        starts = torch.tensor([0, *query_lens], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        return AttentionBatch(
            query_lens=query_lens,
            kv_lens=kv_lens,
            query_start_loc=starts,
            seq_lens=torch.tensor(kv_lens, dtype=torch.int32),
            block_tables=tables,
            slot_mapping=self._pool.slot_mapping(tables, rows, positions),
            positions=positions,
        )


@dataclass(frozen=True, slots=True)
class LlamaStep:
    """A plan that was carried out."""

    outcome: StepOutcome

    def result(self) -> StepOutcome:
        return self.outcome
