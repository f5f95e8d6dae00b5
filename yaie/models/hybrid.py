"""What hybrid families share: each layer mixes tokens by attention or by a state, as its kind says."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec, HeadNorms, KVLayerSpec, Rotation
from yaie.core.contracts import Attend, TransformerOps
from yaie.core.contracts.states import StateLayerSpec, StateTensor, StepStates
from yaie.core.gemm import FusedGemm
from yaie.models.adapter import ModelAdapter
from yaie.models.decoder_weights import PlainGemm
from yaie.models.layout import Cut, Destination, Width, held, plus_one, stacked, whole
from yaie.models.linear import SummedLinear
from yaie.models.schemes import Scheme
from yaie.models.stated import Stated
from yaie.models.whole import Whole


class Mixer(Protocol):
    """The part of a layer in which tokens of a sequence meet: output(mixer(into(hidden)))."""

    into: Scheme
    output: Scheme | SummedLinear

    def destinations(self) -> dict[str, Destination]:
        """By name within the layer."""
        ...

    def __call__(
        self, hidden: Tensor, positions: Tensor, attend: Attend, states: StepStates
    ) -> Tensor:
        """hidden: what `into` has made of the tokens [T, ...]. Returns what `output` takes."""
        ...


class LayerNames(NamedTuple):
    """What a checkpoint calls the parts of a layer that are no mixer. gate_up: two products, or one that
    is stored as both. final: the norm behind the last layer."""

    norm: str
    mlp_norm: str
    gate_up: tuple[str, ...]
    down: str
    final: str


class AttentionNames(NamedTuple):
    """What a checkpoint calls the products and norms of a layer's attention. norms: of queries and keys;
    none if it has none."""

    output: str = "self_attn.o_proj"
    norms: tuple[str, ...] = ()
    qkv: tuple[str, str, str] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


@dataclass(slots=True)
class Layer:
    """norm, mlp_norm: [hidden], before the mixer and before the feed-forward layer."""

    norm: Tensor
    mixer: Mixer
    mlp_norm: Tensor
    gate_up: Scheme
    down: Scheme | SummedLinear

    @property
    def plain(self) -> PlainGemm | None:
        """None if one of the products is not stored so."""
        every = (self.mixer.into, self.mixer.output, self.gate_up, self.down)
        found = [one.plain for one in every if one.plain is not None]
        return PlainGemm(*found) if len(found) == len(every) else None


class HybridAdapter(ModelAdapter):
    """RMSNorm before a mixer and before SwiGLU, over and over.

    Subclasses say where they differ: names, `adds_one`, `is_gated`, `mixer`, and numbers that products
    are multiplied by. They make each mixer's index by `attends` or `keeps`.

    residual_scale: of what a mixer or a feed-forward layer adds.
    """

    keeps_states = True
    takes_shards = True
    checkpoint_prefix = "model."
    tied_tensors = ("embed_tokens.weight", "lm_head.weight")
    names: ClassVar[LayerNames]
    attention_names: ClassVar[AttentionNames] = AttentionNames()
    is_gated: ClassVar[bool] = False
    """Whether each head's query comes with a gate for what the head attends to."""
    inner_field: ClassVar[str] = "intermediate_size"
    """What config.json calls `inner_features`."""
    adds_one: ClassVar[bool] = False
    """Whether the norms of its layers multiply by 1 + weight, which is what is held here, in the model's
    dtype."""

    def __init__(
        self,
        config: Any,
        ops: TransformerOps,
        dtype: torch.dtype,
        device: torch.device,
        max_length: int,
        shard: Whole | None = None,
    ) -> None:
        super().__init__(config, ops, dtype, device, max_length, shard=shard)
        self.residual_scale = 1.0
        self.fused: FusedGemm | None = getattr(ops, "fused", None)
        self.plain: list[PlainGemm] = []
        self.eps = _eps(config)
        self.head_dim = head_dim(config)
        heads = config.num_attention_heads, config.num_key_value_heads
        self.heads, self.kv_heads = self.shard.heads(*heads)
        self.kv_layers = []
        self.state_layers: list[StateLayerSpec] = []
        self.vocab = self.shard.vocab(config.vocab_size)
        self.embedding = self.empty(held(self.vocab), config.hidden_size)
        self.embed = self.shard.lookup(self.embedding, self.vocab)
        self.layers = [self.make_layer(kind) for kind in config.layer_types]
        self.norm = self.empty(config.hidden_size)
        self.is_tied = bool(config.tie_word_embeddings)
        if self.is_tied:
            self.ignored_tensors = ("lm_head.weight",)
        else:
            self.head = self.linear(whole(config.hidden_size, self.vocab))

    @abstractmethod
    def mixer(self, kind: str) -> Mixer:
        """That of the next layer, which is of this kind (`layer_types`)."""

    @classmethod
    def stated(cls, config: Any) -> Sequence[Stated]:
        gate_up, inner, field = cls.names.gate_up, cls.inner_features(config), cls.inner_field
        if len(gate_up) == 1:
            inner, field = 2 * inner, f"twice {field}"
        return [
            Stated("vocab_size", config.vocab_size, "embed_tokens.weight", 0),
            Stated("hidden_size", config.hidden_size, "embed_tokens.weight", 1),
            Stated(field, inner, f"layers.0.{gate_up[0]}.weight", 0),
            *cls._stated_heads(config),
            *cls.stated_states(config, f"layers.{_first(config, attends=False)}"),
        ]

    @classmethod
    def _stated_heads(cls, config: Any) -> Iterator[Stated]:
        layer, (query, key, _) = f"layers.{_first(config, attends=True)}", cls.attention_names.qkv
        for name, heads, times in (
            (query, "num_attention_heads", 1 + cls.is_gated),
            (key, "num_key_value_heads", 1),
        ):
            size = getattr(config, heads) * head_dim(config) * times
            field = f"{heads} times head_dim{' times 2' if times == 2 else ''}"
            yield Stated(field, size, f"{layer}.{name}.weight", 0)

    @classmethod
    @abstractmethod
    def stated_states(cls, config: Any, layer: str) -> Sequence[Stated]:
        """As `stated`, of what decides how large a state is. layer: one that keeps one, by name."""

    def attends(self, kv_heads: int) -> int:
        """The index of one more layer that attends."""
        self.kv_layers.append(KVLayerSpec(kv_heads, self.head_dim))
        return len(self.kv_layers) - 1

    def keeps(self, *tensors: StateTensor) -> int:
        """The index of one more layer that keeps such a state."""
        self.state_layers.append(tensors)
        return len(self.state_layers) - 1

    def make_layer(self, kind: str) -> Layer:
        """The next layer, whose weights are not there yet."""
        hidden, inner = self.config.hidden_size, self.shard.width(self.inner_features(self.config))
        two = len(self.names.gate_up) == 2
        return Layer(
            norm=self.empty(hidden),
            mixer=self.mixer(kind),
            mlp_norm=self.empty(hidden),
            gate_up=self.linear(
                stacked(hidden, [inner, inner]) if two else whole(hidden, joined([inner, inner]))
            ),
            down=self.summed_linear(whole(inner, hidden)),
        )

    def norm_place(self, weight: Tensor) -> Destination:
        """Of a norm's weight."""
        return plus_one(weight) if self.adds_one else Destination(weight)

    def destinations(self) -> dict[str, Destination]:
        places = {
            "embed_tokens.weight": held_part(self.embedding, self.vocab),
            f"{self.names.final}.weight": self.norm_place(self.norm),
        }
        for index, layer in enumerate(self.layers):
            places |= self.layer_places(layer, f"layers.{index}")
        return places if self.is_tied else places | self.head.destinations("lm_head")

    def layer_places(self, layer: Layer, prefix: str) -> dict[str, Destination]:
        """`destinations` of a layer that is called so."""
        names = self.names
        parts = {
            f"{names.norm}.weight": self.norm_place(layer.norm),
            f"{names.mlp_norm}.weight": self.norm_place(layer.mlp_norm),
            **layer.mixer.destinations(),
            **layer.gate_up.destinations(*names.gate_up),
            **layer.down.destinations(names.down),
        }
        return {f"{prefix}.{name}": place for name, place in parts.items()}

    def weights_loaded(self) -> None:
        if self.is_tied:
            self.head = self.tied_head(self.embedding)
        plain = [layer.plain for layer in self.layers]
        if self.residual_scale == 1 and None not in plain:
            self.plain = [products for products in plain if products is not None]

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        ops, eps, states = self.ops, self.eps, states_of(attend)
        residual = self.embedded(token_ids, positions)
        if self.plain and self.fused and self.fused.takes(residual, self.plain[0].qkv):
            return self._fused(self.fused, residual, positions, attend, states)
        hidden = ops.rms_norm(residual, self.layers[0].norm, eps)
        following = [*(layer.norm for layer in self.layers[1:]), self.norm]
        for layer, next_norm in zip(self.layers, following, strict=True):
            mixer = layer.mixer
            hidden = mixer.output(mixer(mixer.into(hidden), positions, attend, states))
            hidden = self._scaled(hidden)
            hidden, residual = ops.fused_add_rms_norm(hidden, residual, layer.mlp_norm, eps)
            hidden = self._scaled(layer.down(ops.silu_mul(layer.gate_up(hidden))))
            hidden, residual = ops.fused_add_rms_norm(hidden, residual, next_norm, eps)
        return hidden

    def _fused(
        self,
        fused: FusedGemm,
        residual: Tensor,
        positions: Tensor,
        attend: Attend,
        states: StepStates,
    ) -> Tensor:
        """`forward` of few rows: each product together with what stands before and behind it."""
        eps = self.eps
        for layer, plain in zip(self.layers, self.plain, strict=True):
            hidden = fused.after_norm(residual, layer.norm, eps, plain.qkv)
            hidden = layer.mixer(hidden, positions, attend, states)
            residual = self.shard.onto(fused, hidden, plain.output, residual)
            hidden = fused.gated(residual, layer.mlp_norm, eps, plain.gate_up)
            residual = self.shard.onto(fused, hidden, plain.down, residual)
        return self.ops.rms_norm(residual, self.norm, eps)

    def embedded(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return self.embed(token_ids)

    def _scaled(self, hidden: Tensor) -> Tensor:
        return hidden if self.residual_scale == 1 else hidden * self.residual_scale

    def logits(self, hidden: Tensor) -> Tensor:
        held_here = self.local_logits(hidden)
        if self.shard.size == 1:
            return held_here
        return self.shard.all_gather_logits(self.config.vocab_size)(held_here)

    def local_logits(self, hidden: Tensor) -> Tensor:
        return self.head.in_float32(hidden)

    def first_choice(self, hidden: Tensor) -> Tensor:
        return self.shard.best(self.config.vocab_size)(self.local_logits(hidden))


class HybridAttention:
    """Grouped-query attention of an adapter's layer.

    tables: cos and sin of the rotation; None for heads that are neither turned nor normed.
    """

    def __init__(
        self,
        adapter: HybridAdapter,
        tables: tuple[Tensor, Tensor] | None,
        scale: float | None = None,
    ) -> None:
        config, dim, shard = adapter.config, adapter.head_dim, adapter.shard
        self._adapter = adapter
        self._tables = tables
        self.index = adapter.attends(len(adapter.kv_heads))
        self.spec = AttentionSpec(scale=dim**-0.5 if scale is None else scale)
        count, kv_count = config.num_attention_heads, config.num_key_value_heads
        query, gated = (shard.features(adapter.heads, dim * times, count) for times in (1, 2))
        key = shard.features(adapter.kv_heads, dim, kv_count)
        bias = bool(getattr(config, "attention_bias", False))
        sizes = [gated if adapter.is_gated else query, key, key]
        self.into = adapter.linear(stacked(config.hidden_size, sizes, bias=bias))
        self.output = adapter.summed_linear(whole(query, config.hidden_size, bias=bias))
        self.norms: HeadNorms | None = None
        if adapter.attention_names.norms:
            norm = adapter.ops.rms_norm
            self.norms = HeadNorms(norm, adapter.empty(dim), adapter.empty(dim), adapter.eps)

    def destinations(self) -> dict[str, Destination]:
        """See Mixer."""
        names = self._adapter.attention_names
        places = self.into.destinations(*names.qkv) | self.output.destinations(names.output)
        if self.norms is not None:
            for name, weight in zip(names.norms, (self.norms.q, self.norms.k), strict=True):
                places[f"{name}.weight"] = self._adapter.norm_place(weight)
        return places

    def __call__(
        self, hidden: Tensor, positions: Tensor, attend: Attend, states: StepStates
    ) -> Tensor:
        """See Mixer."""
        attended, gate = self.attended(hidden, positions, attend)
        return attended.flatten(1) if gate is None else states.ops.sigmoid_gate(attended, gate)

    def attended(
        self, hidden: Tensor, positions: Tensor, attend: Attend
    ) -> tuple[Tensor, Tensor | None]:
        """What each head attends to [T, heads, d], and the gate for it, if there is one."""
        dim, parts = self._adapter.head_dim, hidden.split(self.into.layout.sizes, dim=1)
        q, k, v = (part.unflatten(1, (-1, dim)) for part in parts)
        gate = None
        if self._adapter.is_gated:
            q, gate = q[:, ::2].contiguous(), q[:, 1::2]
        rotation = None
        if self._tables is not None:
            rope = self._adapter.ops.rope
            rotation = Rotation(rope, positions, *self._tables, self.norms)
        return attend(self.index, q, k, v, self.spec, rotation=rotation), gate


def joined(parts: Sequence[Width]) -> Width:
    """Of several tensors that a checkpoint has as one, one above the other: all, or a rank's part."""
    runs: list[range] = []
    begin = 0
    for part in parts:
        total, own = (part, (range(part),)) if isinstance(part, int) else (part.total, part.held)
        runs += (range(begin + run.start, begin + run.stop) for run in own)
        begin += total
    return Cut(begin, tuple(runs)) if any(isinstance(part, Cut) for part in parts) else begin


def held_part(target: Tensor, width: Width) -> Destination:
    """Of a tensor whose first axis may be split."""
    cut = width if isinstance(width, Cut) else None
    return Destination(target, cuts=(cut, *[None] * (target.dim() - 1)))


def states_of(attend: Attend) -> StepStates:
    """The states beside the attention of a step.

    Raises RuntimeError where a model is run by something that keeps keys and values alone.
    """
    states: StepStates | None = getattr(attend, "states", None)
    if states is None:
        raise RuntimeError("a model whose layers keep a state was run without a pool of states")
    return states


def head_dim(config: Any) -> int:
    """Dimensions of a head of a layer that attends."""
    return int(
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )


def _first(config: Any, *, attends: bool) -> int:
    """The number of the first layer that attends, or that keeps a state."""
    kinds = ("full_attention", "attention")
    return [kind in kinds for kind in config.layer_types].index(attends)


def _eps(config: Any) -> float:
    return float(config.norm_eps if hasattr(config, "norm_eps") else config.rms_norm_eps)
