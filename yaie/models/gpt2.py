"""GPT-2 (Radford et al. 2019), and what was tuned from it, such as DialoGPT."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import AttentionSpec, KVLayerSpec
from yaie.core.contracts import Attend, TransformerOps
from yaie.models.adapter import ModelAdapter, check_activation, of_other_layers, register
from yaie.models.layout import Cut, Destination, held, whole
from yaie.models.linear import SummedLinear
from yaie.models.schemes import Packing, Scheme
from yaie.models.stated import Stated
from yaie.models.whole import Whole


@dataclass(slots=True)
class LayerNorm:
    """Ba et al. 2016: weight and bias, each [hidden]."""

    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

    def destinations(self, name: str) -> dict[str, Destination]:
        return {
            f"{name}.weight": Destination(self.weight),
            f"{name}.bias": Destination(self.bias),
        }


@dataclass(slots=True)
class Block:
    """The weights of one layer. Its query, key and value come fused in the checkpoint."""

    attention_norm: LayerNorm
    qkv: Scheme
    output: Scheme | SummedLinear
    mlp_norm: LayerNorm
    up: Scheme
    down: Scheme | SummedLinear
    attention: AttentionSpec

    def destinations(self) -> dict[str, Destination]:
        """By name within the layer."""
        return {
            **self.attention_norm.destinations("ln_1"),
            **self.qkv.destinations("attn.c_attn"),
            **self.output.destinations("attn.c_proj"),
            **self.mlp_norm.destinations("ln_2"),
            **self.up.destinations("mlp.c_fc"),
            **self.down.destinations("mlp.c_proj"),
        }


def _activation(name: str) -> Callable[[Tensor], Tensor]:
    """By transformers' name. Its gelu_new is the tanh form in eight small kernels; torch has one."""
    if name in ("gelu_new", "gelu_pytorch_tanh"):
        return partial(F.gelu, approximate="tanh")
    from transformers.activations import ACT2FN  # whose import takes more than a second

    check_activation(name, ACT2FN)
    chosen: Callable[[Tensor], Tensor] = ACT2FN[name]
    return chosen


@register("GPT2LMHeadModel")
class GPT2Adapter(ModelAdapter):
    """Learned positions, LayerNorm, GELU; matrices stored as [in, out]; tied output head."""

    checkpoint_prefix = "transformer."
    takes_shards = True
    tied_tensors = ("wte.weight", "lm_head.weight")
    ignored_tensors: tuple[str, ...] = (".attn.bias", ".attn.masked_bias")

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
        self.activation = _activation(config.activation_function)
        self.hidden_size = config.hidden_size
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.heads, _ = shard.heads(config.num_attention_heads, config.num_attention_heads)
        self.held_layers = shard.layers(config.num_hidden_layers)
        self.kv_layers = [KVLayerSpec(len(self.heads), self.head_dim)] * len(self.held_layers)
        self.vocab = shard.vocab(config.vocab_size)
        is_tied = config.tie_word_embeddings
        if is_tied:
            self.ignored_tensors = (*self.ignored_tensors, "lm_head.weight")
        if shard.is_first or (shard.is_last and is_tied):  # whose output head it is
            self.embedding = self.empty(held(self.vocab), config.hidden_size)
        if shard.is_first:
            self.embed = shard.lookup(self.embedding, self.vocab)
            self.position_embedding = self.empty(config.max_position_embeddings, config.hidden_size)
        self.blocks = [self._block(index) for index in self.held_layers]
        if shard.is_last:
            self.norm = self._norm()
            if not is_tied:
                self.head = self.linear(whole(config.hidden_size, self.vocab))

    @classmethod
    def handles(cls, config: Any) -> bool:
        return not config.add_cross_attention

    @classmethod
    def stated(cls, config: Any) -> Sequence[Stated]:
        inner = cls.inner_features(config)
        return (
            Stated("vocab_size", config.vocab_size, "wte.weight", 0),
            Stated("n_embd", config.hidden_size, "wte.weight", 1),
            Stated("n_positions", config.max_position_embeddings, "wpe.weight", 0),
            Stated("n_inner or 4 times n_embd", inner, "h.0.mlp.c_fc.weight", 1),
        )

    @classmethod
    def inner_features(cls, config: Any) -> int:
        width: int = config.n_inner or 4 * config.hidden_size
        return width

    def _norm(self) -> LayerNorm:
        hidden = self.hidden_size
        return LayerNorm(self.empty(hidden), self.empty(hidden), self.config.layer_norm_epsilon)

    def _block(self, index: int) -> Block:
        hidden = self.hidden_size
        inner = self.shard.width(self.inner_features(self.config))
        heads = self.config.num_attention_heads
        own = self.shard.features(self.heads, self.head_dim, heads)
        layout = partial(whole, bias=True, transposed=True)
        return Block(
            attention_norm=self._norm(),
            qkv=self.linear(layout(hidden, self.shard.qkv(heads, heads, self.head_dim))),
            output=self.summed_linear(layout(own, hidden)),
            mlp_norm=self._norm(),
            up=self.linear(layout(hidden, inner)),
            down=self.summed_linear(layout(inner, hidden)),
            attention=AttentionSpec(self._scale(index)),
        )

    def _scale(self, layer: int) -> float:
        scale: float = self.head_dim**-0.5 if self.config.scale_attn_weights else 1.0
        return scale / (layer + 1) if self.config.scale_attn_by_inverse_layer_idx else scale

    def destinations(self) -> dict[str, Destination]:
        places: dict[str, Destination] = {}
        is_tied = self.config.tie_word_embeddings
        if self.shard.is_first or (self.shard.is_last and is_tied):
            cut = self.vocab if isinstance(self.vocab, Cut) else None
            places["wte.weight"] = Destination(self.embedding, cuts=(cut, None))
        if self.shard.is_first:
            places["wpe.weight"] = Destination(self.position_embedding)
        if self.shard.is_last:
            places |= self.norm.destinations("ln_f")
            if not is_tied:
                places |= self.head.destinations("lm_head")
        for index, block in zip(self.held_layers, self.blocks, strict=True):
            places |= {f"h.{index}.{name}": place for name, place in block.destinations().items()}
        return places

    def is_elsewhere(self, name: str) -> bool:
        if name in ("wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias", "lm_head.weight"):
            return self.shard.stages > 1 and not name.endswith(self.ignored_tensors)
        return of_other_layers(name, "h", self.config.num_hidden_layers, self.held_layers)

    def weights_loaded(self) -> None:
        if self.shard.is_last and self.config.tie_word_embeddings:
            self.head = self.tied_head(self.embedding)

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        return self.continued(self.embedded(token_ids, positions), positions, attend)

    def embedded(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return self.embed(token_ids) + F.embedding(positions, self.position_embedding)

    def continued(self, states: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        hidden = states
        for index, block in enumerate(self.blocks):
            q, k, v = block.qkv(block.attention_norm(hidden)).chunk(3, dim=1)
            q, k, v = (part.unflatten(1, (-1, self.head_dim)) for part in (q, k, v))
            attended = attend(index, q, k, v, block.attention)
            hidden = hidden + block.output(attended.flatten(1))
            hidden = hidden + block.down(self.activation(block.up(block.mlp_norm(hidden))))
        return self.norm(hidden) if self.shard.is_last else hidden

    def logits(self, hidden: Tensor) -> Tensor:
        held = self.local_logits(hidden)
        if self.shard.size == 1:
            return held
        return self.shard.all_gather_logits(self.config.vocab_size)(held)

    def local_logits(self, hidden: Tensor) -> Tensor:
        return self.head.in_float32(hidden)

    def first_choice(self, hidden: Tensor) -> Tensor:
        return self.shard.best(self.config.vocab_size)(self.local_logits(hidden))
