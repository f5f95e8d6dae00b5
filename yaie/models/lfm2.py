"""LFM2 (Liquid AI 2025): short convolutions in most layers, grouped-query attention in the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import AttentionSpec, HeadNorms, KVLayerSpec, Rotation
from yaie.core.contracts import Attend, TransformerOps
from yaie.core.contracts.states import StateLayerSpec, StateTensor, StepStates
from yaie.models.adapter import ModelAdapter, register
from yaie.models.layout import Destination, stacked, whole
from yaie.models.linear import Linear
from yaie.models.rope import rope_tables
from yaie.models.stated import Stated
from yaie.models.states import states_of

KINDS = ("conv", "full_attention")


@dataclass(slots=True)
class GatedConv:
    """A convolution over the last tokens, between two gates: out(c * conv(b * x)).

    index: among the layers that keep a state. into: to b, c and x, side by side. weight: [hidden, 1,
    width]. bias: [hidden].
    """

    index: int
    into: Linear
    weight: Tensor
    bias: Tensor | None
    output: Linear

    def destinations(self) -> dict[str, Destination]:
        """By name within the layer."""
        places = {
            "conv.conv.weight": Destination(self.weight),
            **self.into.destinations("conv.in_proj"),
            **self.output.destinations("conv.out_proj"),
        }
        if self.bias is not None:
            places["conv.conv.bias"] = Destination(self.bias)
        return places

    def __call__(self, hidden: Tensor, states: StepStates) -> Tensor:
        before, after, x = self.into(hidden).chunk(3, dim=1)
        (pool,) = states.pools[self.index]
        mixed = states.ops.short_conv(before * x, self.weight[:, 0], self.bias, pool, states.batch)
        return self.output(after * mixed)


@dataclass(slots=True)
class Attention:
    """Grouped-query attention, whose heads are normed. index: among the layers that attend."""

    index: int
    qkv: Linear
    output: Linear
    norms: HeadNorms
    spec: AttentionSpec

    def destinations(self) -> dict[str, Destination]:
        """By name within the layer."""
        return {
            "self_attn.q_layernorm.weight": Destination(self.norms.q),
            "self_attn.k_layernorm.weight": Destination(self.norms.k),
            **self.qkv.destinations("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            **self.output.destinations("self_attn.out_proj"),
        }

    def __call__(self, hidden: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        head_dim = len(self.norms.q)
        q, k, v = (
            part.unflatten(1, (-1, head_dim))
            for part in self.qkv(hidden).split(self.qkv.sizes, dim=1)
        )
        return self.output(attend(self.index, q, k, v, self.spec, rotation).flatten(1))


@dataclass(slots=True)
class Layer:
    """norm, mlp_norm: [hidden], before the mixer and before the feed-forward layer."""

    norm: Tensor
    mixer: GatedConv | Attention
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear

    def destinations(self) -> dict[str, Destination]:
        """By name within the layer."""
        return {
            "operator_norm.weight": Destination(self.norm),
            "ffn_norm.weight": Destination(self.mlp_norm),
            **self.mixer.destinations(),
            **self.gate_up.destinations("feed_forward.w1", "feed_forward.w3"),
            **self.down.destinations("feed_forward.w2"),
        }


@register("Lfm2ForCausalLM")
class Lfm2Adapter(ModelAdapter):
    """Each layer mixes tokens by a gated convolution or by attention; RMSNorm and SwiGLU as in Llama."""

    checkpoint_prefix = "model."
    keeps_states = True
    tied_tensors = ("embed_tokens.weight", "lm_head.weight")

    def __init__(
        self,
        config: Any,
        ops: TransformerOps,
        dtype: torch.dtype,
        device: torch.device,
        max_length: int,
    ) -> None:
        super().__init__(config, ops, dtype, device, max_length)
        self.eps = config.norm_eps
        self.head_dim = _head_dim(config)
        self.cos, self.sin = rope_tables(config, max_length, device)
        self.kv_layers = []
        self.state_layers: list[StateLayerSpec] = []
        self.embedding = self.empty(config.vocab_size, config.hidden_size)
        self.layers = [self._layer(kind) for kind in config.layer_types]
        self.norm = self.empty(config.hidden_size)
        if not config.tie_word_embeddings:
            self.head = self.linear(whole(config.hidden_size, config.vocab_size))
        else:
            self.ignored_tensors = ("lm_head.weight",)

    @classmethod
    def handles(cls, config: Any) -> bool:
        return all(kind in KINDS for kind in config.layer_types)

    @classmethod
    def inner_features(cls, config: Any) -> int:
        """Two thirds of what is stated, rounded up, unless the configuration says that it is exact."""
        width = int(config.intermediate_size)
        if not config.block_auto_adjust_ff_dim:
            return width
        width = 2 * width // 3
        if config.block_ffn_dim_multiplier is None:
            return width
        step = config.block_multiple_of
        return step * -(-int(config.block_ffn_dim_multiplier * width) // step)

    @classmethod
    def stated(cls, config: Any) -> Sequence[Stated]:
        inner = cls.inner_features(config)
        places = [
            Stated("vocab_size", config.vocab_size, "embed_tokens.weight", 0),
            Stated("hidden_size", config.hidden_size, "embed_tokens.weight", 1),
            Stated("intermediate_size", inner, "layers.0.feed_forward.w1.weight", 0),
        ]
        if "full_attention" in config.layer_types:
            layer = f"layers.{config.layer_types.index('full_attention')}.self_attn"
            for name, heads in (("q", "num_attention_heads"), ("k", "num_key_value_heads")):
                size = getattr(config, heads) * _head_dim(config)
                places.append(
                    Stated(f"{heads} times head_dim", size, f"{layer}.{name}_proj.weight", 0)
                )
        if "conv" in config.layer_types:
            name = f"layers.{config.layer_types.index('conv')}.conv.conv.weight"
            places.append(Stated("conv_L_cache", config.conv_L_cache, name, 2))
        return places

    def _layer(self, kind: str) -> Layer:
        """The next layer, whose weights are not there yet."""
        hidden, inner = self.config.hidden_size, self.inner_features(self.config)
        return Layer(
            norm=self.empty(hidden),
            mixer=self._conv() if kind == "conv" else self._attention(),
            mlp_norm=self.empty(hidden),
            gate_up=self.linear(stacked(hidden, [inner, inner])),
            down=self.linear(whole(inner, hidden)),
        )

    def _conv(self) -> GatedConv:
        hidden, width, bias = (
            self.config.hidden_size,
            self.config.conv_L_cache,
            self.config.conv_bias,
        )
        conv = GatedConv(
            index=len(self.state_layers),
            into=self.linear(whole(hidden, 3 * hidden, bias=bias)),
            weight=self.empty(hidden, 1, width),
            bias=self.empty(hidden) if bias else None,
            output=self.linear(whole(hidden, hidden, bias=bias)),
        )
        self.state_layers.append((StateTensor((hidden, width - 1), self.dtype),))
        return conv

    def _attention(self) -> Attention:
        hidden, dim = self.config.hidden_size, self.head_dim
        kv_heads = self.config.num_key_value_heads
        query, key = self.config.num_attention_heads * dim, kv_heads * dim
        attention = Attention(
            index=len(self.kv_layers),
            qkv=self.linear(stacked(hidden, [query, key, key])),
            output=self.linear(whole(query, hidden)),
            norms=HeadNorms(self.ops.rms_norm, self.empty(dim), self.empty(dim), self.eps),
            spec=AttentionSpec(scale=dim**-0.5),
        )
        self.kv_layers.append(KVLayerSpec(kv_heads, dim))
        return attention

    def destinations(self) -> dict[str, Destination]:
        places = {
            "embed_tokens.weight": Destination(self.embedding),
            "embedding_norm.weight": Destination(self.norm),
        }
        for index, layer in enumerate(self.layers):
            for name, place in layer.destinations().items():
                places[f"layers.{index}.{name}"] = place
        if not self.config.tie_word_embeddings:
            places |= self.head.destinations("lm_head")
        return places

    def weights_loaded(self) -> None:
        if self.config.tie_word_embeddings:
            self.head = self.tied_head(self.embedding)

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        states = states_of(attend)
        residual = F.embedding(token_ids, self.embedding)
        hidden = self.ops.rms_norm(residual, self.layers[0].norm, self.eps)
        following = [*(layer.norm for layer in self.layers[1:]), self.norm]
        for layer, next_norm in zip(self.layers, following, strict=True):
            if isinstance(layer.mixer, GatedConv):
                hidden = layer.mixer(hidden, states)
            else:
                tables = (positions, self.cos, self.sin, layer.mixer.norms)
                hidden = layer.mixer(hidden, Rotation(self.ops.rope, *tables), attend)
            hidden, residual = self.ops.fused_add_rms_norm(
                hidden, residual, layer.mlp_norm, self.eps
            )
            hidden = layer.down(self.ops.silu_mul(layer.gate_up(hidden)))
            hidden, residual = self.ops.fused_add_rms_norm(hidden, residual, next_norm, self.eps)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        return self.head.in_float32(hidden)


def _head_dim(config: Any) -> int:
    return int(
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
