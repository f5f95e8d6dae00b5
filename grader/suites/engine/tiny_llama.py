"""A Llama of a few thousand random weights on the reference's parts, and what it says without any cache.

The judge is the model itself, run over the whole sequence anew for each token. That the model is a
Llama as transformers has it, the project's own tests show.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from solutions.engine import Detokenizer, StopChecker
from solutions.paged_cache import BlockManager, KVCacheManager, KVPool
from solutions.radix_attention import RadixAttention
from solutions.radix_tree import RadixTree
from solutions.sampler import Sampler
from solutions.scheduler import POLICIES, Scheduler
from solutions.transformer_ops import TransformerOps
from yaie.models.contiguous import ContiguousKV
from yaie.models.llama import LlamaAdapter

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
        (name, torch.randn(slot.shape, generator=generator) * (0.5 if len(slot.shape) > 1 else 1.0))
        for name, slot in adapter.slots().items()
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
    """A core on a small pool with a small budget: prompts come in chunks, and somebody is preempted."""
    from yaie.engine.model_runner import ModelRunner

    blocks = BlockManager(num_blocks, BLOCK_SIZE, 0)
    cache = KVCacheManager(blocks, RadixTree(BLOCK_SIZE))
    scheduler = Scheduler(cache, POLICIES["fcfs"](cache), max_num_seqs=3, token_budget=8)
    pool = KVPool(model.kv_layers, num_blocks, BLOCK_SIZE, torch.float32, CPU, 0)
    attention = RadixAttention(pool, model.ops)
    runner = ModelRunner(model, attention, pool, CPU, max_num_seqs=3, max_model_len=LONGEST)
    return kind(
        scheduler,
        runner,
        Sampler(),
        lambda: Detokenizer(lambda ids: " ".join(map(str, ids))),
        StopChecker,
        set(),
    )
