"""The tutor's sibling: LFM2's architecture, whose layers are short convolutions but for every third.

It learns the tutor's data in the tutor's tokens, and is half as large.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Lfm2Config, Lfm2ForCausalLM
from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv

from book.tutor.tokenizer import CONTEXT_LENGTH, VOCAB_SIZE

PERIOD = ("conv", "conv", "full_attention")


def hybrid_config(rope_theta: float, **token_ids: int) -> Lfm2Config:
    """About 3.8 million weights: 9 layers of width 192, 6 of them convolutions over 3 tokens, 3 of them
    attention with 6 query heads on 2 KV heads of 32."""
    return Lfm2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=192,
        intermediate_size=352,
        block_auto_adjust_ff_dim=False,
        num_hidden_layers=3 * len(PERIOD),
        layer_types=list(PERIOD) * 3,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_LENGTH,
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta},
        norm_eps=1e-5,
        conv_L_cache=3,
        tie_word_embeddings=True,
        **token_ids,
    )


def new_hybrid(config: Lfm2Config) -> Lfm2ForCausalLM:
    """A hybrid that has learned nothing. A convolution passes on about as much as it gets: with the
    library's weights of 0.02 its three factors would all but silence the layer at first."""
    model = Lfm2ForCausalLM(config)
    for convolution in convolutions(model):
        nn.init.normal_(convolution.conv.weight, std=config.conv_L_cache**-0.5)
    return model


def convolutions(model: nn.Module) -> list[Lfm2ShortConv]:
    """The mixers that are short convolutions; of a Llama, none."""
    return [module for module in model.modules() if isinstance(module, Lfm2ShortConv)]


class ShiftedConv(Lfm2ShortConv):
    """The convolution of whole windows as a sum of shifted inputs, which torch.compile fuses with both
    gates; the library's own asks cuDNN for it, in another layout. It answers as the library does where
    there are a cache or a mask.
    """

    def forward(
        self,
        hidden_states: Tensor,
        past_key_values: Any = None,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """hidden_states: [batch, length, hidden]. Returns the same shape."""
        if past_key_values is not None or attention_mask is not None:
            whole: Tensor = super().forward(
                hidden_states, past_key_values, attention_mask=attention_mask, **kwargs
            )
            return whole
        before, after, x = self.in_proj(hidden_states).chunk(3, dim=-1)
        mixed = shifted_sum(before * x, self.conv.weight[:, 0], self.conv.bias)
        out: Tensor = self.out_proj(after * mixed)
        return out


def shifted_sum(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The causal convolution of each channel with its own weights, zeros before the first token.

    x: [batch, length, channels]. weight: [channels, width], the newest token's last. bias: [channels].
    Returns [batch, length, channels], in x's dtype.
    """
    length, width = x.shape[1], weight.shape[1]
    padded = F.pad(x, (0, 0, width - 1, 0))
    first, *taps = weight.to(x.dtype).unbind(dim=1)
    total = padded[:, :length] * first
    for at, tap in enumerate(taps, 1):
        total = total + padded[:, at : at + length] * tap
    return total if bias is None else total + bias.to(x.dtype)


def shift_convolutions(model: nn.Module) -> None:
    """Have the model compute its convolutions so, with the weights that it has."""
    for convolution in convolutions(model):
        convolution.__class__ = ShiftedConv
