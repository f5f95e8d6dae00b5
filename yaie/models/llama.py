"""Llama (Touvron et al. 2023), and what Mistral, Qwen2 and Qwen3 share with it."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import AttentionSpec, HeadNorms, KVLayerSpec, Rotation
from yaie.core.contracts import Attend, TransformerOps
from yaie.core.products import FusedProducts, PlainWeight
from yaie.models.adapter import ModelAdapter, register
from yaie.models.layout import Destination, stacked, whole
from yaie.models.linear import Linear
from yaie.models.rope import rope_tables
from yaie.models.schemes import Packing


class Biases(NamedTuple):
    """Which products of a layer have a bias."""

    qkv: bool = False
    output: bool = False
    mlp: bool = False


class PlainProducts(NamedTuple):
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
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear
    attention: AttentionSpec

    @property
    def plain(self) -> PlainProducts | None:
        """None if one of the products is not stored so."""
        weights = [one.plain for one in (self.qkv, self.output, self.gate_up, self.down)]
        found = [weight for weight in weights if weight is not None]
        return PlainProducts(*found) if len(found) == len(weights) else None

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
    ignored_tensors: tuple[str, ...] = ("rotary_emb.inv_freq",)

    def __init__(
        self,
        config: Any,
        ops: TransformerOps,
        dtype: torch.dtype,
        device: torch.device,
        max_length: int,
        packing: Packing | None = None,
    ) -> None:
        super().__init__(config, ops, dtype, device, max_length, packing)
        self.fused: FusedProducts | None = getattr(ops, "fused", None)
        self.plain: list[PlainProducts] | None = None
        self.num_heads = config.num_attention_heads
        self.num_kv_heads = config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.num_heads
        self.kv_layers = [KVLayerSpec(self.num_kv_heads, self.head_dim)] * config.num_hidden_layers
        self.eps = config.rms_norm_eps
        self.cos, self.sin = rope_tables(config, max_length, device)
        self.embedding = self.empty(config.vocab_size, config.hidden_size)
        self.layers = [self.decoder_layer(index) for index in range(config.num_hidden_layers)]
        self.norm = self.empty(config.hidden_size)
        if config.tie_word_embeddings:
            self.ignored_tensors = (*self.ignored_tensors, "lm_head.weight")
        else:
            self.head = self.linear(whole(config.hidden_size, config.vocab_size))

    @classmethod
    def handles(cls, config: Any) -> bool:
        return config.hidden_act in ("silu", "swish")

    def biases(self) -> Biases:
        """Which products have a bias."""
        attention = bool(self.config.attention_bias)
        return Biases(qkv=attention, output=attention, mlp=bool(self.config.mlp_bias))

    def window(self, layer: int) -> int | None:
        """How many keys a query of this layer sees, itself included; None for all."""
        return None

    def decoder_layer(self, index: int) -> DecoderLayer:
        """A layer of this width, whose weights are not there yet."""
        config = self.config
        hidden, intermediate = config.hidden_size, config.intermediate_size
        query, key = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        biases = self.biases()
        # ANCHOR: products
        return DecoderLayer(
            attention_norm=self.empty(hidden),
            qkv=self.layer_linear(stacked(hidden, [query, key, key], bias=biases.qkv)),
            output=self.layer_linear(whole(query, hidden, bias=biases.output)),
            mlp_norm=self.empty(hidden),
            gate_up=self.layer_linear(
                stacked(hidden, [intermediate, intermediate], bias=biases.mlp)
            ),
            down=self.layer_linear(whole(intermediate, hidden, bias=biases.mlp)),
            attention=AttentionSpec(scale=self.head_dim**-0.5, window=self.window(index)),
        )
        # ANCHOR_END: products

    def destinations(self) -> dict[str, Destination]:
        places = {
            "embed_tokens.weight": Destination(self.embedding),
            "norm.weight": Destination(self.norm),
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
        plain = [layer.plain for layer in self.layers]
        found = [products for products in plain if products is not None]
        self.plain = found if len(found) == len(plain) else None

    # ANCHOR: forward
    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        residual = F.embedding(token_ids, self.embedding)
        if self.plain is not None and self.fused is not None and self.fused.takes(residual):
            return self._fused(self.fused, self.plain, residual, positions, attend)
        hidden = self.ops.rms_norm(residual, self.layers[0].attention_norm, self.eps)
        # Each norm ends one block and begins the next, so it takes the residual addition along.
        following = [layer.attention_norm for layer in self.layers[1:]] + [self.norm]
        for index, (layer, next_norm) in enumerate(zip(self.layers, following, strict=True)):
            hidden = layer.output(self._attention(index, layer.qkv(hidden), positions, attend))
            hidden, residual = self.ops.fused_add_rms_norm(
                hidden, residual, layer.mlp_norm, self.eps
            )
            hidden = layer.down(self.ops.silu_mul(layer.gate_up(hidden)))
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
        fused: FusedProducts,
        products: list[PlainProducts],
        residual: Tensor,
        positions: Tensor,
        attend: Attend,
    ) -> Tensor:
        """`forward` of few rows: each product together with what stands before and behind it."""
        for index, (layer, plain) in enumerate(zip(self.layers, products, strict=True)):
            qkv = fused.after_norm(residual, layer.attention_norm, self.eps, plain.qkv)
            hidden = self._attention(index, qkv, positions, attend)
            residual = fused.onto(hidden, plain.output, residual)
            hidden = fused.gated(residual, layer.mlp_norm, self.eps, plain.gate_up)
            residual = fused.onto(hidden, plain.down, residual)
        return self.ops.rms_norm(residual, self.norm, self.eps)

    def head_norms(self, layer: int) -> HeadNorms | None:
        """What the queries and keys of a layer are given before they are rotated."""
        return None

    def logits(self, hidden: Tensor) -> Tensor:
        return self.head.in_float32(hidden)
