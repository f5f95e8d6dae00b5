"""Granite 3, and Granite 4 without Mamba-2 (IBM 2024, 2025): Llama with four multipliers."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from yaie.core.batch import AttentionSpec
from yaie.core.contracts import Attend
from yaie.models.adapter import register
from yaie.models.decoder_weights import Biases
from yaie.models.granite4 import ATTENTION
from yaie.models.llama import LlamaAdapter
from yaie.models.stated import Stated

MULTIPLIERS = (
    "embedding_multiplier",
    "attention_multiplier",
    "residual_multiplier",
    "logits_scaling",
)


@register("GraniteForCausalLM")
class GraniteAdapter(LlamaAdapter):
    """Embeddings, scores of keys and what each sublayer adds are multiplied by numbers of the
    configuration, and logits are divided by one."""

    fuses = False

    @classmethod
    def handles(cls, config: Any) -> bool:
        numbers = (getattr(config, name) for name in MULTIPLIERS)
        return super().handles(config) and all(isinstance(one, int | float) for one in numbers)

    def attention(self, layer: int) -> AttentionSpec:
        return AttentionSpec(float(self.config.attention_multiplier), self.window(layer))

    def embedded(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return super().embedded(token_ids, positions) * self.config.embedding_multiplier

    def continued(self, states: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        ops, eps, residual = self.ops, self.eps, states
        scale = self.config.residual_multiplier
        hidden = ops.rms_norm(residual, self.layers[0].attention_norm, eps)
        following: list[Tensor | None] = [layer.attention_norm for layer in self.layers[1:]]
        following.append(self.norm if self.shard.is_last else None)
        for index, (layer, next_norm) in enumerate(zip(self.layers, following, strict=True)):
            hidden = layer.output(self._attention(index, layer.qkv(hidden), positions, attend))
            hidden, residual = ops.fused_add_rms_norm(hidden * scale, residual, layer.mlp_norm, eps)
            hidden = layer.down(ops.silu_mul(layer.gate_up(hidden))) * scale
            if next_norm is None:  # it is the next stage's
                return residual + hidden
            hidden, residual = ops.fused_add_rms_norm(hidden, residual, next_norm, eps)
        return hidden

    def local_logits(self, hidden: Tensor) -> Tensor:
        return super().local_logits(hidden).div_(self.config.logits_scaling)


@register("GraniteMoeHybridForCausalLM")
class Granite4DenseAdapter(GraniteAdapter):
    """Granite 4 in which every layer attends, and none has experts: `granite4` has the others."""

    takes_shards = False  # gate and up are one tensor
    gate_up_names = ("shared_mlp.input_linear",)
    down_name = "shared_mlp.output_linear"

    @classmethod
    def handles(cls, config: Any) -> bool:
        return (
            super().handles(config)
            and {*config.layer_types} <= ATTENTION
            and not config.num_local_experts
            and config.position_embedding_type == "rope"
        )

    @classmethod
    def inner_features(cls, config: Any) -> int:
        return int(config.shared_intermediate_size)

    @classmethod
    def stated(cls, config: Any) -> Sequence[Stated]:
        twice = 2 * cls.inner_features(config)
        tensor = f"layers.0.{cls.gate_up_names[0]}.weight"
        rest = (one for one in super().stated(config) if one.field != "intermediate_size")
        return (*rest, Stated("twice shared_intermediate_size", twice, tensor, 0))

    def biases(self) -> Biases:
        attention = bool(self.config.attention_bias)
        return Biases(qkv=attention, output=attention)
