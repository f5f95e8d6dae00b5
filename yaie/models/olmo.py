"""OLMo 2 and 3 (Team OLMo 2024, 2025): norms behind the sublayers alone, and of queries and keys."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from yaie.core.batch import Rotation
from yaie.core.contracts import Attend, TransformerOps
from yaie.models.adapter import register
from yaie.models.decoder_weights import KINDS, Biases, sliding_window
from yaie.models.layout import Destination
from yaie.models.llama import LlamaAdapter
from yaie.models.schemes import Packing


class WideNorms(NamedTuple):
    """Norms over all heads of a token: q [heads * d], k [kv_heads * d]."""

    q: Tensor
    k: Tensor


@register("Olmo2ForCausalLM", "Olmo3ForCausalLM")
class OlmoAdapter(LlamaAdapter):
    """What attention and the feed-forward layer read is not normed, but what they add is. In OLMo 3,
    three of four layers have a window."""

    takes_shards = False  # the norm of queries is over the heads of all ranks
    fuses = False

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
        query, key = (len(heads) * self.head_dim for heads in (self.heads, self.kv_heads))
        self.wide_norms = [WideNorms(self.empty(query), self.empty(key)) for _ in self.layers]

    @classmethod
    def handles(cls, config: Any) -> bool:
        return super().handles(config) and {*_kinds(config)} <= KINDS

    def biases(self) -> Biases:
        attention = bool(self.config.attention_bias)
        return Biases(qkv=attention, output=attention)

    def window(self, layer: int) -> int | None:
        return sliding_window(self.config, layer) if _kinds(self.config) else None

    def destinations(self) -> dict[str, Destination]:
        places = super().destinations()
        for index, norms in enumerate(self.wide_norms):
            layer = f"layers.{index}"
            behind_attention = places.pop(f"{layer}.input_layernorm.weight")
            behind_mlp = places[f"{layer}.post_attention_layernorm.weight"]
            places |= {
                f"{layer}.post_attention_layernorm.weight": behind_attention,
                f"{layer}.post_feedforward_layernorm.weight": behind_mlp,
                f"{layer}.self_attn.q_norm.weight": Destination(norms.q),
                f"{layer}.self_attn.k_norm.weight": Destination(norms.k),
            }
        return places

    def continued(self, states: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        ops, eps, residual = self.ops, self.eps, states
        for index, layer in enumerate(self.layers):
            hidden = layer.output(self._attention(index, layer.qkv(residual), positions, attend))
            residual = residual + ops.rms_norm(hidden, layer.attention_norm, eps)
            hidden = layer.down(ops.silu_mul(layer.gate_up(residual)))
            residual = residual + ops.rms_norm(hidden, layer.mlp_norm, eps)
        return ops.rms_norm(residual, self.norm, eps)

    def _attention(self, index: int, qkv: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        layer, norms = self.layers[index], self.wide_norms[index]
        q, k, v = qkv.split(layer.qkv.layout.sizes, dim=1)
        q, k = self.ops.rms_norm(q, norms.q, self.eps), self.ops.rms_norm(k, norms.k, self.eps)
        q, k, v = (part.unflatten(1, (-1, self.head_dim)) for part in (q, k, v))
        rotation = Rotation(self.ops.rope, positions, *layer.tables)
        return attend(index, q, k, v, layer.attention, rotation=rotation).flatten(1)


def _kinds(config: Any) -> list[str]:
    """Of the layers; OLMo 2 does not tell them apart."""
    kinds: list[str] = getattr(config, "layer_types", None) or []
    return kinds
