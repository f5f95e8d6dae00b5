"""Gemma 2 and 3 (Gemma Team 2024, 2025): a norm behind each sublayer as well, windows in most layers."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import AttentionSpec, HeadNorms
from yaie.core.contracts import Attend, TransformerOps
from yaie.models.adapter import register
from yaie.models.decoder_weights import KINDS, Biases, sliding_window
from yaie.models.layout import Destination, plus_one
from yaie.models.llama import LlamaAdapter
from yaie.models.schemes import Packing
from yaie.models.whole import Whole


class Behind(NamedTuple):
    """Norms [hidden] of what attention and the feed-forward layer give, before it is added."""

    attention: Tensor
    mlp: Tensor


@register("Gemma2ForCausalLM")
class Gemma2Adapter(LlamaAdapter):
    """Embeddings grow with the root of their width, norms multiply by 1 + weight, GELU is the gate.
    Scores of keys and of tokens are capped."""

    fuses = False

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
        hidden = config.hidden_size
        self.behind = [Behind(self.empty(hidden), self.empty(hidden)) for _ in self.layers]
        self.scale = float(torch.tensor(hidden**0.5, dtype=dtype))  # rounded as transformers does

    @classmethod
    def handles(cls, config: Any) -> bool:
        caps = (config.attn_logit_softcapping, config.final_logit_softcapping)
        return (
            {*config.layer_types} <= KINDS
            and config.hidden_activation == "gelu_pytorch_tanh"
            and not getattr(config, "use_bidirectional_attention", False)
            and config.query_pre_attn_scalar > 0
            and all(cap is None or cap > 0 for cap in caps)
        )

    def biases(self) -> Biases:
        attention = bool(self.config.attention_bias)
        return Biases(qkv=attention, output=attention)

    def window(self, layer: int) -> int | None:
        return sliding_window(self.config, layer)

    def attention(self, layer: int) -> AttentionSpec:
        scale = self.config.query_pre_attn_scalar**-0.5
        return AttentionSpec(scale, self.window(layer), self.config.attn_logit_softcapping)

    def destinations(self) -> dict[str, Destination]:
        places = super().destinations()
        for index, behind in zip(self.held_layers, self.behind, strict=True):
            layer = f"layers.{index}."
            before_mlp = places[f"{layer}post_attention_layernorm.weight"]
            places[f"{layer}pre_feedforward_layernorm.weight"] = before_mlp
            places[f"{layer}post_attention_layernorm.weight"] = Destination(behind.attention)
            places[f"{layer}post_feedforward_layernorm.weight"] = Destination(behind.mlp)
        norms = {name: place for name, place in places.items() if name.endswith("norm.weight")}
        return places | {name: plus_one(place.target) for name, place in norms.items()}

    def embedded(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return super().embedded(token_ids, positions) * self.scale

    def continued(self, states: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        ops, eps, residual = self.ops, self.eps, states
        hidden = ops.rms_norm(residual, self.layers[0].attention_norm, eps)
        following: list[Tensor | None] = [layer.attention_norm for layer in self.layers[1:]]
        following.append(self.norm if self.shard.is_last else None)
        parts = zip(self.layers, self.behind, following, strict=True)
        for index, (layer, behind, next_norm) in enumerate(parts):
            hidden = layer.output(self._attention(index, layer.qkv(hidden), positions, attend))
            hidden = ops.rms_norm(hidden, behind.attention, eps)
            hidden, residual = ops.fused_add_rms_norm(hidden, residual, layer.mlp_norm, eps)
            hidden = layer.down(gelu_mul(layer.gate_up(hidden)))
            hidden = ops.rms_norm(hidden, behind.mlp, eps)
            if next_norm is None:  # it is the next stage's
                return residual + hidden
            hidden, residual = ops.fused_add_rms_norm(hidden, residual, next_norm, eps)
        return hidden

    def local_logits(self, hidden: Tensor) -> Tensor:
        logits = super().local_logits(hidden)
        cap = self.config.final_logit_softcapping
        return logits if cap is None else logits.div_(cap).tanh_().mul_(cap)


@register("Gemma3ForCausalLM")
class Gemma3Adapter(Gemma2Adapter):
    """Each head's queries and keys are normed, in the place of a cap on their products. Layers with a
    window turn by frequencies of their own."""

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
        self._head_norms = [
            HeadNorms(ops.rms_norm, self.empty(self.head_dim), self.empty(self.head_dim), self.eps)
            for _ in self.layers
        ]

    def attention(self, layer: int) -> AttentionSpec:
        # Whatever the configuration says: transformers reads the cap for Gemma 2 alone.
        return replace(super().attention(layer), softcap=None)

    def destinations(self) -> dict[str, Destination]:
        places = super().destinations()
        for index, norms in zip(self.held_layers, self._head_norms, strict=True):
            places[f"layers.{index}.self_attn.q_norm.weight"] = plus_one(norms.q)
            places[f"layers.{index}.self_attn.k_norm.weight"] = plus_one(norms.k)
        return places

    def head_norms(self, layer: int) -> HeadNorms | None:
        return self._head_norms[layer]


def gelu_mul(x: Tensor) -> Tensor:
    """gelu(gate) * up, by GELU's approximation with tanh, for x [T, 2 * d] = [gate | up]."""
    gate, up = x.chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh").mul_(up)
