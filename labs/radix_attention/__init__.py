"""Lab 5: attention over shared and own blocks, prefill chunks and decodes in one batch."""

from .radix_attention import RadixAttention

__all__ = ["RadixAttention"]
