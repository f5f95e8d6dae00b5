"""Lab 2: the operations of a decoder layer, in plain PyTorch."""

from .ops import TransformerOps

__all__ = ["TransformerOps"]
