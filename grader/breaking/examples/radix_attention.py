from typing import Any

import torch

from solutions.paged_cache import KVPool
from solutions.transformer_ops import TransformerOps
from yaie.core.batch import AttentionBatch, AttentionSpec, KVLayerSpec


def one_sequence(tokens: int) -> AttentionBatch:
    """A prompt of so many tokens, in blocks of 4 from block 1 on."""
    last = -(-tokens // 4)
    return AttentionBatch(
        query_lens=[tokens],
        kv_lens=[tokens],
        query_start_loc=torch.tensor([0, tokens], dtype=torch.int32),
        seq_lens=torch.tensor([tokens], dtype=torch.int32),
        block_tables=torch.arange(1, last + 1, dtype=torch.int32)[None],
        slot_mapping=torch.arange(4, 4 + tokens),
        positions=torch.arange(tokens),
    )


def attack_a_prompt(part: Any) -> Any:
    """Each token of a prompt of six attends to itself and those before it."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 6, 2, 8).unbind()
    pool = KVPool([KVLayerSpec(2, 8)], 8, 4, torch.float32, torch.device("cpu"))
    attention = part.RadixAttention(pool, TransformerOps())
    plan = attention.plan(one_sequence(6))
    return attention.run(0, q, k, v, AttentionSpec(scale=8**-0.5), plan)
