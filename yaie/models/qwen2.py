"""Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on query, key and value alone."""

from yaie.models.adapter import register
from yaie.models.decoder_weights import Biases, sliding_window
from yaie.models.llama import LlamaAdapter


@register("Qwen2ForCausalLM")
class Qwen2Adapter(LlamaAdapter):
    """Layers that `layer_types` calls sliding see `sliding_window` tokens.

    transformers derives `layer_types` from `use_sliding_window` and `max_window_layers` if the
    checkpoint does not give it.
    """

    def biases(self) -> Biases:
        return Biases(qkv=True)

    def window(self, layer: int) -> int | None:
        return sliding_window(self.config, layer)
