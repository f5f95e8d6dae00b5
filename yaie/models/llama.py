"""Llama (Touvron et al. 2023), and what Mistral, Qwen2 and Qwen3 share with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec, HeadNorms, KVLayerSpec, Rotation
from yaie.core.contracts import Attend, TransformerOps
from yaie.core.gemm import FusedGemm, PlainWeight
from yaie.models.adapter import ModelAdapter, of_other_layers, register
from yaie.models.layout import Cut, Destination, held, stacked, whole
from yaie.models.linear import Linear, SummedLinear
from yaie.models.rope import rope_tables
from yaie.models.schemes import Packing
from yaie.models.schemes.cutting import Cuts
from yaie.models.stated import Stated
from yaie.models.whole import Whole


class Biases(NamedTuple):
    """Which products of a layer have a bias."""

    qkv: bool = False
    output: bool = False
    mlp: bool = False


class PlainGemm(NamedTuple):
    """The weights of a layer's products, for kernels that multiply by themselves."""

    qkv: PlainWeight
    output: PlainWeight
    gate_up: PlainWeight
    down: PlainWeight


@dataclass(slots=True)
class DecoderLayer:
    """The weights of one layer: norms [hidden], and four products."""

    attention_norm: Tensor
    qkv: Linear
    output: Linear | SummedLinear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear | SummedLinear
    attention: AttentionSpec

    @property
    def plain(self) -> PlainGemm | None:
        """None if one of the products is not stored so."""
        weights = [one.plain for one in (self.qkv, self.output, self.gate_up, self.down)]
        found = [weight for weight in weights if weight is not None]
        return PlainGemm(*found) if len(found) == len(weights) else None

    def destinations(self) -> dict[str, Destination]:
        """By name within the layer."""
        return {
            "input_layernorm.weight": Destination(self.attention_norm),
            "post_attention_layernorm.weight": Destination(self.mlp_norm),
            **self.qkv.destinations("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            **self.output.destinations("self_attn.o_proj"),
            **self.gate_up.destinations("mlp.gate_proj", "mlp.up_proj"),
            **self.down.destinations("mlp.down_proj"),
        }


@register("LlamaForCausalLM")
class LlamaAdapter(ModelAdapter):
    """RMSNorm before attention and feed-forward, rotary positions, grouped queries, SwiGLU.

    Subclasses say where they differ: `biases`, `window`, `head_norms`.
    """

    checkpoint_prefix = "model."
    takes_packed = True
    takes_shards = True
    tied_tensors = ("embed_tokens.weight", "lm_head.weight")
    ignored_tensors: tuple[str, ...] = ("rotary_emb.inv_freq",)

    def __init__(
        self,
        config: Any,
        ops: TransformerOps,
        dtype: torch.dtype,
        device: torch.device,
        max_length: int,
        packing: Packing | None = None,
        shard: Whole | None = None,
    ) -> None:
        super().__init__(config, ops, dtype, device, max_length, packing, shard)
        shard = self.shard
        self.fused: FusedGemm | None = getattr(ops, "fused", None)
        self.plain: list[PlainGemm] | None = None
        heads = config.num_attention_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        self.heads, self.kv_heads = shard.heads(heads, config.num_key_value_heads)
        self.held_layers = shard.layers(config.num_hidden_layers)
        kind = KVLayerSpec(len(self.kv_heads), self.head_dim)
        self.kv_layers = [kind] * len(self.held_layers)
        self.eps = config.rms_norm_eps
        self.cos, self.sin = rope_tables(config, max_length, device)
        self.vocab = shard.vocab(config.vocab_size)
        is_tied = config.tie_word_embeddings
        if shard.is_first or (shard.is_last and is_tied):
            self.embedding = self.empty(held(self.vocab), config.hidden_size)
            self.embed = shard.lookup(self.embedding, self.vocab)
        self.layers = [self.decoder_layer(index) for index in self.held_layers]
        if is_tied:
            self.ignored_tensors = (*self.ignored_tensors, "lm_head.weight")
        if shard.is_last:
            self.norm = self.empty(config.hidden_size)
            if not is_tied:
                self.head = self.linear(whole(config.hidden_size, self.vocab))

    @classmethod
    def handles(cls, config: Any) -> bool:
        return config.hidden_act in ("silu", "swish")

    @classmethod
    def cuts(cls, config: Any, size: int) -> Cuts:
        heads, inner = config.num_attention_heads, config.intermediate_size // size
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        query = heads // size * head_dim
        key = max(1, config.num_key_value_heads // size) * head_dim
        return {
            "self_attn.q_proj": ("outputs", query),
            "self_attn.k_proj": ("outputs", key),
            "self_attn.o_proj": ("inputs", query),
            "mlp.gate_proj": ("outputs", inner),
            "mlp.down_proj": ("inputs", inner),
        }

    @classmethod
    def stated(cls, config: Any) -> Sequence[Stated]:
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        attention = "layers.0.self_attn"
        return (
            Stated("vocab_size", config.vocab_size, "embed_tokens.weight", 0),
            Stated("hidden_size", config.hidden_size, "embed_tokens.weight", 1),
            Stated("intermediate_size", config.intermediate_size, "layers.0.mlp.up_proj.weight", 0),
            Stated(
                "num_attention_heads times head_dim",
                heads * head_dim,
                f"{attention}.q_proj.weight",
                0,
            ),
            Stated(
                "num_key_value_heads times head_dim",
                kv_heads * head_dim,
                f"{attention}.k_proj.weight",
                0,
            ),
        )

    def biases(self) -> Biases:
        """Which products have a bias."""
        attention = bool(self.config.attention_bias)
        return Biases(qkv=attention, output=attention, mlp=bool(self.config.mlp_bias))

    def window(self, layer: int) -> int | None:
        """How many keys a query of this layer sees, itself included; None for all."""
        return None

    def decoder_layer(self, index: int) -> DecoderLayer:
        """Layer `index` of the model, whose weights are not there yet."""
        config, shard = self.config, self.shard
        hidden, intermediate = config.hidden_size, shard.width(config.intermediate_size)
        query = shard.features(self.heads, self.head_dim, config.num_attention_heads)
        key = shard.features(self.kv_heads, self.head_dim, config.num_key_value_heads)
        biases = self.biases()
        # ANCHOR: products
        return DecoderLayer(
            attention_norm=self.empty(hidden),
            qkv=self.layer_linear(stacked(hidden, [query, key, key], bias=biases.qkv)),
            output=self.summed_linear(whole(query, hidden, bias=biases.output)),
            mlp_norm=self.empty(hidden),
            gate_up=self.layer_linear(
                stacked(hidden, [intermediate, intermediate], bias=biases.mlp)
            ),
            down=self.summed_linear(whole(intermediate, hidden, bias=biases.mlp)),
            attention=AttentionSpec(scale=self.head_dim**-0.5, window=self.window(index)),
        )
        # ANCHOR_END: products

    def destinations(self) -> dict[str, Destination]:
        places: dict[str, Destination] = {}
        shard, is_tied = self.shard, self.config.tie_word_embeddings
        if shard.is_first or (shard.is_last and is_tied):
            cut = self.vocab if isinstance(self.vocab, Cut) else None
            places["embed_tokens.weight"] = Destination(self.embedding, cuts=(cut, None))
        for index, layer in zip(self.held_layers, self.layers, strict=True):
            for name, place in layer.destinations().items():
                places[f"layers.{index}.{name}"] = place
        if shard.is_last:
            places["norm.weight"] = Destination(self.norm)
            if not is_tied:
                places |= self.head.destinations("lm_head")
        return places

    def is_elsewhere(self, name: str) -> bool:
        if name in ("embed_tokens.weight", "norm.weight", "lm_head.weight"):
            return self.shard.stages > 1 and not name.endswith(self.ignored_tensors)
        return of_other_layers(name, "layers", self.config.num_hidden_layers, self.held_layers)

    def weights_loaded(self) -> None:
        if self.shard.is_last and self.config.tie_word_embeddings:
            self.head = self.tied_head(self.embedding)
        plain = [layer.plain for layer in self.layers]
        found = [products for products in plain if products is not None]
        self.plain = found if len(found) == len(plain) else None

    # ANCHOR: forward
    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        return self.continued(self.embedded(token_ids, positions), positions, attend)

    def embedded(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return self.embed(token_ids)

    def continued(self, states: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        residual = states
        if self.plain and self.fused and self.fused.takes(residual, self.plain[0].qkv):
            return self._fused(self.fused, self.plain, residual, positions, attend)
        hidden = self.ops.rms_norm(residual, self.layers[0].attention_norm, self.eps)
        # Each norm ends one block and begins the next, so it takes the residual addition along.
        following: list[Tensor | None] = [layer.attention_norm for layer in self.layers[1:]]
        following.append(self.norm if self.shard.is_last else None)
        for index, (layer, next_norm) in enumerate(zip(self.layers, following, strict=True)):
            hidden = layer.output(self._attention(index, layer.qkv(hidden), positions, attend))
            hidden, residual = self.ops.fused_add_rms_norm(
                hidden, residual, layer.mlp_norm, self.eps
            )
            hidden = layer.down(self.ops.silu_mul(layer.gate_up(hidden)))
            if next_norm is None:  # it is the next stage's
                return residual + hidden
            hidden, residual = self.ops.fused_add_rms_norm(hidden, residual, next_norm, self.eps)
        return hidden

    def _attention(self, index: int, qkv: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        layer = self.layers[index]
        q, k, v = (
            part.unflatten(1, (-1, self.head_dim)) for part in qkv.split(layer.qkv.sizes, dim=1)
        )
        rotation = Rotation(self.ops.rope, positions, self.cos, self.sin, self.head_norms(index))
        return attend(index, q, k, v, layer.attention, rotation).flatten(1)

    # ANCHOR_END: forward

    def _fused(
        self,
        fused: FusedGemm,
        products: list[PlainGemm],
        residual: Tensor,
        positions: Tensor,
        attend: Attend,
    ) -> Tensor:
        """`forward` of few rows: each product together with what stands before and behind it."""
        for index, (layer, plain) in enumerate(zip(self.layers, products, strict=True)):
            qkv = fused.after_norm(residual, layer.attention_norm, self.eps, plain.qkv)
            hidden = self._attention(index, qkv, positions, attend)
            residual = self.shard.onto(fused, hidden, plain.output, residual)
            hidden = fused.gated(residual, layer.mlp_norm, self.eps, plain.gate_up)
            residual = self.shard.onto(fused, hidden, plain.down, residual)
        if not self.shard.is_last:
            return residual
        return self.ops.rms_norm(residual, self.norm, self.eps)

    def head_norms(self, layer: int) -> HeadNorms | None:
        """What the queries and keys of a layer are given before they are rotated."""
        return None

    def logits(self, hidden: Tensor) -> Tensor:
        return self.all_gather_logits(self.local_logits(hidden))

    def local_logits(self, hidden: Tensor) -> Tensor:
        return self.head.in_float32(hidden)

    def all_gather_logits(self, held: Tensor) -> Tensor:
        return self.shard.all_gather_logits(self.config.vocab_size)(held)

    def first_choice(self, hidden: Tensor) -> Tensor:
        return self.shard.best(self.config.vocab_size)(self.local_logits(hidden))
