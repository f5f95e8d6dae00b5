"""Qwen3 (Yang et al. 2025): Qwen2 without biases, with each head's queries and keys normed."""

from typing import Any

import torch

from yaie.core.batch import HeadNorms
from yaie.core.contracts import TransformerOps
from yaie.models.adapter import register
from yaie.models.decoder_weights import Biases
from yaie.models.layout import Destination
from yaie.models.qwen2 import Qwen2Adapter
from yaie.models.schemes import Packing
from yaie.models.whole import Whole


@register("Qwen3ForCausalLM")
class Qwen3Adapter(Qwen2Adapter):
    """One RMSNorm [head_dim] for the queries and one for the keys of a layer, before rotation."""

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

    def biases(self) -> Biases:
        attention = bool(self.config.attention_bias)
        return Biases(qkv=attention, output=attention)

    def destinations(self) -> dict[str, Destination]:
        places = super().destinations()
        for index, norms in zip(self.held_layers, self._head_norms, strict=True):
            places[f"layers.{index}.self_attn.q_norm.weight"] = Destination(norms.q)
            places[f"layers.{index}.self_attn.k_norm.weight"] = Destination(norms.k)
        return places

    def head_norms(self, layer: int) -> HeadNorms | None:
        return self._head_norms[layer]
