"""Qwen3.5 (2026), dense: a gated delta rule in three of four layers, gated attention in the fourth."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts import Attend, TransformerOps
from yaie.core.contracts.states import StateTensor, StepStates
from yaie.models.adapter import register
from yaie.models.hybrid import (
    AttentionNames,
    HybridAdapter,
    HybridAttention,
    LayerNames,
    Mixer,
    held_part,
    joined,
)
from yaie.models.layout import Destination, Stored, held, stacked, whole
from yaie.models.rope import rope_tables
from yaie.models.stated import Stated
from yaie.models.whole import Whole

KINDS = {"linear_attention", "full_attention"}
PART = "linear_attn"
HEAD = "mtp."
"""What the names of a head for drafts begin with, in a checkpoint of any form (`qwen3_5_mtp`)."""


class GatedDeltaNet:
    """Gated DeltaNet (Yang et al. 2024): each head keeps a matrix that a query reads, and in which a key
    writes over what it finds. Queries, keys and values come from a short convolution.

    It keeps the last inputs of the convolution, and a matrix [d_k, d_v] of each head of values.
    """

    def __init__(self, adapter: "Qwen35Adapter") -> None:
        config, shard, hidden = adapter.config, adapter.shard, adapter.config.hidden_size
        self._adapter = adapter
        num_heads, num_v_heads = config.linear_num_key_heads, config.linear_num_value_heads
        v_heads, heads = shard.heads(num_v_heads, num_heads)  # neighbours of the former share a key
        self.heads, v_count = len(heads), len(v_heads)
        self.d_k, self.d_v = config.linear_key_head_dim, config.linear_value_head_dim
        key = shard.features(heads, self.d_k, num_heads)
        value, self.each = (shard.features(v_heads, d, num_v_heads) for d in (self.d_v, 1))
        self.mixed, width = joined([key, key, value]), config.linear_conv_kernel_dim
        self.sizes = (held(key), held(key), held(value))
        self.index = adapter.keeps(
            StateTensor((sum(self.sizes), width - 1), adapter.dtype),
            StateTensor((v_count, self.d_k, self.d_v), torch.float32),
        )
        self.into = adapter.linear(stacked(hidden, [self.mixed, value, self.each, self.each]))
        self.weight = adapter.empty(sum(self.sizes), 1, width)
        self.norm = adapter.empty(self.d_v)
        self.output = adapter.summed_linear(whole(value, hidden))
        self.dt_bias, self.log_a = (
            torch.empty(v_count, dtype=torch.float32, device=adapter.device) for _ in range(2)
        )

    def destinations(self) -> dict[str, Destination]:
        """See Mixer."""
        names = (f"{PART}.in_proj_{name}" for name in ("qkv", "z", "b", "a"))
        return {
            **self.into.destinations(*names),
            **self.output.destinations(f"{PART}.out_proj"),
            f"{PART}.conv1d.weight": held_part(self.weight, self.mixed),
            f"{PART}.dt_bias": held_part(self.dt_bias, self.each),
            f"{PART}.A_log": held_part(self.log_a, self.each),
            f"{PART}.norm.weight": Destination(self.norm),
        }

    def __call__(
        self, hidden: Tensor, positions: Tensor, attend: Attend, states: StepStates
    ) -> Tensor:
        """See Mixer."""
        ops, batch = states.ops, states.batch
        tails, matrices = states.pools[self.index]
        mixed, z, b, a = hidden.split(self.into.layout.sizes, dim=1)
        mixed = ops.short_conv(mixed, self.weight[:, 0], None, tails, batch, silu=True)
        q, k, v = mixed.split(self.sizes, dim=1)
        q, k = (one.unflatten(1, (self.heads, self.d_k)) for one in (q, k))
        v = v.unflatten(1, (-1, self.d_v))
        q, k, log_decay, beta = ops.delta_inputs(q, k, a, b, self.log_a, self.dt_bias)
        read = ops.gated_delta_rule(q, k, v, log_decay, beta, matrices, batch)
        return ops.gated_norm(read, z, self.norm, self._adapter.eps)


@register("Qwen3_5ForCausalLM")
class Qwen35Adapter(HybridAdapter):
    """Norms multiply by 1 + weight. Attention turns a quarter of each head, and has a gate for it."""

    adds_one = is_gated = brings_head = True
    names = LayerNames(
        norm="input_layernorm",
        mlp_norm="post_attention_layernorm",
        gate_up=("mlp.gate_proj", "mlp.up_proj"),
        down="mlp.down_proj",
        final="norm",
    )
    attention_names = AttentionNames(norms=("self_attn.q_norm", "self_attn.k_norm"))

    def __init__(
        self,
        config: Any,
        ops: TransformerOps,
        dtype: torch.dtype,
        device: torch.device,
        max_length: int,
        shard: Whole | None = None,
    ) -> None:
        share = config.rope_parameters.get("partial_rotary_factor", 1.0)
        self.tables = rope_tables(config, max_length, device, share)
        super().__init__(config, ops, dtype, device, max_length, shard)

    @classmethod
    def handles(cls, config: Any) -> bool:
        is_known = {*config.layer_types} == KINDS and config.linear_conv_kernel_dim > 1
        return is_known and config.hidden_act in ("silu", "swish")

    @classmethod
    def even_counts(cls, config: Any) -> dict[str, int]:
        return {"key heads of the delta rule": config.linear_num_key_heads}

    @classmethod
    def stated_states(cls, config: Any, layer: str) -> Sequence[Stated]:
        key = config.linear_num_key_heads * config.linear_key_head_dim
        value = config.linear_num_value_heads * config.linear_value_head_dim
        width, heads = config.linear_conv_kernel_dim, config.linear_num_value_heads
        layer = f"{layer}.{PART}"
        return [
            Stated("linear_conv_kernel_dim", width, f"{layer}.conv1d.weight", 2),
            Stated("linear_num_value_heads", heads, f"{layer}.A_log", 0),
            Stated("the linear_ heads", 2 * key + value, f"{layer}.in_proj_qkv.weight", 0),
        ]

    def mixer(self, kind: str) -> Mixer:
        if kind == "linear_attention":
            return GatedDeltaNet(self)
        return HybridAttention(self, self.tables)

    def load_weights(self, tensors: Iterable[tuple[str, Stored]]) -> None:
        """See ModelAdapter. A head for drafts may come with the model."""
        super().load_weights(pair for pair in tensors if not pair[0].startswith(HEAD))
