"""Lab 1: sample the next token of every request in a batch."""

from .sampler import Sampler

__all__ = ["Sampler"]
