"""GPT-2 (Radford et al. 2019), and what was tuned from it, such as DialoGPT."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import AttentionSpec, KVLayerSpec
from yaie.core.contracts import Attend, TransformerOps
from yaie.models.adapter import ModelAdapter, register
from yaie.models.layout import Destination, whole
from yaie.models.linear import Linear


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
    qkv: Linear
    output: Linear
    mlp_norm: LayerNorm
    up: Linear
    down: Linear
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


@register("GPT2LMHeadModel")
class GPT2Adapter(ModelAdapter):
    """Learned positions, LayerNorm, GELU; matrices stored as [in, out]; tied output head."""

    checkpoint_prefix = "transformer."
    ignored_tensors = (".attn.bias", ".attn.masked_bias", "lm_head.weight")

    def __init__(
        self,
        config: Any,
        ops: TransformerOps,
        dtype: torch.dtype,
        device: torch.device,
        max_length: int,
    ) -> None:
        super().__init__(config, ops, dtype, device, max_length)
        from transformers.activations import ACT2FN

        # gelu_new is the tanh form of GELU in eight small kernels; torch has it as one.
        name = config.activation_function
        self.activation = ACT2FN["gelu_pytorch_tanh" if name == "gelu_new" else name]
        self.hidden_size = config.hidden_size
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.kv_layers = [
            KVLayerSpec(config.num_attention_heads, self.head_dim)
        ] * config.num_hidden_layers
        self.embedding = self.empty(config.vocab_size, config.hidden_size)
        self.position_embedding = self.empty(config.max_position_embeddings, config.hidden_size)
        self.blocks = [self._block(index) for index in range(config.num_hidden_layers)]
        self.norm = self._norm()

    @classmethod
    def handles(cls, config: Any) -> bool:
        return bool(config.tie_word_embeddings) and not config.add_cross_attention

    def _norm(self) -> LayerNorm:
        hidden = self.hidden_size
        return LayerNorm(self.empty(hidden), self.empty(hidden), self.config.layer_norm_epsilon)

    def _block(self, index: int) -> Block:
        hidden, inner = self.hidden_size, self.config.n_inner or 4 * self.hidden_size

        def product(inputs: int, outputs: int) -> Linear:
            return self.linear(whole(inputs, outputs, bias=True, transposed=True))

        return Block(
            attention_norm=self._norm(),
            qkv=product(hidden, 3 * hidden),
            output=product(hidden, hidden),
            mlp_norm=self._norm(),
            up=product(hidden, inner),
            down=product(inner, hidden),
            attention=AttentionSpec(self._scale(index)),
        )

    def _scale(self, layer: int) -> float:
        scale: float = self.head_dim**-0.5 if self.config.scale_attn_weights else 1.0
        return scale / (layer + 1) if self.config.scale_attn_by_inverse_layer_idx else scale

    def destinations(self) -> dict[str, Destination]:
        places = {
            "wte.weight": Destination(self.embedding),
            "wpe.weight": Destination(self.position_embedding),
            **self.norm.destinations("ln_f"),
        }
        for index, block in enumerate(self.blocks):
            places |= {f"h.{index}.{name}": place for name, place in block.destinations().items()}
        return places

    def weights_loaded(self) -> None:
        self.head = self.tied_head(self.embedding)

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        hidden = F.embedding(token_ids, self.embedding)
        hidden = hidden + F.embedding(positions, self.position_embedding)
        for index, block in enumerate(self.blocks):
            q, k, v = block.qkv(block.attention_norm(hidden)).split(self.hidden_size, dim=1)
            q, k, v = (part.unflatten(1, (-1, self.head_dim)) for part in (q, k, v))
            attended = attend(index, q, k, v, block.attention)
            hidden = hidden + block.output(attended.flatten(1))
            hidden = hidden + block.down(self.activation(block.up(block.mlp_norm(hidden))))
        return self.norm(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.head.in_float32(hidden)
