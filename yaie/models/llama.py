"""Llama (Touvron et al. 2023), and what Mistral, Qwen2 and Qwen3 share with it."""

from torch import Tensor

from yaie.core.batch import HeadNorms, Rotation
from yaie.core.contracts import Attend
from yaie.core.gemm import FusedGemm
from yaie.models.adapter import register
from yaie.models.decoder_weights import DecoderWeights, PlainGemm


@register("LlamaForCausalLM")
class LlamaAdapter(DecoderWeights):
    """RMSNorm before attention and feed-forward, rotary positions, grouped queries, SwiGLU.

    Subclasses say where they differ: `biases`, `window`, `head_norms`.
    """

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
            part.unflatten(1, (-1, self.head_dim))
            for part in qkv.split(layer.qkv.layout.sizes, dim=1)
        )
        rotation = Rotation(self.ops.rope, positions, *layer.tables, self.head_norms(index))
        return attend(index, q, k, v, layer.attention, rotation=rotation).flatten(1)

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
        held = self.local_logits(hidden)
        if self.shard.size == 1:
            return held
        return self.shard.all_gather_logits(self.config.vocab_size)(held)

    def local_logits(self, hidden: Tensor) -> Tensor:
        return self.head.in_float32(hidden)

    def first_choice(self, hidden: Tensor) -> Tensor:
        return self.shard.best(self.config.vocab_size)(self.local_logits(hidden))
