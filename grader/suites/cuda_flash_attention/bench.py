"""Tiles, rows and attentions for the kernels, in tiny shapes: every access of every thread is checked.

The device functions of tasks 15.1, 15.2 and 15.4 are graded by the kernels of `probe.cu`, which run one
thread block; the loops of 15.3, 15.5 and 15.6 through the contract.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import Mismatch, expect_close, note
from grader.kit.cuda_work import blamed, expect_no_wrap
from grader.kit.kernels import attention, attention_gradients, expect_near, random
from grader.kit.recomputed import Kinds
from grader.kit.script import off_the_record
from grader.suites.cuda_flash_attention.mistakes import forward_kinds, gradient_kinds
from grader.suites.cuda_flash_attention.strides import expect_with_strides, padded
from yaie.core.batch import AttentionSpec
from yaie.cuda.on_cpu import KernelFault

F32 = torch.float32
ASKED = (
    "`sees` is for a query and a key that both exist. A tile also has rows and columns past the last of "
    "them, for which the block mask has no entry: test that both exist before you call it."
)
ONE_PAST = (
    "`sees` is asked about {0} {1}, and the last one is {0} {2}: only this one number is too large. Ask "
    "where the number is below their count."
)
PAST_THE_LAST = (
    "A tile may end past the last query or key, and the blocks end there: cut both ends at tq and tk "
    "before you divide."
)
HEADS = "Query head h reads key and value head h // (heads / kv_heads): kv_head, not head."
DIM = 32  # of the probes' tiles
ROWS = 32
PAD = 4  # floats behind each row of a tile; see tiles.cuh
UNWRITTEN = re.compile(r"element (\d+) of shared memory")
TILES_MEET = (
    "With one tile alone this race is not there: two tiles meet. Every thread must have read the tile "
    "(or the weights) of this turn before any thread writes those of the next one in their place."
)
Rules = dict[str, Any]


def library(part: ModuleType) -> Any:
    """The lab's compiled kernels, probes included."""
    return part.flash_attention.LIBRARY


def probe_tile(part: ModuleType, source: Tensor, rows: int, dim: int, why: str = "") -> Tensor:
    """What `load_tile` makes of `rows` rows of `dim` elements of a source: [32, 32].

    why: an element may have been left unwritten; such a one is named by its row and column.
    """
    tile = torch.empty(ROWS, DIM)
    note(f"load_tile<32, 32>: rows={rows}, dim={dim}, stride={source.stride(0)}, {source.dtype}")
    try:
        library(part).call("probe_tile", source, tile, source.dtype, source.stride(0), rows, dim)
    except KernelFault as fault:
        found = UNWRITTEN.search(fault.message) if fault.kind == "uninitialized" else None
        if not found:
            raise
        row, column = divmod(int(found[1]), DIM + PAD)
        exists = row < rows and column < dim
        raise Mismatch(
            f"load_tile left row {row}, column {column} of the tile unwritten, among others",
            f"the element of row {row}" if exists else f"0, as the source has {rows} rows of {dim}",
            "what lay there",
            why,
        ) from None
    return tile


def expect_wide_offsets(part: ModuleType) -> None:
    """A row 2**32 elements after the first one is not taken for the first one."""
    source, tile = random(1, 32, seed=3), torch.empty(ROWS, DIM)
    note("load_tile<32, 32>: rows=2, dim=32, stride=2**32")

    def call() -> None:
        library(part).call("probe_tile", source, tile, source.dtype, 2**32, 2, 32)

    def unchanged() -> None:
        if torch.equal(tile[1], source[0]):
            raise Mismatch("row 1 of the tile is row 0 of the tensor")

    expect_no_wrap(call, unchanged, "row 1 of a tile whose rows lie 2**32 elements apart")


def probe_products(part: ModuleType, a: Tensor, b: Tensor) -> Tensor:
    """`rows_times_rows` on tiles a and b [32, 32]: a times b transposed."""
    out = torch.empty(ROWS, ROWS)
    note("rows_times_rows<32> on two tiles of 32 rows")
    library(part).call("probe_products", a, b, out, None)
    return out


def probe_sums(part: ModuleType, weights: Tensor, rows: Tensor, why: str = "") -> Tensor:
    """`weights_times_rows` on weights [32, 16] and rows [16, 32]: their product, added to ones.

    why: it may read what is no weight and no row.
    """
    out = torch.empty(ROWS, DIM)
    note("weights_times_rows<16> on 32 rows of 16 weights, and 16 rows of 32")
    square = [torch.full((ROWS, DIM), torch.nan) for _ in range(2)]
    square[0][:, : weights.shape[1]], square[1][: len(rows)] = weights, rows
    with blamed("uninitialized", why):
        library(part).call("probe_products", *square, None, out)
    return out


def probe_softmax(part: ModuleType, scores: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """SoftmaxRows over tiles of scores [tiles, 32, 32]: (share, lse, acc, weights of the last tile)."""
    share, lse, acc = (torch.empty(ROWS) for _ in range(3))
    weights = torch.empty(ROWS, DIM)
    note(f"SoftmaxRows.update with {len(scores)} tile{'s' * (len(scores) > 1)} of scores")
    library(part).call("probe_softmax", scores.contiguous(), share, lse, acc, weights, len(scores))
    return share, lse, acc, weights


def probe_mask(
    part: ModuleType, tq: int, tk: int, size: int, **rules: Any
) -> tuple[Tensor, list[list[int]], list[list[int]], Tensor]:
    """The methods of Mask: (sees [tq, tk], keys_of and queries_of of each tile, any_block)."""
    blocks, mask_block = rules.get("block_mask"), rules.get("mask_block", 128)
    rows, columns = -(-tq // size), -(-tk // size)
    sees = torch.empty(tq, tk, dtype=torch.bool)
    key_spans = torch.empty(rows, 2, dtype=torch.int32)
    query_spans = torch.empty(columns, 2, dtype=torch.int32)
    any_block = torch.empty(rows, columns, dtype=torch.bool)
    note(f"Mask: {tq} queries, {tk} keys, {said(rules)}")
    with blamed("out_of_bounds", PAST_THE_LAST, where="of blocks"):
        library(part).call(
            "probe_mask", blocks, sees, key_spans, query_spans, any_block, tq, tk,
            int(rules.get("causal", True)), rules.get("window") or 0, mask_block.bit_length() - 1,
            -(-tk // mask_block), size,
        )  # fmt: skip
    return sees, key_spans.tolist(), query_spans.tolist(), any_block


def said(rules: Rules) -> str:
    """Rules in words."""
    blocks = rules.get("block_mask")
    shown = [f"{name}={value}" for name, value in rules.items() if name != "block_mask"]
    return ", ".join(shown + [f"block_mask {drawn(blocks)}"] * (blocks is not None)) or "causal"


def drawn(blocks: Tensor | None) -> str:
    """A block mask as rows of marks: [.x. x..]."""
    if blocks is None:
        return "none"
    return f"[{' '.join(''.join('.x'[int(mark)] for mark in row) for row in blocks.tolist())}]"


def inputs(
    n: int, tq: int, tk: int, heads: int, kv_heads: int, dim: int, dtype: torch.dtype = F32
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v, each with gaps of NaN between its tokens and so with strides of its own."""
    q = random(n, tq, heads, dim, seed=1, dtype=dtype)
    k, v = (random(n, tk, kv_heads, dim, seed=seed, dtype=dtype) for seed in (2, 3))
    return padded(q, "q"), padded(k, "k"), padded(v, "v")


def fine_inputs(
    n: int, tq: int, tk: int, heads: int, kv_heads: int, dim: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as `inputs` has them, of numbers with all the digits that the dtype has."""
    generator = torch.Generator().manual_seed(7)
    shapes = (n, tq, heads, dim), (n, tk, kv_heads, dim), (n, tk, kv_heads, dim)
    q, k, v = (torch.randn(*shape, generator=generator).to(dtype) for shape in shapes)
    return padded(q, "q"), padded(k, "k"), padded(v, "v")


@contextmanager
def outside(k: Tensor, q: Tensor) -> Iterator[None]:
    """What an access out of bounds means: of the block mask, or where query heads share a key head."""
    heads = blamed("out_of_bounds", HEADS) if q.shape[2] > k.shape[2] else nullcontext()
    with heads, blamed("out_of_bounds", ASKED, where="of blocks"):
        yield


@contextmanager
def one_past(check: Callable[[int, int], None], tq: int, tk: int) -> Iterator[None]:
    """Queries and keys fill their blocks, and the block mask is left; if it is not with a query or a key
    less, only one number too many is asked about."""
    try:
        yield
    except KernelFault as fault:
        if fault.kind == "out_of_bounds" and "of blocks" in fault.message:
            told = []
            for which, count, less in (("query", tq, (tq - 1, tk)), ("key", tk, (tq, tk - 1))):
                with suppress(KernelFault, Mismatch), off_the_record():
                    check(*less)
                    told.append(ONE_PAST.format(which, count, count - 1))
            if len(told) == 1:
                vars(fault)["blame"] = told[0]
        raise


def spec_of(scale: float, rules: Rules) -> tuple[AttentionSpec, Rules]:
    """The oracle has the window in its spec."""
    rest = {name: value for name, value in rules.items() if name != "window"}
    return AttentionSpec(scale, window=rules.get("window")), rest


def expect_forward(
    part: ModuleType,
    qkv: tuple[Tensor, Tensor, Tensor],
    what: str,
    why: str,
    *,
    scale: float | None = None,
    **rules: Any,
) -> None:
    """`forward` gives the output and the lse of attention in float64."""
    q, k, v = qkv
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    note(
        f"forward: q {list(q.shape)}, k and v {list(k.shape)}, {q.dtype}, scale {scale:.4g}, "
        f"{said(rules)}"
    )
    spec, rest = spec_of(scale, rules)
    exact, exact_lse = attention(q, k, v, spec, **rest)

    def check(given: tuple[Tensor, Tensor, Tensor]) -> None:
        with outside(k, q), races(lambda: one_tile_forward(part)):
            out, lse = part.FlashAttention().forward(*given, scale=scale, **rules)
        kinds = forward_kinds(*given, scale, rules)
        expect_near(out, exact, q.dtype, f"out of {what}", why=why, kinds=kinds)
        expect_close(lse, exact_lse, f"lse of {what}", rtol=1e-4, atol=1e-4, why=why)

    expect_with_strides(check, qkv)


ROUNDED_ONCE = (
    "What is loaded becomes float32 at once, and stays it: scores, weights, their gradients and all "
    "sums. Only what is stored at the end is rounded."
)


RARE = 0.1
"""How many numbers may round the other way, as a share of the wrong ones that a mistake explains."""


def expect_rounded_once(got: Tensor, exact: Tensor, what: str, kinds: Kinds) -> None:
    """got is `exact` rounded to its dtype of 16 bits, to the last bit. kinds: mistakes, in float64."""
    slack = 2e-5 * exact.abs().amax(dim=-1, keepdim=True)
    ends = [(exact + sign * slack).to(got.dtype) for sign in (-1, 1)]
    fits = (got >= ends[0]) & (got <= ends[1])
    right = got.where(fits, exact.to(got.dtype))
    # A kind must account for what is right, too: many mistakes make some of the same numbers wrong.
    most = max(1, int(RARE * int((~fits).sum())))
    found = [
        told
        for told, compute in kinds.items()
        if int((compute().to(got.dtype) != got).sum()) <= most
    ]
    expect_close(
        got, right, what, rtol=0, atol=0, why=found[0] if len(found) == 1 else ROUNDED_ONCE
    )


@contextmanager
def races(one_tile: Callable[[], object]) -> Iterator[None]:
    """A race that one tile alone does not have is one of two tiles, and told as such."""
    try:
        yield
    except KernelFault as fault:
        if fault.kind == "race" and not hasattr(fault, "blame"):
            with suppress(KernelFault, Mismatch):
                one_tile()
                vars(fault)["blame"] = TILES_MEET
        raise


def one_tile_forward(part: ModuleType) -> None:
    part.FlashAttention().forward(*inputs(1, 3, 5, 1, 1, 16), scale=0.25, causal=False)


def one_tile_gradients(part: ModuleType, which: str) -> None:
    qkv = inputs(1, 3, 5, 1, 1, 16)
    gradients(part, which, random(*qkv[0].shape, seed=4), qkv, 0.25, causal=False)


def gradients(
    part: ModuleType,
    which: str,
    grad_out: Tensor,
    qkv: tuple[Tensor, Tensor, Tensor],
    scale: float,
    **rules: Any,
) -> Any:
    """One of the kernels of the backward pass, on what an exact forward pass would hand it."""
    q, k, v = qkv
    spec, rest = spec_of(scale, rules)
    out, lse = attention(q, k, v, spec, **rest)
    delta = (grad_out.double() * out).sum(-1).transpose(1, 2)
    arguments = part.flash_attention.rules_of(
        q, k, v, scale, rules.get("causal", True), rules.get("window"), rules.get("block_mask"),
        rules.get("mask_block", 128),
    )  # fmt: skip
    run = getattr(part.FlashAttention(), which)
    with outside(k, q):
        return run(
            grad_out, q, k, v, lse.float().contiguous(), delta.float().contiguous(), arguments
        )


def expect_gradients(
    part: ModuleType,
    which: str,
    qkv: tuple[Tensor, Tensor, Tensor],
    what: str,
    why: str,
    **rules: Any,
) -> None:
    """`backward_kv` or `backward_q` gives the gradients of attention in float64."""
    q, k, v = qkv
    grad_out, scale = random(*q.shape, seed=4, dtype=q.dtype), q.shape[-1] ** -0.5
    note(f"{which}: q {list(q.shape)}, k {list(k.shape)}, {q.dtype}, {said(rules)}")
    spec, rest = spec_of(scale, rules)
    dq, dk, dv = attention_gradients(grad_out, q, k, v, spec, **rest)

    def expect_one(name: str, got: Any, right: Tensor) -> None:
        kinds = gradient_kinds(name, grad_out, qkv, scale, rules)
        expect_near(got, right, q.dtype, f"{name} of {what}", why=why, roundings=4, kinds=kinds)

    def check(given: tuple[Tensor, Tensor, Tensor], grad_out: Tensor) -> None:
        with races(lambda: one_tile_gradients(part, which)):
            got = gradients(part, which, grad_out, given, scale, **rules)
        if which == "backward_q":
            expect_one("dq", got, dq)
            return
        if not isinstance(got, tuple) or len(got) != 2:
            raise Mismatch("backward_kv does not give (dk, dv)", why=why)
        expect_one("dv", got[1], dv)
        expect_one("dk", got[0], dk)

    expect_with_strides(check, qkv, grad_out)
