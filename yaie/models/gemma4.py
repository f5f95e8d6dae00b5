"""Gemma 4 (Gemma Team 2026): heads of two sizes, last layers that borrow keys and values of earlier
ones, and an embedding of each token for each layer, or experts.

A layer that borrows keeps a copy of what it borrowed: each layer has its own part of the pool.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import AttentionSpec, HeadNorms, KVLayerSpec, Rotation
from yaie.core.contracts import Attend, TransformerOps
from yaie.models.adapter import ModelAdapter, register
from yaie.models.decoder_weights import KINDS, sliding_window
from yaie.models.gemma import gelu_mul
from yaie.models.gemma4_experts import GemmaExperts
from yaie.models.layout import Destination, Layout, Stored, stacked, whole
from yaie.models.rope import rope_tables
from yaie.models.schemes import Packing, Scheme
from yaie.models.stated import Stated

QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
GATE, PROJECT = "per_layer_input_gate", "per_layer_projection"
TOKEN_PROJECT = "per_layer_model_projection"
NO_WEIGHTS = ("k_proj", "v_proj", "k_norm", "v_norm")
"""Of a layer that borrows: some checkpoints hold their tensors all the same."""


@dataclass(slots=True)
class TokenInput:
    """How a layer takes what the token itself says to it: norm(project(gelu(gate(hidden)) * input))."""

    gate: Scheme
    project: Scheme
    norm: Tensor

    def destinations(self) -> dict[str, Destination]:
        """By name within the layer."""
        return {
            **self.gate.destinations(GATE),
            **self.project.destinations(PROJECT),
            "post_per_layer_input_norm.weight": Destination(self.norm),
        }


@dataclass(slots=True)
class Layer:
    """norms: [hidden] of what attention and the feed-forward layer read and give, in the order of their
    use. into: of query, key and value; without value where it is the key, and of the query alone in a
    layer that borrows. scalar: [1], multiplies what the layer gives."""

    kind: str
    dim: int
    norms: tuple[Tensor, Tensor, Tensor, Tensor]
    into: Scheme
    head_norms: HeadNorms
    unscaled: Tensor
    attention: AttentionSpec
    tables: tuple[Tensor, Tensor]
    output: Scheme
    gate_up: Scheme
    down: Scheme
    experts: GemmaExperts | None
    token_input: TokenInput | None
    scalar: Tensor

    @property
    def borrows(self) -> bool:
        """Whether it has no keys and values of its own."""
        return len(self.into.layout.sizes) == 1

    def destinations(self) -> dict[str, Destination]:
        """By name within the layer."""
        read, given, mlp_read, mlp_given = self.norms
        places = {
            "input_layernorm.weight": Destination(read),
            "post_attention_layernorm.weight": Destination(given),
            "pre_feedforward_layernorm.weight": Destination(mlp_read),
            "post_feedforward_layernorm.weight": Destination(mlp_given),
            "layer_scalar": Destination(self.scalar, parameters=0, kept=0),
            "self_attn.q_norm.weight": Destination(self.head_norms.q),
            **self.into.destinations(*QKV[: len(self.into.layout.sizes)]),
            **self.output.destinations("self_attn.o_proj"),
            **self.gate_up.destinations("mlp.gate_proj", "mlp.up_proj"),
            **self.down.destinations("mlp.down_proj"),
        }
        if not self.borrows:
            places["self_attn.k_norm.weight"] = Destination(self.head_norms.k)
        more = (self.experts, self.token_input)
        return places | {
            name: place for part in more if part for name, place in part.destinations().items()
        }


@register("Gemma4ForCausalLM", "Gemma4UnifiedForCausalLM")
class Gemma4Adapter(ModelAdapter):
    """A norm before and behind each sublayer, GELU as the gate, scores that are not scaled."""

    checkpoint_prefix = "model."
    takes_packed = True
    tied_tensors = ("embed_tokens.weight", "lm_head.weight")

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
        hidden, count = config.hidden_size, config.num_hidden_layers
        self.eps = config.rms_norm_eps
        self.width = getattr(config, "hidden_size_per_layer_input", 0)  # "unified" has none
        self.has_experts = self.rows_meet = _has_experts(config)
        self.kv_layers = []
        self._k_norms: dict[str, Tensor] = {}
        self._tables: dict[str, tuple[Tensor, Tensor]] = {}
        self.windows = [self.window(index) for index in range(count)]
        self.embedding = self.empty(config.vocab_size, hidden)
        self.scale = self._rounded(hidden**0.5)
        if self.width:
            self.token_table = self.empty(config.vocab_size_per_layer_input, count * self.width)
            self.token_scale = self._rounded(self.width**0.5)
            layout = whole(hidden, count * self.width)
            self.token_project = self._product(layout, TOKEN_PROJECT)
            self.token_norm = self.empty(self.width)
        self.layers = [self._layer(index) for index in range(count)]
        borrowing = [index for index, layer in enumerate(self.layers) if layer.borrows]
        lending = {layer.kind: i for i, layer in enumerate(self.layers) if not layer.borrows}
        self._lent_from = min(lending.values()) if borrowing else count
        self._not_taken = tuple(
            f"layers.{index}.self_attn.{name}." for index in borrowing for name in NO_WEIGHTS
        )
        self.norm = self.empty(hidden)
        self.is_tied = bool(config.tie_word_embeddings)
        if self.is_tied:
            self.ignored_tensors = ("lm_head.weight",)
        else:
            self.head = self.linear(whole(hidden, config.vocab_size))

    @classmethod
    def handles(cls, config: Any) -> bool:
        kinds, cap = config.layer_types, config.final_logit_softcapping
        lending = kinds[: len(kinds) - config.num_kv_shared_layers]
        return (
            {*kinds} <= KINDS
            and {*kinds} == {*lending}
            and config.hidden_activation == "gelu_pytorch_tanh"
            and config.use_bidirectional_attention != "all"
            and (cap is None or cap > 0)
            and hasattr(config, "per_layer_config")
            and _has_enough(config)
        )

    @classmethod
    def packs(cls, config: Any) -> bool:
        return not _has_experts(config)  # which are packed one by one, or in one tensor

    @classmethod
    def stated(cls, config: Any) -> Sequence[Stated]:
        return (
            Stated("vocab_size", config.vocab_size, "embed_tokens.weight", 0),
            Stated("hidden_size", config.hidden_size, "embed_tokens.weight", 1),
            Stated("intermediate_size", config.intermediate_size, "layers.0.mlp.up_proj.weight", 0),
        )

    def window(self, layer: int) -> int | None:
        """How many keys a query of this layer sees, itself included; None for all."""
        return sliding_window(self.config, layer)

    def _rounded(self, factor: float) -> float:
        """As transformers rounds the factors of its embeddings."""
        return float(torch.tensor(factor, dtype=self.dtype))

    def _product(self, layout: Layout, *names: str) -> Scheme:
        """Packed unless the checkpoint has it in floating point: tools differ in what they pack."""
        plain = frozenset() if self.packing is None else self.packing.format.plain
        return self.linear(layout) if plain.issuperset(names) else self.layer_linear(layout)

    def _layer(self, index: int) -> Layer:
        """Layer `index`, whose weights are not there yet."""
        place = f"layers.{index}."
        config, hidden, kind = self.config, self.config.hidden_size, self.config.layer_types[index]
        own, bias = config.per_layer_config[index], bool(config.attention_bias)
        heads, kv_heads, dim = config.num_attention_heads, own.num_key_value_heads, own.head_dim
        self.kv_layers.append(KVLayerSpec(kv_heads, dim))
        borrows = index >= config.num_hidden_layers - config.num_kv_shared_layers
        is_wide = config.use_double_wide_mlp and borrows
        inner = config.intermediate_size * (2 if is_wide else 1)
        sizes = [heads * dim]
        if not borrows:
            key_is_value = config.attention_k_eq_v and kind == "full_attention"
            sizes += [kv_heads * dim] * (1 if key_is_value else 2)
            self._k_norms[kind] = self.empty(dim)
        return Layer(
            kind=kind,
            dim=dim,
            norms=(self.empty(hidden), self.empty(hidden), self.empty(hidden), self.empty(hidden)),
            into=self._product(
                stacked(hidden, sizes, bias=bias), *(f"{place}{one}" for one in QKV[: len(sizes)])
            ),
            head_norms=HeadNorms(self.ops.rms_norm, self.empty(dim), self._k_norms[kind], self.eps),
            unscaled=torch.ones(dim, dtype=self.dtype, device=self.device),
            attention=AttentionSpec(1.0, self.window(index)),
            tables=self._tables_of(kind),
            output=self._product(whole(heads * dim, hidden, bias=bias), f"{place}self_attn.o_proj"),
            gate_up=self._product(
                stacked(hidden, [inner, inner]), f"{place}mlp.gate_proj", f"{place}mlp.up_proj"
            ),
            down=self._product(whole(inner, hidden), f"{place}mlp.down_proj"),
            experts=GemmaExperts(self, config) if self.has_experts else None,
            token_input=self._token_input(place) if self.width else None,
            scalar=self.empty(1),
        )

    def _token_input(self, place: str) -> TokenInput:
        hidden = self.config.hidden_size
        return TokenInput(
            self._product(whole(hidden, self.width), f"{place}{GATE}"),
            self._product(whole(self.width, hidden), f"{place}{PROJECT}"),
            self.empty(hidden),
        )

    def _tables_of(self, kind: str) -> tuple[Tensor, Tensor]:
        """cos and sin for all layers of a kind, whose heads have the same size."""
        if kind not in self._tables:
            own = self.config.per_layer_config[kind]
            self._tables[kind] = rope_tables(own, self.max_length, self.device, kind=kind)
        return self._tables[kind]

    def destinations(self) -> dict[str, Destination]:
        places = {
            "embed_tokens.weight": Destination(self.embedding),
            "norm.weight": Destination(self.norm),
        }
        if self.width:
            places |= {
                "embed_tokens_per_layer.weight": Destination(self.token_table),
                **self.token_project.destinations(TOKEN_PROJECT),
                "per_layer_projection_norm.weight": Destination(self.token_norm),
            }
        for index, layer in enumerate(self.layers):
            for name, place in layer.destinations().items():
                places[f"layers.{index}.{name}"] = place
        return places if self.is_tied else places | self.head.destinations("lm_head")

    def load_weights(self, tensors: Iterable[tuple[str, Stored]]) -> None:
        super().load_weights(
            (name, tensor)
            for name, tensor in tensors
            if not self.short_name(name).startswith(self._not_taken)
        )

    def weights_loaded(self) -> None:
        if self.is_tied:
            self.head = self.tied_head(self.embedding)

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        ops, eps = self.ops, self.eps
        residual = F.embedding(token_ids, self.embedding) * self.scale
        inputs = self._token_inputs(token_ids, residual) if self.width else None
        lent: dict[str, tuple[Tensor, Tensor]] = {}
        for index, layer in enumerate(self.layers):
            read, given, mlp_read, mlp_given = layer.norms
            hidden = ops.rms_norm(residual, read, eps)
            hidden = self._attention(index, layer, hidden, positions, attend, lent)
            hidden = ops.rms_norm(hidden, given, eps)
            hidden, residual = ops.fused_add_rms_norm(hidden, residual, mlp_read, eps)
            hidden = layer.down(gelu_mul(layer.gate_up(hidden)))
            if layer.experts is not None:
                hidden = layer.experts(hidden, residual)
            residual = residual + ops.rms_norm(hidden, mlp_given, eps)
            if layer.token_input is not None and inputs is not None:
                residual = residual + self._of_token(layer.token_input, residual, inputs[:, index])
            residual = residual * layer.scalar
        return ops.rms_norm(residual, self.norm, eps)

    def _attention(
        self,
        index: int,
        layer: Layer,
        hidden: Tensor,
        positions: Tensor,
        attend: Attend,
        lent: dict[str, tuple[Tensor, Tensor]],
    ) -> Tensor:
        """lent: keys and values of the last layer of each kind that has some."""
        parts = layer.into(hidden).split(layer.into.layout.sizes, dim=1)
        q, *own = (part.unflatten(1, (-1, layer.dim)) for part in parts)
        if own:  # the last of them is the value, be it the key or not
            lent[layer.kind] = own[0], self.ops.rms_norm(own[-1], layer.unscaled, self.eps)
        k, v = lent[layer.kind]
        if index >= self._lent_from:
            k = k.clone()  # attention may overwrite it, and a later layer needs it as it is
        rotation = Rotation(self.ops.rope, positions, *layer.tables, layer.head_norms)
        return layer.output(attend(index, q, k, v, layer.attention, rotation=rotation).flatten(1))

    def _token_inputs(self, token_ids: Tensor, embedded: Tensor) -> Tensor:
        """What each token says to each layer, [T, layers, width]: by a table, and by its embedding."""
        shape = (len(token_ids), len(self.layers), self.width)
        by_table = (F.embedding(token_ids, self.token_table) * self.token_scale).view(shape)
        projected = (self.token_project(embedded) * self.config.hidden_size**-0.5).view(shape)
        return (self.ops.rms_norm(projected, self.token_norm, self.eps) + by_table) * 2**-0.5

    def _of_token(self, taken: TokenInput, hidden: Tensor, given: Tensor) -> Tensor:
        gate = F.gelu(taken.gate(hidden), approximate="tanh")
        return self.ops.rms_norm(taken.project(gate * given), taken.norm, self.eps)

    def logits(self, hidden: Tensor) -> Tensor:
        logits, cap = self.head.in_float32(hidden), self.config.final_logit_softcapping
        return logits if cap is None else logits.div_(cap).tanh_().mul_(cap)


def _has_experts(config: Any) -> bool:
    return bool(getattr(config, "enable_moe_block", False))


def _has_enough(config: Any) -> bool:
    """Whether there are as many experts as a token takes, if it takes some."""
    return not _has_experts(config) or (
        0 < (config.top_k_experts or 0) <= (config.num_experts or 0)
    )
