"""Lab 4: find the longest cached prefix of a prompt."""

from .radix_tree import RadixTree

__all__ = ["RadixTree"]
