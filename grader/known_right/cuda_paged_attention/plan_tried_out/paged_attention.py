"""Another design: every number of parts is tried, and plans and parts are records that can be unpacked.

The reference tries as few parts as fill one wave, two waves and so on, and has named tuples.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec
from yaie.cuda.library import CudaLibrary

LIBRARY = CudaLibrary(Path(__file__).parent)
MAX_DIM, ELEMENTS = 256, 8
MIN_KEYS, MAX_KEYS = 64, 4096  # of a part
BLOCK_COST = 128  # keys in whose time a thread block begins and merges, by measurement


@dataclass(frozen=True, slots=True)
class Split:
    """Into how many parts the keys of each sequence are cut, and how many keys a part has."""

    parts: int
    keys_per_part: int

    def __iter__(self) -> Iterator[int]:
        yield self.parts
        yield self.keys_per_part

    def time(self, rows: int, slots: int) -> int:
        """In keys: of all waves."""
        waves = (rows * self.parts + slots - 1) // slots
        return waves * (self.keys_per_part + BLOCK_COST)


@dataclass
class Parts:
    """A softmax for each part, before they are combined."""

    acc: Tensor
    stats: Tensor
    split: Split


def plan_split(rows: int, max_keys: int, slots: int) -> Split:
    """Of all plans that are allowed the fastest, of these that with the fewest parts."""
    best, fastest = Split(1, max(max_keys, 1)), 0
    for parts in range(1, max(max_keys // MIN_KEYS, 1) + 1):
        keys = max((max_keys + parts - 1) // parts, 1)
        needed = max((max_keys + keys - 1) // keys, 1)
        if keys > MAX_KEYS or needed < parts:
            continue
        plan = Split(parts, keys)
        time = plan.time(rows, slots)
        if fastest == 0 or time < fastest:
            best, fastest = plan, time
    return best


class PagedAttention:
    """See `yaie.core.contracts.kernels.PagedAttention`."""

    def decode(
        self,
        q: Tensor,
        key_blocks: Tensor,
        value_blocks: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        spec: AttentionSpec,
        *,
        max_seq_len: int,
    ) -> Tensor:
        """One query a sequence: q [n, heads, d]; returns [n, heads, d]."""
        max_keys = max_seq_len if spec.window is None else min(max_seq_len, spec.window)
        kv_heads = key_blocks.shape[2]
        resident = 4 if q.shape[1] <= 4 * kv_heads else 2  # see decode_kernel's bounds
        split = plan_split(q.shape[0] * kv_heads, max_keys, num_sms(q.device) * resident)
        parts = self.decode_parts(q, key_blocks, value_blocks, block_tables, seq_lens, spec, split)
        return self.combine(parts, seq_lens, spec, q.dtype)

    def decode_parts(
        self,
        q: Tensor,
        key_blocks: Tensor,
        value_blocks: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        spec: AttentionSpec,
        split: Split,
    ) -> Parts:
        """The softmax of each part of each sequence's visible keys. Sinks have no part in it."""
        _check(q, key_blocks)
        n, heads, dim = q.shape
        block_size, kv_heads = key_blocks.shape[1:3]
        acc = torch.empty(n, heads, split.parts, dim, dtype=torch.float32, device=q.device)
        stats = torch.empty(n, heads, split.parts, 2, dtype=torch.float32, device=q.device)
        LIBRARY.call(
            "decode_parts", q, key_blocks, value_blocks, block_tables, seq_lens, acc, stats,
            q.dtype, q.stride(0), block_tables.stride(0), n, heads, kv_heads, dim, block_size,
            split.parts, split.keys_per_part, spec.window or 0, float(spec.scale),
            float(spec.softcap or 0),
        )  # fmt: skip
        return Parts(acc, stats, split)

    def combine(
        self, parts: Parts, seq_lens: Tensor, spec: AttentionSpec, dtype: torch.dtype
    ) -> Tensor:
        """The parts of each sequence as one softmax, with the sinks: [n, heads, d] of `dtype`."""
        n, heads, _, dim = parts.acc.shape
        out = torch.empty(n, heads, dim, dtype=dtype, device=parts.acc.device)
        sinks = None if spec.sinks is None else spec.sinks.float()
        LIBRARY.call(
            "combine", parts.acc, parts.stats, seq_lens, sinks, out,
            dtype, n, heads, dim, *parts.split, spec.window or 0,
        )  # fmt: skip
        return out

    def prefill(
        self,
        q: Tensor,
        key_blocks: Tensor,
        value_blocks: Tensor,
        block_tables: Tensor,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        spec: AttentionSpec,
        *,
        max_query_len: int,
    ) -> Tensor:
        """Chunks of several sequences: q [T, heads, d]; returns [T, heads, d]."""
        _check(q, key_blocks)
        _, heads, dim = q.shape
        block_size, kv_heads = key_blocks.shape[1:3]
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        sinks = None if spec.sinks is None else spec.sinks.float()
        LIBRARY.call(
            "prefill", q, key_blocks, value_blocks, block_tables, query_start_loc, seq_lens, sinks,
            out, q.dtype, q.stride(0), block_tables.stride(0), len(seq_lens), max_query_len, heads,
            kv_heads, dim, block_size, spec.window or 0, float(spec.scale),
            float(spec.softcap or 0),
        )  # fmt: skip
        return out


def naive_decode(
    q: Tensor,
    key_blocks: Tensor,
    value_blocks: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    spec: AttentionSpec,
) -> Tensor:
    """`PagedAttention.decode` by the kernel that is written first; see `naive.cu`."""
    n, heads, dim = q.shape
    block_size, kv_heads = key_blocks.shape[1:3]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    sinks = None if spec.sinks is None else spec.sinks.float()
    LIBRARY.call(
        "naive_decode", q, key_blocks, value_blocks, block_tables, seq_lens, sinks, out, q.dtype,
        q.stride(0), block_tables.stride(0), n, heads, kv_heads, dim, block_size,
        spec.window or 0, float(spec.scale), float(spec.softcap or 0),
    )  # fmt: skip
    return out


class PrefixKernel:
    """See `yaie.core.contracts.kernels.PrefixKernel`."""

    def longest_common_prefix(self, tokens: Tensor, keys: Tensor, key_lens: Tensor) -> Tensor:
        """How many leading entries of `tokens` [m] each row of `keys` [n, w] shares: [n] int32."""
        out = torch.empty(len(keys), dtype=torch.int32, device=keys.device)
        LIBRARY.call(
            "longest_common_prefix", tokens, keys, key_lens, out,
            len(tokens), keys.stride(0), len(keys),
        )  # fmt: skip
        return out


@cache
def num_sms(device: torch.device) -> int:
    """Multiprocessors of a GPU; a few where a CPU plays one."""
    if device.type != "cuda":
        return 4
    return torch.cuda.get_device_properties(device).multi_processor_count


def _check(q: Tensor, key_blocks: Tensor) -> None:
    """Rows of the pool are read 16 bytes at a time."""
    dim, heads, kv_heads = q.shape[-1], q.shape[1], key_blocks.shape[2]
    if dim % ELEMENTS or dim > MAX_DIM:
        raise ValueError(f"head size {dim}: this kernel takes multiples of {ELEMENTS} to {MAX_DIM}")
    if heads % kv_heads:
        raise ValueError(f"{heads} query heads do not share {kv_heads} key heads evenly")
    if q.stride(1) != dim or q.stride(2) != 1:
        raise ValueError("the heads of a token must lie side by side")
