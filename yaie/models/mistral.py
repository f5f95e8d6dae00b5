"""Mistral (Jiang et al. 2023): Llama without biases, with attention to a sliding window."""

from yaie.models.adapter import register
from yaie.models.decoder_weights import Biases
from yaie.models.llama import LlamaAdapter


@register("MistralForCausalLM")
class MistralAdapter(LlamaAdapter):
    """Every layer sees the last `sliding_window` tokens, or all of them if that is not set."""

    def biases(self) -> Biases:
        return Biases()

    def window(self, layer: int) -> int | None:
        window: int | None = self.config.sliding_window or None
        return window
