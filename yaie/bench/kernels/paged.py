"""Attention over block tables: decodes, and chunks of prompts. Labs 11 and 16."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from yaie.bench.kernels.case import (
    Case,
    Problem,
    Run,
    copies_beyond_l2,
    part,
    randn,
)
from yaie.bench.kernels.libraries import FA3, FLASHINFER, Pages, fa3_pages, flashinfer_pages
from yaie.core.batch import AttentionBatch, AttentionSpec
from yaie.parts import Parts

BLOCK, DIM = 16, 128
SCALE = DIM**-0.5
DECODES = (
    # sequences, keys of each, query heads, key heads, goal
    (256, 1024, 16, 8, "3,950"),
    (64, 4096, 32, 8, "4,150"),
    (32, 4096, 32, 8, "3,900"),
    (1, 32768, 32, 8, "2,700"),
    (1, 1024, 16, 8, "0.012 ms"),
)
PREFILLS = ((8, 512, 4096, 32, 8), (16, 512, 512, 32, 8))


def cases() -> list[Case]:
    """Bytes of a decode: every key and value once, queries and results."""
    found = []
    for n, length, heads, kv_heads, goal in DECODES:
        work = 2 * n * (2 * length * kv_heads + 2 * heads) * DIM
        size = f"{n}x{length}_{heads}on{kv_heads}"
        label = f"{n} x {length:,}, {heads} heads on {kv_heads}"
        build = partial(_decode, n, length, heads, kv_heads)
        found.append(Case("paged_decode", size, label, "GB/s", work, build, goal))
    for n, new, cached, heads, kv_heads in PREFILLS:
        pairs = n * (new * cached + new * (new + 1) / 2)
        size = f"{n}x{new}after{cached}_{heads}on{kv_heads}"
        build = partial(_prefill, n, new, cached, heads, kv_heads)
        label = f"{n} x {new} after {cached:,}, {heads} heads on {kv_heads}"
        flops = 4 * pairs * DIM * heads
        found.append(Case("paged_prefill", size, label, "TFLOP/s", flops, build))
    return found


def _spec() -> AttentionSpec:
    return AttentionSpec(SCALE)


def _pool(n: int, length: int, kv_heads: int) -> tuple[Tensor, Tensor]:
    shape = (n * -(-length // BLOCK), BLOCK, kv_heads, DIM)
    return randn(*shape), randn(*shape)


def _tables(n: int, length: int) -> Tensor:
    """Blocks in no order, as after hours of serving."""
    each = -(-length // BLOCK)
    return torch.randperm(n * each).int().view(n, each)


def _gathered(blocks: Tensor, table: Tensor, length: int) -> Tensor:
    return blocks[table.long()].flatten(0, 1)[:length]


class _Pool:
    """As much of a KVPool as lab 5 needs to attend: what is new stands there already."""

    block_size = BLOCK

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self._both = keys, values

    def write(self, *_: object) -> None:
        pass

    def gather(self, layer: int, tables: Tensor) -> list[Tensor]:
        n, m = tables.shape
        return [x.index_select(0, tables.flatten()).view(n, m * BLOCK, *x.shape[2:])
                for x in self._both]  # fmt: skip


def _by_lab_5(
    parts: Parts, new: int, length: int, tables: Tensor, lens: Tensor
) -> Callable[[], Run]:
    """The torch backend: gather, then attend. Every sequence asks `new` queries."""

    def make() -> Run:
        n = len(lens)
        starts = torch.arange(0, (n + 1) * new, new, dtype=torch.int32, device=lens.device)
        nothing = lens.new_empty(0)
        batch = AttentionBatch([new] * n, [length] * n, starts, lens, tables, nothing, nothing)
        ops = parts["transformer_ops"].TransformerOps()
        kind = parts["radix_attention"].RadixAttention
        plan = kind(_Pool(nothing, nothing), ops).plan(batch)

        def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out: Tensor = kind(_Pool(k, v), ops).run(0, q, q, q, _spec(), plan)
            return out

        return run

    return make


def _libraries(pages: Pages) -> dict[str, Callable[[], Run]]:
    return {
        **{name: flashinfer_pages(name.split()[1], pages) for name in FLASHINFER},
        FA3: fa3_pages(pages),
    }


def _decode(n: int, length: int, heads: int, kv_heads: int, parts: Parts) -> Problem:
    tables = _tables(n, length)
    lens = torch.full((n,), length, dtype=torch.int32)
    starts = torch.arange(0, n + 1, dtype=torch.int32)
    pages = Pages(tables, lens, starts, 1, length, heads, kv_heads, DIM, BLOCK, SCALE)
    size = 4 * n * length * kv_heads * DIM
    sets = [
        (randn(n, heads, DIM), *_pool(n, length, kv_heads)) for _ in range(copies_beyond_l2(size))
    ]

    def ours(lab: str) -> Callable[[], Run]:
        def make() -> Run:
            decode = part(parts, lab, "PagedAttention")().decode
            return lambda q, k, v: decode(q, k, v, tables, lens, _spec(), max_seq_len=length)

        return make

    def contiguous(*backends: SDPBackend) -> Callable[[], Run]:
        """What PyTorch takes for keys without gaps: its choice, or one of these backends."""

        def make() -> Run:
            gathered = {
                q.data_ptr(): [x[tables.long()].flatten(1, 2)[:, :length] for x in (k, v)]
                for q, k, v in sets
            }

            def run(q: Tensor, _k: Tensor, _v: Tensor) -> Tensor:
                keys, values = (x.transpose(1, 2) for x in gathered[q.data_ptr()])
                with sdpa_kernel(list(backends)) if backends else nullcontext():
                    out = scaled_dot_product_attention(
                        q[:, :, None], keys, values, scale=SCALE, enable_gqa=True
                    )
                return out[:, :, 0]

            return run

        return make

    def expected(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        return [torch.stack([one(i, q, k, v) for i in {0: 0, n - 1: 0}])]

    def one(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        group = heads // kv_heads
        keys, values = (
            _gathered(x, tables[i], length).double().repeat_interleave(group, dim=1) for x in (k, v)
        )
        weights = (torch.einsum("hd,khd->hk", q[i].double(), keys) * SCALE).softmax(-1)
        return torch.einsum("hk,khd->hd", weights, values)

    return Problem(
        sets=sets,
        runs={
            "triton": ours("triton_paged_attention"),
            "cuda": ours("cuda_paged_attention"),
            "torch": _by_lab_5(parts, 1, length, tables, lens),
            **_libraries(pages),
            "sdpa contiguous": contiguous(),
            "sdpa cudnn contiguous": contiguous(SDPBackend.CUDNN_ATTENTION),
        },
        picked=lambda out: [torch.stack([out[i] for i in {0: 0, n - 1: 0}])],
        expected=expected,
    )


def _prefill(n: int, new: int, cached: int, heads: int, kv_heads: int, parts: Parts) -> Problem:
    length = cached + new
    tables = _tables(n, length)
    lens = torch.full((n,), length, dtype=torch.int32)
    starts = torch.arange(0, (n + 1) * new, new, dtype=torch.int32)
    pages = Pages(tables, lens, starts, new, length, heads, kv_heads, DIM, BLOCK, SCALE)

    def ours(lab: str) -> Callable[[], Run]:
        def make() -> Run:
            prefill = part(parts, lab, "PagedAttention")().prefill
            return lambda q, k, v: prefill(
                q, k, v, tables, starts, lens, _spec(), max_query_len=new
            )

        return make

    def expected(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        keys, values = (_gathered(x, tables[-1], length)[:, -1].double() for x in (k, v))
        scores = q[-new:, -1].double() @ keys.T * SCALE
        at = torch.arange(length, device=q.device)
        scores = scores.masked_fill(at[None] > at[cached:, None], -torch.inf)
        return [scores.softmax(-1) @ values]

    return Problem(
        sets=[(randn(n * new, heads, DIM), *_pool(n, length, kv_heads))],
        runs={
            "triton": ours("triton_paged_attention"),
            "cuda": ours("cuda_paged_attention"),
            "torch": _by_lab_5(parts, new, length, tables, lens),
            **_libraries(pages),
        },
        picked=lambda out: [out[-new:, -1]],
        expected=expected,
    )
