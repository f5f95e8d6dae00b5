"""Lab 15: FlashAttention in CUDA C++, forward and backward."""

from .flash_attention import FlashAttention

__all__ = ["FlashAttention"]
