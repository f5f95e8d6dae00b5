"""The weights of a decoder like Llama: which there are, and from which tensors of a checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec, KVLayerSpec
from yaie.core.contracts import TransformerOps
from yaie.core.gemm import FusedGemm, PlainWeight
from yaie.models.adapter import ModelAdapter, of_other_layers
from yaie.models.layout import Cut, Destination, Width, held, stacked, whole
from yaie.models.linear import SummedLinear
from yaie.models.rope import rope_tables, rotation_kind
from yaie.models.schemes import Packing, Scheme
from yaie.models.schemes.block_table import BlockTable
from yaie.models.schemes.blocks import BlockPacking
from yaie.models.schemes.cutting import Cuts
from yaie.models.stated import Stated
from yaie.models.whole import Product, Whole

KINDS = {"sliding_attention", "full_attention"}
"""Of layers, where `layer_types` tells those with a window apart."""


class Biases(NamedTuple):
    """Which products of a layer have a bias."""

    qkv: bool = False
    output: bool = False
    mlp: bool = False


class PlainGemm(NamedTuple):
    """The weights of a layer's products, for kernels that multiply by themselves."""

    qkv: PlainWeight
    output: PlainWeight
    gate_up: PlainWeight
    down: PlainWeight


@dataclass(slots=True)
class DecoderLayer:
    """The weights of one layer: norms [hidden], and four products. tables: cos and sin of rotations."""

    attention_norm: Tensor
    qkv: Scheme
    output: Scheme | SummedLinear
    mlp_norm: Tensor
    gate_up: Scheme
    down: Scheme | SummedLinear
    attention: AttentionSpec
    tables: tuple[Tensor, Tensor]

    @property
    def plain(self) -> PlainGemm | None:
        """None if one of the products is not stored so."""
        weights = [one.plain for one in (self.qkv, self.output, self.gate_up, self.down)]
        found = [weight for weight in weights if weight is not None]
        return PlainGemm(*found) if len(found) == len(weights) else None

    def destinations(
        self,
        gate_up: Sequence[str] = ("mlp.gate_proj", "mlp.up_proj"),
        down: str = "mlp.down_proj",
    ) -> dict[str, Destination]:
        """By name within the layer."""
        return {
            "input_layernorm.weight": Destination(self.attention_norm),
            "post_attention_layernorm.weight": Destination(self.mlp_norm),
            **self.qkv.destinations("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            **self.output.destinations("self_attn.o_proj"),
            **self.gate_up.destinations(*gate_up),
            **self.down.destinations(down),
        }


class DecoderWeights(ModelAdapter):
    """What a rank holds, from which tensors. Subclasses say where they differ: `biases`, `window`,
    `attention`, `gate_up_names`, `fuses`."""

    checkpoint_prefix = "model."
    takes_packed = True
    takes_shards = True
    tied_tensors = ("embed_tokens.weight", "lm_head.weight")
    ignored_tensors: tuple[str, ...] = ("rotary_emb.inv_freq",)
    gate_up_names: ClassVar[tuple[str, ...]] = ("mlp.gate_proj", "mlp.up_proj")
    """What a checkpoint calls these products of a layer: two, or one that is stored as both."""
    down_name: ClassVar[str] = "mlp.down_proj"
    fuses: ClassVar[bool] = True
    """Whether its layers may be computed by the products of `FusedGemm`."""

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
        shard = self.shard
        self.fused: FusedGemm | None = getattr(ops, "fused", None)
        self.plain: list[PlainGemm] | None = None
        heads = config.num_attention_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        self.heads, self.kv_heads = shard.heads(heads, config.num_key_value_heads)
        self.held_layers = shard.layers(config.num_hidden_layers)
        kind = KVLayerSpec(len(self.kv_heads), self.head_dim)
        self.kv_layers = [kind] * len(self.held_layers)
        self.windows = [self.window(index) for index in range(config.num_hidden_layers)]
        self.eps = config.rms_norm_eps
        self._tables: dict[str | None, tuple[Tensor, Tensor]] = {}
        self.vocab = shard.vocab(config.vocab_size)
        is_tied = config.tie_word_embeddings
        self.table = self.packed_table()
        self.embed: Product
        if self.table is not None:
            self.embed = self.table.embed
        elif shard.is_first or (shard.is_last and is_tied):
            self.embedding = self.empty(held(self.vocab), config.hidden_size)
            self.embed = shard.lookup(self.embedding, self.vocab)
        self.layers = [self.decoder_layer(index) for index in self.held_layers]
        if is_tied:
            self.ignored_tensors = (*self.ignored_tensors, "lm_head.weight")
        if shard.is_last:
            self.norm = self.empty(config.hidden_size)
            if not is_tied:
                head = self.packed_table()
                self.head = head or self.linear(whole(config.hidden_size, self.vocab))

    def packed_table(self) -> BlockTable | None:
        """Of a model in a GGUF, whose tables are in blocks, too, where one rank has all tokens."""
        config, packing = self.config, self.packing
        if not isinstance(packing, BlockPacking) or packing.format.method != "gguf":
            return None
        if not self.shard.is_whole:
            return None
        return BlockTable(config.vocab_size, config.hidden_size, self.dtype, packing.products)

    @classmethod
    def handles(cls, config: Any) -> bool:
        return config.hidden_act in ("silu", "swish")

    @classmethod
    def cuts(cls, config: Any, size: int) -> Cuts:
        heads, inner = config.num_attention_heads, cls.inner_features(config) // size
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        query = heads // size * head_dim
        key = max(1, config.num_key_value_heads // size) * head_dim
        return {
            "self_attn.q_proj": ("outputs", query),
            "self_attn.k_proj": ("outputs", key),
            "self_attn.o_proj": ("inputs", query),
            "mlp.gate_proj": ("outputs", inner),
            "mlp.down_proj": ("inputs", inner),
        }

    @classmethod
    def stated(cls, config: Any) -> Sequence[Stated]:
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        attention = "layers.0.self_attn"
        return (
            Stated("vocab_size", config.vocab_size, "embed_tokens.weight", 0),
            Stated("hidden_size", config.hidden_size, "embed_tokens.weight", 1),
            Stated("intermediate_size", config.intermediate_size, "layers.0.mlp.up_proj.weight", 0),
            Stated(
                "num_attention_heads times head_dim",
                heads * head_dim,
                f"{attention}.q_proj.weight",
                0,
            ),
            Stated(
                "num_key_value_heads times head_dim",
                kv_heads * head_dim,
                f"{attention}.k_proj.weight",
                0,
            ),
        )

    def biases(self) -> Biases:
        """Which products have a bias."""
        attention = bool(self.config.attention_bias)
        return Biases(qkv=attention, output=attention, mlp=bool(self.config.mlp_bias))

    def window(self, layer: int) -> int | None:
        """How many keys a query of this layer sees, itself included; None for all."""
        return None

    def attention(self, layer: int) -> AttentionSpec:
        """What kind of attention this layer wants."""
        return AttentionSpec(scale=self.head_dim**-0.5, window=self.window(layer))

    def tables(self, layer: int) -> tuple[Tensor, Tensor]:
        """cos and sin of this layer's rotation, one pair for all layers that turn alike."""
        kind = rotation_kind(self.config, layer)
        if kind not in self._tables:
            made = rope_tables(self.config, self.max_length, self.device, kind=kind)
            self._tables[kind] = made
        return self._tables[kind]

    def decoder_layer(self, index: int) -> DecoderLayer:
        """Layer `index` of the model, whose weights are not there yet."""
        config, shard = self.config, self.shard
        hidden, inner = config.hidden_size, shard.width(self.inner_features(config))
        query = shard.features(self.heads, self.head_dim, config.num_attention_heads)
        key = shard.features(self.kv_heads, self.head_dim, config.num_key_value_heads)
        biases = self.biases()
        gate_up: list[Width] = [inner, inner] if len(self.gate_up_names) == 2 else [2 * held(inner)]
        # ANCHOR: products
        return DecoderLayer(
            attention_norm=self.empty(hidden),
            qkv=self.layer_linear(stacked(hidden, [query, key, key], bias=biases.qkv)),
            output=self.summed_linear(whole(query, hidden, bias=biases.output)),
            mlp_norm=self.empty(hidden),
            gate_up=self.layer_linear(stacked(hidden, gate_up, bias=biases.mlp)),
            down=self.summed_linear(whole(inner, hidden, bias=biases.mlp)),
            attention=self.attention(index),
            tables=self.tables(index),
        )
        # ANCHOR_END: products

    def destinations(self) -> dict[str, Destination]:
        places: dict[str, Destination] = {}
        shard, is_tied = self.shard, self.config.tie_word_embeddings
        if self.table is not None:
            places |= self.table.destinations("embed_tokens")
        elif shard.is_first or (shard.is_last and is_tied):
            cut = self.vocab if isinstance(self.vocab, Cut) else None
            places["embed_tokens.weight"] = Destination(self.embedding, cuts=(cut, None))
        for index, layer in zip(self.held_layers, self.layers, strict=True):
            for name, place in layer.destinations(self.gate_up_names, self.down_name).items():
                places[f"layers.{index}.{name}"] = place
        if shard.is_last:
            places["norm.weight"] = Destination(self.norm)
            if not is_tied:
                places |= self.head.destinations("lm_head")
        return places

    def is_elsewhere(self, name: str) -> bool:
        if name in ("embed_tokens.weight", "norm.weight", "lm_head.weight"):
            return self.shard.stages > 1 and not name.endswith(self.ignored_tensors)
        return of_other_layers(name, "layers", self.config.num_hidden_layers, self.held_layers)

    def weights_loaded(self) -> None:
        if self.shard.is_last and self.config.tie_word_embeddings:
            self.head = self.table or self.tied_head(self.embedding)
        plain = [layer.plain for layer in self.layers]
        found = [products for products in plain if products is not None]
        self.plain = found if self.fuses and len(found) == len(plain) else None


def sliding_window(config: Any, layer: int) -> int | None:
    """The window of a layer, in a model whose `layer_types` say which layers have one."""
    is_sliding = config.layer_types[layer] == "sliding_attention"
    window: int | None = (config.sliding_window or None) if is_sliding else None
    return window
