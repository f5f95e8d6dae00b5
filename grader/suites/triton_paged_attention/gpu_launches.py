"""Calls of each task's kernels as an engine makes them, for `grader/triton_compiler.py` to compile.

Nothing runs: what tensors hold does not matter. Each task's calls need as little of the others' as
they can.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec

SEQS, KV_HEADS, BLOCK, BLOCKS = 4, 2, 16, 8
PLAIN = AttentionSpec(0.1)


def _decode(part: ModuleType, spec: AttentionSpec = PLAIN, **how: Any) -> None:
    splits = how.pop("splits", 1)
    q, *rest = _inputs(**how)
    part.PagedAttention(splits).decode(q[:SEQS], *rest, spec, max_seq_len=BLOCK * BLOCKS)


def _one_head_each(part: ModuleType) -> None:
    _decode(part)
    _decode(part, dim=80)
    _decode(part, dtype=torch.float32)


def _grouped(part: ModuleType) -> None:
    _decode(part, group=4)


def _split(part: ModuleType) -> None:
    _decode(part, splits=4)
    _decode(part, splits=None)


def _filtered(part: ModuleType) -> None:
    spec = AttentionSpec(0.1, window=100, softcap=30.0, sinks=torch.zeros(KV_HEADS))
    _decode(part, spec)
    _decode(part, AttentionSpec(0.1, window=100), splits=4)


def _chunks(part: ModuleType) -> None:
    for dtype in (torch.bfloat16, torch.float32):
        q, keys, values, tables, lengths = _inputs(dtype=dtype)
        starts = torch.arange(SEQS + 1, dtype=torch.int32) * 16
        part.PagedAttention().prefill(
            q, keys, values, tables, starts, lengths, PLAIN, max_query_len=16
        )
        part.PagedAttention().prefill(
            q,
            keys,
            values,
            tables,
            starts,
            lengths,
            AttentionSpec(0.1, window=100),
            max_query_len=16,
        )


def _inputs(
    dim: int = 128, group: int = 1, dtype: torch.dtype = torch.bfloat16
) -> tuple[Tensor, ...]:
    """q of 16 tokens a sequence, the pool's keys and values, block tables, lengths."""
    blocks = torch.zeros(SEQS * BLOCKS, BLOCK, KV_HEADS, dim, dtype=dtype)
    return (
        torch.zeros(16 * SEQS, KV_HEADS * group, dim, dtype=dtype),
        blocks,
        blocks.clone(),
        torch.zeros(SEQS, BLOCKS, dtype=torch.int32),
        torch.full((SEQS,), BLOCK * BLOCKS, dtype=torch.int32),
    )


LAUNCHES: dict[str, Callable[[ModuleType], None]] = {
    "11.1": _one_head_each,
    "11.2": _grouped,
    "11.3": _split,
    "11.4": _filtered,
    "11.5": _chunks,
}
"""Task -> calls that launch its kernels, on the part."""
