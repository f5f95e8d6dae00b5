"""Lab 16: paged attention in CUDA C++, and the radix tree's question put to many keys at once."""

from .paged_attention import PagedAttention, Parts, PrefixKernel, Split, plan_split

__all__ = ["PagedAttention", "Parts", "PrefixKernel", "Split", "plan_split"]
