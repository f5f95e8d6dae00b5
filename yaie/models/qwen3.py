"""Qwen3 (Yang et al. 2025): Qwen2 without biases, with each head's queries and keys normed."""

from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts import TransformerOps
from yaie.models.adapter import register
from yaie.models.layout import Destination
from yaie.models.llama import Biases
from yaie.models.qwen2 import Qwen2Adapter


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
    ) -> None:
        super().__init__(config, ops, dtype, device, max_length)
        self.q_norms = [self.empty(self.head_dim) for _ in self.layers]
        self.k_norms = [self.empty(self.head_dim) for _ in self.layers]

    def biases(self) -> Biases:
        attention = bool(self.config.attention_bias)
        return Biases(qkv=attention, output=attention)

    def destinations(self) -> dict[str, Destination]:
        places = super().destinations()
        for index, (q_norm, k_norm) in enumerate(zip(self.q_norms, self.k_norms, strict=True)):
            places[f"layers.{index}.self_attn.q_norm.weight"] = Destination(q_norm)
            places[f"layers.{index}.self_attn.k_norm.weight"] = Destination(k_norm)
        return places

    def before_rotation(self, layer: int, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q = self.ops.rms_norm(q, self.q_norms[layer], self.eps)
        k = self.ops.rms_norm(k, self.k_norms[layer], self.eps)
        return q, k
