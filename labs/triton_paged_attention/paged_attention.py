# Lab 11, your part (edition 2): tasks 11.1, 11.4, 11.5. The rest is given.
"""Paged attention on Triton: which kernel runs on what grid, in which configuration."""

import torch
import triton
from torch import Tensor

from yaie.core.batch import AttentionSpec

from .configs import Config, decode_config, prefill_config, tile_rows
from .decode import combine_kernel, decode_kernel
from .prefill import prefill_kernel
from .splits import MAX_SPLITS, choose_splits, num_sms

ENDLESS = 2**31 - 1
"""A window that hides nothing."""


class PagedAttention:
    """See `yaie.core.contracts.kernels.PagedAttention`.

    splits: how often `decode` divides the keys of each sequence; None lets `choose_splits` decide.
    """

    def __init__(self, splits: int | None = None) -> None:
        self._splits = splits

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
        (n, heads, d), kv_heads = q.shape, key_blocks.shape[2]
        config = decode_config(d, q.dtype, tile_rows(1, heads // kv_heads), n * kv_heads)
        splits = self._splits
        if splits is None and n > 0:
            places = num_sms(q.device) * config.per_sm
            max_keys = min(max_seq_len, window_of(spec))
            splits = choose_splits(n, kv_heads, max_keys, config.tile, places)
        return decode(
            q, key_blocks, value_blocks, block_tables, seq_lens, spec, splits or 1, config
        )

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
        group = q.shape[1] // key_blocks.shape[2]
        config = prefill_config(q.shape[2], q.dtype, tile_rows(max_query_len, group))
        return prefill(
            q, key_blocks, value_blocks, block_tables, query_start_loc, seq_lens, spec, config
        )


# ANCHOR: decode
def decode(
    q: Tensor,
    key_blocks: Tensor,
    value_blocks: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    spec: AttentionSpec,
    splits: int,
    config: Config,
) -> Tensor:
    """As `PagedAttention.decode`, with so many splits and this configuration."""
    check_packed(q, key_blocks, value_blocks)
    (n, heads, d), kv_heads = q.shape, key_blocks.shape[2]
    out = q.new_empty(n, heads, d)
    if n == 0:
        return out
    parts, lses = out, out
    if splits > 1:
        parts = q.new_empty(n, heads, splits, d, dtype=torch.float32)
        lses = q.new_empty(n, heads, splits, dtype=torch.float32)
    window = window_of(spec)
    dims = triton.next_power_of_2(d)
    decode_kernel[decode_grid(n, kv_heads, splits)](
        out,
        parts,
        lses,
        q,
        key_blocks,
        value_blocks,
        block_tables,
        seq_lens,
        spec.sinks,
        spec.scale,
        spec.softcap,
        window,
        q.stride(0),
        key_blocks.stride(0),
        value_blocks.stride(0),
        block_tables.stride(0),
        splits,
        KV_HEADS=kv_heads,
        GROUP=heads // kv_heads,
        D=d,
        BLOCK_SIZE=key_blocks.shape[1],
        SPLIT=splits > 1,
        WINDOWED=spec.window is not None,
        ROWS=tile_rows(1, heads // kv_heads),
        DIMS=dims,
        TILE=config.tile,
        num_warps=config.warps,
        num_stages=config.stages,
    )
    if splits > 1:
        combine_kernel[heads, n](
            out,
            parts,
            lses,
            seq_lens,
            window,
            splits,
            HEADS=heads,
            D=d,
            MAX_SPLITS=MAX_SPLITS,
            WINDOWED=spec.window is not None,
            DIMS=dims,
            TILE=config.tile,
        )
    return out


# ANCHOR_END: decode


def prefill(
    q: Tensor,
    key_blocks: Tensor,
    value_blocks: Tensor,
    block_tables: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    spec: AttentionSpec,
    config: Config,
) -> Tensor:
    """As `PagedAttention.prefill`, with this configuration."""
    check_packed(q, key_blocks, value_blocks)
    (num_tokens, heads, d), kv_heads = q.shape, key_blocks.shape[2]
    out = q.new_empty(num_tokens, heads, d)
    if num_tokens == 0:
        return out
    n, group = len(seq_lens), heads // kv_heads
    rows = max(config.rows, tile_rows(1, group))
    window = window_of(spec)
    prefill_kernel[prefill_grid(num_tokens, n, kv_heads, rows // group)](
        out,
        q,
        key_blocks,
        value_blocks,
        block_tables,
        query_start_loc,
        seq_lens,
        spec.sinks,
        spec.scale,
        spec.softcap,
        window,
        n,
        q.stride(0),
        key_blocks.stride(0),
        value_blocks.stride(0),
        block_tables.stride(0),
        KV_HEADS=kv_heads,
        GROUP=group,
        D=d,
        BLOCK_SIZE=key_blocks.shape[1],
        TOKENS=rows // group,
        ROWS=rows,
        DIMS=triton.next_power_of_2(d),
        TILE=config.tile,
        WINDOWED=spec.window is not None,
        num_warps=config.warps,
        num_stages=config.stages,
    )
    return out


def check_packed(*tensors: Tensor) -> None:
    """The kernels take a stride for the first dimension only. Raises ValueError."""
    for tensor in tensors:
        if len(tensor) and not tensor[0].is_contiguous():
            shape, stride = list(tensor.shape), tensor.stride()
            raise ValueError(f"a tensor {shape} with strides {stride}: its rows are not contiguous")


def decode_grid(n: int, kv_heads: int, splits: int) -> tuple[int, int, int]:
    """How many programs of `decode_kernel` there are: for key heads, splits and sequences."""
    # TODO 11.1: your code here (the reference: 1 line).
    raise NotImplementedError(
        "triton_paged_attention task 11.1: not implemented yet; see chapter Paged attention in Triton"
    )


def prefill_grid(num_tokens: int, n: int, kv_heads: int, tokens: int) -> tuple[int, int]:
    """How many programs of `prefill_kernel` there are, for key heads and for tiles of so many tokens.

    The host does not know how long each chunk is, and launches num_tokens // tokens + n tiles at most.
    """
    # TODO 11.5: your code here (the reference: 1 line).
    raise NotImplementedError(
        "triton_paged_attention task 11.5: not implemented yet; see chapter Paged attention in Triton"
    )


def window_of(spec: AttentionSpec) -> int:
    """How many keys a query sees at most."""
    if spec.window is None and spec.softcap is None and spec.sinks is None:
        return ENDLESS
    # TODO 11.4: your code here (the reference: 1 line).
    raise NotImplementedError(
        "triton_paged_attention task 11.4: not implemented yet; see chapter Paged attention in Triton"
    )
