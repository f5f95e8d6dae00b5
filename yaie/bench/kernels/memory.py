"""Blocks that move, and the radix tree's question put to many keys. Labs 9, 13 and 16."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from yaie.bench.kernels.case import (
    DTYPE,
    Case,
    Problem,
    Run,
    copies_beyond_l2,
    method,
    part,
    randn,
)
from yaie.parts import Parts

BLOCK, KV_HEADS, DIM = 16, 8, 128
TOKEN_BYTES = KV_HEADS * DIM * DTYPE.itemsize
MOVED, LAYERS = 256, 32


def cases() -> list[Case]:
    found = []
    for tokens in (8192, 256):
        size = f"{tokens}_tokens", f"{tokens:,} tokens, 8 heads", "GB/s"
        found.append(Case("store_kv", *size, 4 * tokens * TOKEN_BYTES, partial(_store, tokens)))
    gathered = 64 * 4096
    moved = 4 * MOVED * BLOCK * TOKEN_BYTES * LAYERS
    pairs = f"{MOVED} pairs in {LAYERS} layers"
    keys = "4,096 keys of 4,096"
    found += [
        Case("gather", "64x4096", "64 x 4,096", "GB/s", 2 * gathered * TOKEN_BYTES, _gather),
        Case("copy_blocks", f"{MOVED}x{LAYERS}", pairs, "GB/s", moved, _copy),
        Case("prefix_match", "4096x4096", keys, "GB/s", 4096 * 4096 * 4, _match),
    ]
    return found


def _blocks(count: int) -> Tensor:
    return randn(count, BLOCK, KV_HEADS, DIM)


def _store(tokens: int, parts: Parts) -> Problem:
    slots = torch.randperm(tokens)

    def ours(lab: str, kind: str) -> Callable[[], Run]:
        def make() -> Run:
            store = method(parts, lab, kind, "store_kv")()

            def run(k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
                store(k, v, keys, values, slots)
                return keys, values

            return run

        return make

    def plain() -> Run:
        def run(k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            keys.flatten(0, 1).index_copy_(0, slots, k)
            values.flatten(0, 1).index_copy_(0, slots, v)
            return keys, values

        return run

    def make() -> tuple[Tensor, ...]:
        k, v = randn(tokens, 2 * KV_HEADS, DIM).split(KV_HEADS, dim=1)
        return k, v, _blocks(tokens // BLOCK), _blocks(tokens // BLOCK)

    return Problem(
        sets=[make() for _ in range(copies_beyond_l2(4 * tokens * TOKEN_BYTES))],
        runs={
            "triton": ours("triton_ops", "LayerKernels"),
            "cuda": ours("cuda_memory_ops", "MemoryKernels"),
            "torch": plain,
        },
        picked=lambda out: [blocks.flatten(0, 1)[slots] for blocks in out],
        expected=lambda k, v, *_: [k.double(), v.double()],
        tolerance=0.0,
        in_place=True,
    )


def _gather(parts: Parts) -> Problem:
    tables = torch.randperm(64 * 256).int().view(64, 256)

    def cuda() -> Run:
        gather = method(parts, "cuda_memory_ops", "MemoryKernels", "gather")()
        return lambda blocks: gather(blocks, tables)

    def plain(blocks: Tensor) -> Tensor:
        return blocks.index_select(0, tables.flatten()).view(64, -1, KV_HEADS, DIM)

    return Problem(
        sets=[(_blocks(64 * 256),)],
        runs={"cuda": cuda, "torch": lambda: plain},
        picked=lambda out: [out[-1]],
        expected=lambda blocks: [blocks[tables[-1].long()].flatten(0, 1).double()],
        tolerance=0.0,
    )


def _copy(parts: Parts) -> Problem:
    pairs = torch.randperm(8 * MOVED)[: 2 * MOVED].view(MOVED, 2)
    tensors = [_blocks(8 * MOVED) for _ in range(2 * LAYERS)]

    def cuda() -> Run:
        copy = method(parts, "cuda_memory_ops", "MemoryKernels", "copy_blocks")()

        def run(*tensors: Tensor) -> Any:
            copy(list(tensors), pairs)
            return tensors

        return run

    def plain(*tensors: Tensor) -> Any:
        for tensor in tensors:
            tensor[pairs[:, 1]] = tensor[pairs[:, 0]]
        return tensors

    return Problem(
        sets=[tuple(tensors)],
        runs={"cuda": cuda, "torch": lambda: plain},
        picked=lambda out: [out[-1][pairs[:, 1]]],
        expected=lambda *tensors: [tensors[-1][pairs[:, 0]].double()],
        tolerance=0.0,
        in_place=True,
    )


def _match(parts: Parts) -> Problem:
    n, w = 4096, 4096
    tokens = torch.randint(0, 1000, (w,), dtype=torch.int32)
    keys = tokens.repeat(n, 1)
    differs = w - 1 - torch.randint(0, 64, (n,))  # all must be read, nearly to their ends
    keys[torch.arange(n), differs] = -1
    lens = torch.full((n,), w, dtype=torch.int32)

    def cuda() -> Run:
        match: Run = part(parts, "cuda_paged_attention", "PrefixKernel")().longest_common_prefix
        return match

    def plain(tokens: Tensor, keys: Tensor, key_lens: Tensor) -> Tensor:
        inside = torch.arange(keys.shape[1], device=keys.device) < key_lens[:, None]
        return ((keys == tokens) & inside).int().cumprod(1).sum(1)

    return Problem(
        sets=[(tokens, keys.clone(), lens) for _ in range(copies_beyond_l2(4 * n * w))],
        runs={"cuda": cuda, "torch": lambda: plain},
        expected=lambda *_: [differs.double()],
        tolerance=0.0,
    )
