"""Lab 20: one model on several ranks, each a process with a device of its own."""

from .pipeline import Pipeline
from .ring import Ring
from .shares import qkv_rows, share, share_heads
from .split import RowParallel, VocabEmbedding
from .vocabulary import VocabLogits

__all__ = [
    "Pipeline",
    "Ring",
    "RowParallel",
    "VocabEmbedding",
    "VocabLogits",
    "qkv_rows",
    "share",
    "share_heads",
]
