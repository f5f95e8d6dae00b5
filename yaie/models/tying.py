"""Whether the output head is the embedding table: what config.json says of it, and the checkpoint.

`tie_word_embeddings: true` beside a head of other values is a mistake in config.json that transformers
sees through: it ties only what is equal. Where the table is missing and the head is there, the head is
the table.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from yaie.models.layout import Stored
from yaie.models.weights import read_stored

ROWS = 4096
"""Compared at a time."""

Shapes = Mapping[str, tuple[int, ...]]


def heads_differ(files: list[Path], table: str, head: str, dtype: torch.dtype) -> bool:
    """Whether both of these tensors are in the checkpoint, with other values as `dtype`."""
    with torch.inference_mode():
        one, other = _stored(files, table), _stored(files, head)
        if one is None or other is None:
            return False
        if one.shape != other.shape:
            return True
        return not all(
            torch.equal(left.to(dtype), right.to(dtype))
            for left, right in zip(_rows(one), _rows(other), strict=True)
        )


def renamed(tensors: Iterable[tuple[str, Any]], old: str, new: str) -> Iterator[tuple[str, Any]]:
    """The same tensors, one under another name."""
    for name, tensor in tensors:
        yield new if name == old else name, tensor


def _stored(files: list[Path], wanted: str) -> Stored | None:
    for name, tensor in read_stored(files, lambda _: None):
        if name == wanted:
            return tensor
    return None


def _rows(tensor: Stored) -> Iterator[Tensor]:
    for start in range(0, tensor.shape[0], ROWS):
        yield tensor[(slice(start, start + ROWS),) + (slice(None),) * (len(tensor.shape) - 1)]
