"""gpt-oss (OpenAI 2025): experts in all layers, sinks beside the keys, a window in every other layer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec, KVLayerSpec, Rotation
from yaie.core.contracts import Attend, TransformerOps
from yaie.models.adapter import ModelAdapter, of_other_layers, register
from yaie.models.decoder_weights import KINDS, sliding_window
from yaie.models.experts import ExpertProducts, Groups, PlainExperts, best_of, mixed
from yaie.models.layout import Cut, Destination, Width, held, stacked, whole
from yaie.models.linear import SummedLinear
from yaie.models.rope import rope_tables
from yaie.models.schemes import Scheme
from yaie.models.stated import Stated
from yaie.models.whole import Whole

if TYPE_CHECKING:
    from yaie.models.schemes.blocks import BlockPacking

GATE_UP, DOWN = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"


@dataclass(slots=True)
class Layer:
    """norm, mlp_norm: [hidden], before attention and before the experts. sinks: [heads], those of
    `attention`, and which of the checkpoint's they are. gate_up gives gate and up in turns. mlp: what
    router and experts give."""

    norm: Tensor
    qkv: Scheme
    sinks: Tensor
    sinks_held: Cut | None
    attention: AttentionSpec
    output: Scheme | SummedLinear
    mlp_norm: Tensor
    router: Scheme
    gate_up: ExpertProducts
    down: ExpertProducts
    mlp: Callable[[Tensor], Tensor] | None = None

    def destinations(self) -> dict[str, Destination]:
        """By name within the layer."""
        return {
            "input_layernorm.weight": Destination(self.norm),
            **self.qkv.destinations("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            "self_attn.sinks": Destination(self.sinks, cuts=(self.sinks_held,)),
            **self.output.destinations("self_attn.o_proj"),
            "post_attention_layernorm.weight": Destination(self.mlp_norm),
            **self.router.destinations("mlp.router"),
            **self.gate_up.destinations(GATE_UP),
            **self.down.destinations(DOWN),
        }


@register("GptOssForCausalLM")
class GptOssAdapter(ModelAdapter):
    """RMSNorm before attention with sinks and before experts, rotary positions, grouped queries."""

    checkpoint_prefix = "model."
    tied_tensors = ("embed_tokens.weight", "lm_head.weight")
    takes_mxfp4 = True
    takes_shards = True
    rows_meet = True

    def __init__(
        self,
        config: Any,
        ops: TransformerOps,
        dtype: torch.dtype,
        device: torch.device,
        max_length: int,
        packing: "BlockPacking | None" = None,
        shard: Whole | None = None,
    ) -> None:
        """packing: for experts that stay in blocks of four bits, and for all that stays in a GGUF's."""
        in_file = packing is not None and packing.format.method == "gguf"
        kept: Any = packing if in_file else None
        super().__init__(config, ops, dtype, device, max_length, kept, shard)
        shard = self.shard
        self._blocks = None if packing is None else packing.products
        self.eps = config.rms_norm_eps
        # Configurations of before transformers 5.20 do not have both numbers.
        self.alpha = float(getattr(config, "swiglu_alpha", 1.702))
        self.limit = float(getattr(config, "swiglu_limit", 7.0))
        self.tables = rope_tables(config, max_length, device)
        self.heads, self.kv_heads = shard.heads(
            config.num_attention_heads, config.num_key_value_heads
        )
        self.held_layers = shard.layers(config.num_hidden_layers)
        self.kv_layers = [
            KVLayerSpec(len(self.kv_heads), config.head_dim) for _ in self.held_layers
        ]
        self.windows = [self.window(layer) for layer in range(config.num_hidden_layers)]
        self.vocab = shard.vocab(config.vocab_size)
        self.is_tied = bool(config.tie_word_embeddings)
        self.has_table = shard.is_first or (shard.is_last and self.is_tied)
        if self.has_table:
            self.embedding = self.empty(held(self.vocab), config.hidden_size)
            self.embed = shard.lookup(self.embedding, self.vocab)
        self.layers = [self._layer(index) for index in self.held_layers]
        if self.is_tied:
            self.ignored_tensors = ("lm_head.weight",)
        if shard.is_last:
            self.norm = self.empty(config.hidden_size)
            if not self.is_tied:
                self.head = self.linear(whole(config.hidden_size, self.vocab))

    @classmethod
    def handles(cls, config: Any) -> bool:
        return (
            config.hidden_act in ("silu", "swish")
            and {*config.layer_types} <= KINDS
            and 0 < config.num_experts_per_tok <= config.num_local_experts
        )

    @classmethod
    def stated(cls, config: Any) -> Sequence[Stated]:
        layer, twice = "layers.0", 2 * config.intermediate_size
        heads = config.num_attention_heads * config.head_dim
        kv_heads = config.num_key_value_heads * config.head_dim
        query, key = "num_attention_heads times head_dim", "num_key_value_heads times head_dim"
        router, experts = f"{layer}.mlp.router.weight", config.num_local_experts
        return (
            Stated("vocab_size", config.vocab_size, "embed_tokens.weight", 0),
            Stated("hidden_size", config.hidden_size, "embed_tokens.weight", 1),
            Stated(query, heads, f"{layer}.self_attn.q_proj.weight", 0),
            Stated(key, kv_heads, f"{layer}.self_attn.k_proj.weight", 0),
            Stated("num_local_experts", experts, router, 0),
            Stated("twice intermediate_size", twice, f"{layer}.{GATE_UP}_bias", 1),
        )

    def window(self, layer: int) -> int | None:
        """How many keys a query of this layer sees, itself included; None for all."""
        return sliding_window(self.config, layer)

    def _layer(self, index: int) -> Layer:
        """Layer `index`, whose weights are not there yet."""
        config, shard, dim = self.config, self.shard, self.config.head_dim
        hidden, inner = config.hidden_size, shard.width(config.intermediate_size)
        query = shard.features(self.heads, dim, config.num_attention_heads)
        key = shard.features(self.kv_heads, dim, config.num_key_value_heads)
        heads = shard.features(self.heads, 1, config.num_attention_heads)
        bias = bool(config.attention_bias)
        sinks = self.empty(len(self.heads))
        layer = Layer(
            norm=self.empty(hidden),
            qkv=self.layer_linear(stacked(hidden, [query, key, key], bias=bias)),
            sinks=sinks,
            sinks_held=_cut(heads),
            attention=AttentionSpec(dim**-0.5, self.window(index), sinks=sinks),
            output=self.summed_linear(whole(query, hidden, bias=bias)),
            mlp_norm=self.empty(hidden),
            router=self.linear(whole(hidden, config.num_local_experts, bias=True)),
            gate_up=self._experts(hidden, _twice(inner)),
            down=self._experts(inner, hidden),
        )
        layer.mlp = partial(self._feed_forward, layer)
        if shard.size > 1:  # each has its features of every expert
            layer.down.adds = isinstance(inner, Cut) and inner.held[0].start == 0
            layer.mlp = shard.all_reduce(layer.mlp, None)
        return layer

    def _experts(self, inputs: Width, outputs: Width) -> ExpertProducts:
        count = self.config.num_local_experts
        bias = self.empty(count, held(outputs))
        if self._blocks is None:
            weight = self.empty(count, held(inputs), held(outputs))
            return PlainExperts(weight, bias, inputs=_cut(inputs), outputs=_cut(outputs))
        assert isinstance(inputs, int)  # what stays in blocks is not split
        if self.packing is not None:
            from yaie.models.gguf.experts import FileExperts

            return FileExperts(inputs, bias, self._blocks)
        from yaie.models.mxfp4 import BlockExperts

        return BlockExperts(inputs, bias, self._blocks)

    def destinations(self) -> dict[str, Destination]:
        places: dict[str, Destination] = {}
        if self.has_table:
            table = Destination(self.embedding, cuts=(_cut(self.vocab), None))
            places["embed_tokens.weight"] = table
        for index, layer in zip(self.held_layers, self.layers, strict=True):
            for name, place in layer.destinations().items():
                places[f"layers.{index}.{name}"] = place
        if self.shard.is_last:
            places["norm.weight"] = Destination(self.norm)
            if not self.is_tied:
                places |= self.head.destinations("lm_head")
        return places

    def is_elsewhere(self, name: str) -> bool:
        if name in ("embed_tokens.weight", "norm.weight", "lm_head.weight"):
            return self.shard.stages > 1 and not name.endswith(self.ignored_tensors)
        return of_other_layers(name, "layers", self.config.num_hidden_layers, self.held_layers)

    def weights_loaded(self) -> None:
        if self.shard.is_last and self.is_tied:
            self.head = self.tied_head(self.embedding)

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        return self.continued(self.embedded(token_ids, positions), positions, attend)

    def embedded(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return self.embed(token_ids)

    def continued(self, states: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        ops, eps, residual = self.ops, self.eps, states
        hidden = ops.rms_norm(residual, self.layers[0].norm, eps)
        following: list[Tensor | None] = [layer.norm for layer in self.layers[1:]]
        following.append(self.norm if self.shard.is_last else None)
        for index, (layer, next_norm) in enumerate(zip(self.layers, following, strict=True)):
            assert layer.mlp is not None
            hidden = self._attention(index, layer, hidden, positions, attend)
            hidden, residual = ops.fused_add_rms_norm(hidden, residual, layer.mlp_norm, eps)
            hidden = layer.mlp(hidden)
            if next_norm is None:  # it is the next stage's
                return residual + hidden
            hidden, residual = ops.fused_add_rms_norm(hidden, residual, next_norm, eps)
        return hidden

    def _attention(
        self, index: int, layer: Layer, hidden: Tensor, positions: Tensor, attend: Attend
    ) -> Tensor:
        parts = layer.qkv(hidden).split(layer.qkv.layout.sizes, dim=1)
        q, k, v = (part.unflatten(1, (-1, self.config.head_dim)) for part in parts)
        rotation = Rotation(self.ops.rope, positions, *self.tables)
        return layer.output(attend(index, q, k, v, layer.attention, rotation=rotation).flatten(1))

    def _feed_forward(self, layer: Layer, hidden: Tensor) -> Tensor:
        choice = best_of(layer.router(hidden), self.config.num_experts_per_tok)

        def compute(x: Tensor, groups: Groups) -> Tensor:
            inner = clamped_swiglu(layer.gate_up(x, groups), self.alpha, self.limit)
            return layer.down(inner, groups)

        return mixed(hidden, choice, self.config.num_local_experts, compute)

    def logits(self, hidden: Tensor) -> Tensor:
        own = self.local_logits(hidden)
        if self.shard.size == 1:
            return own
        return self.shard.all_gather_logits(self.config.vocab_size)(own)

    def local_logits(self, hidden: Tensor) -> Tensor:
        return self.head.in_float32(hidden)

    def first_choice(self, hidden: Tensor) -> Tensor:
        return self.shard.best(self.config.vocab_size)(self.local_logits(hidden))


def _cut(width: Width) -> Cut | None:
    return None if isinstance(width, int) else width


def _twice(width: Width) -> Width:
    """Of what has two numbers, side by side, for each of these features."""
    if isinstance(width, int):
        return 2 * width
    runs = tuple(range(2 * run.start, 2 * run.stop) for run in width.held)
    return Cut(2 * width.total, runs)


def clamped_swiglu(x: Tensor, alpha: float, limit: float) -> Tensor:
    """(up + 1) * gate * sigmoid(alpha * gate) for x [n, 2 * d] = gate, up, gate, up, ..., clamped."""
    gate = x[:, ::2].clamp(max=limit)
    up = x[:, 1::2].clamp(-limit, limit)
    return (up + 1) * (gate * torch.sigmoid(gate * alpha))
