"""Labs 11 and 16: decode straight from the block tables, beside a gather and attention."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec
from yaie.demos.shown import Row, Shown, row
from yaie.demos.tensors import difference, generator
from yaie.demos.traffic import Traffic, of_torch

LENS = (96, 33, 7)
BLOCK, HEADS, KV_HEADS, HEAD = 16, 4, 2, 32
SPEC = AttentionSpec(HEAD**-0.5)


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """q, the blocks of keys and of values, block tables and lengths: as `PagedAttention.decode` wants
    them. Blocks lie in any order, and slots behind a sequence's end hold large numbers."""
    numbers = generator()
    counts = [-(-length // BLOCK) for length in LENS]
    order = torch.randperm(sum(counts), generator=numbers).int().tolist()
    tables = torch.zeros(len(LENS), max(counts), dtype=torch.int32)
    shape = (sum(counts), BLOCK, KV_HEADS, HEAD)
    keys, values = (torch.randn(shape, generator=numbers) for _ in range(2))
    for i, (count, length) in enumerate(zip(counts, LENS, strict=True)):
        own, order = order[:count], order[count:]
        tables[i, :count] = torch.tensor(own, dtype=torch.int32)
        for blocks in (keys, values):
            blocks[own[-1], length - BLOCK * (count - 1) :] = 1e4
    q = torch.randn(len(LENS), HEADS, HEAD, generator=numbers)
    return q, keys, values, tables, torch.tensor(LENS, dtype=torch.int32)


def gathered(q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, lens: Tensor) -> Tensor:
    """The blocks of all sequences copied into rows, and attention over these."""
    index = tables.long()
    wide_k, wide_v = (blocks[index].flatten(1, 2) for blocks in (keys, values))
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 2) for x in (wide_k, wide_v))
    scores = torch.einsum("nhd,nthd->nht", q, k) * SPEC.scale
    behind = torch.arange(k.shape[1])[None] >= lens[:, None]
    weights = scores.masked_fill(behind[:, None], -torch.inf).softmax(dim=-1)
    return torch.einsum("nht,nthd->nhd", weights, v)


def compared(
    decode: Callable[..., Tensor],
    counted: Callable[[Callable[[], Any]], tuple[Any, Traffic]],
    where: str,
    more: Callable[[Traffic], tuple[Row, ...]] = lambda _: (),
) -> Shown:
    """A gather and attention in PyTorch beside a kernel. more: rows about the kernel's traffic."""
    given = inputs()
    expected, plain = of_torch(lambda: gathered(*given))
    found, own = counted(lambda: decode(*given, SPEC, max_seq_len=max(LENS)))
    once = 2 * sum(LENS) * KV_HEADS * HEAD * 4
    return Shown(
        f"One query for each of {len(LENS)} sequences of {', '.join(map(str, LENS))} keys, {HEADS} "
        f"heads on {KV_HEADS} of {HEAD}, {where}.",
        ("gather and attend", "kernel"),
        (
            row("launches", plain.launches, own.launches),
            row("bytes read", plain.read, own.read),
            row("bytes written", plain.written, own.written),
            row("bytes of their keys and values", once, once),
            row("read, for each of these bytes", plain.read / once, own.read / once),
            row("largest difference", "", f"{difference(found, expected):.0e}"),
            *more(own),
        ),
        f"The kernel moves {own.moved:,} bytes in place of {plain.moved:,}: it reads each byte of keys "
        f"and values {own.read / once:.1f} times, and the gather {plain.read / once:.1f} times.",
    )
