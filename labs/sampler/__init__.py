"""Lab 1: draw the next token of every request in a batch."""

from .sampler import Sampler

__all__ = ["Sampler"]
