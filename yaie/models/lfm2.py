"""LFM2 (Liquid AI 2025): short convolutions in most layers, grouped-query attention in the others."""

from collections.abc import Sequence
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
from yaie.models.layout import Destination, held, whole
from yaie.models.rope import rope_tables
from yaie.models.stated import Stated
from yaie.models.whole import Whole

KINDS = {"conv", "full_attention"}
"""Of layers. A model that has one of them alone is no hybrid."""


class GatedConv:
    """A convolution over the last tokens, between two gates: output(c * conv(b * x)). It keeps the last
    inputs of the convolution."""

    def __init__(self, adapter: "Lfm2Adapter") -> None:
        config = adapter.config
        hidden, width, bias = config.hidden_size, config.conv_L_cache, bool(config.conv_bias)
        self.channels = adapter.shard.width(hidden)
        count = held(self.channels)
        self.index = adapter.keeps(StateTensor((count, width - 1), adapter.dtype))
        self.into = adapter.linear(whole(hidden, joined([self.channels] * 3), bias=bias))
        self.weight = adapter.empty(count, 1, width)
        self.bias = adapter.empty(count) if bias else None
        self.output = adapter.summed_linear(whole(self.channels, hidden, bias=bias))

    def destinations(self) -> dict[str, Destination]:
        """See Mixer."""
        places = {
            "conv.conv.weight": held_part(self.weight, self.channels),
            **self.into.destinations("conv.in_proj"),
            **self.output.destinations("conv.out_proj"),
        }
        if self.bias is not None:
            places["conv.conv.bias"] = held_part(self.bias, self.channels)
        return places

    def __call__(
        self, hidden: Tensor, positions: Tensor, attend: Attend, states: StepStates
    ) -> Tensor:
        """See Mixer."""
        before, after, x = hidden.chunk(3, dim=1)
        (pool,) = states.pools[self.index]
        weight = self.weight[:, 0]
        mixed = states.ops.short_conv(before * x, weight, self.bias, pool, states.batch)
        return after * mixed


@register("Lfm2ForCausalLM")
class Lfm2Adapter(HybridAdapter):
    """Each layer mixes tokens by a gated convolution or by attention with normed heads."""

    names = LayerNames(
        norm="operator_norm",
        mlp_norm="ffn_norm",
        gate_up=("feed_forward.w1", "feed_forward.w3"),
        down="feed_forward.w2",
        final="embedding_norm",
    )
    attention_names = AttentionNames(
        output="self_attn.out_proj",
        norms=("self_attn.q_layernorm", "self_attn.k_layernorm"),
    )

    def __init__(
        self,
        config: Any,
        ops: TransformerOps,
        dtype: torch.dtype,
        device: torch.device,
        max_length: int,
        shard: Whole | None = None,
    ) -> None:
        self.tables = rope_tables(config, max_length, device)
        super().__init__(config, ops, dtype, device, max_length, shard)

    @classmethod
    def handles(cls, config: Any) -> bool:
        return {*config.layer_types} == KINDS and config.conv_L_cache > 1

    @classmethod
    def inner_features(cls, config: Any) -> int:
        """Two thirds of what is stated, rounded up, unless the configuration says that it is exact."""
        width = int(config.intermediate_size)
        if not config.block_auto_adjust_ff_dim:
            return width
        width = 2 * width // 3
        if config.block_ffn_dim_multiplier is None:
            return width
        step = int(config.block_multiple_of)
        return step * -(-int(config.block_ffn_dim_multiplier * width) // step)

    @classmethod
    def even_counts(cls, config: Any) -> dict[str, int]:
        return {"channels": config.hidden_size}

    @classmethod
    def stated_states(cls, config: Any, layer: str) -> Sequence[Stated]:
        return [Stated("conv_L_cache", config.conv_L_cache, f"{layer}.conv.conv.weight", 2)]

    def mixer(self, kind: str) -> Mixer:
        if kind == "conv":
            return GatedConv(self)
        return HybridAttention(self, self.tables)
