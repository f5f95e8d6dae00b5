"""Cases for the operations of a layer, and the operations under test."""

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import Mismatch, expect, note, start_script, watch
from grader.kit.cuda_work import (
    PACKED,
    Work,
    blamed,
    expect_wide,
    launches_of,
    told_grid,
    work_of,
)
from grader.kit.kernels import random
from grader.kit.script import off_the_record
from yaie.cuda.on_cpu import KernelFault, Launch

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
DTYPES = st.sampled_from([F32, F16, BF16])
WIDE = "The arithmetic is in float32: neither squares nor their sum fit into 16 bits."
ODD = (
    "Packs of 16 bytes need addresses that are multiples of 16: of the base, and so of the stride and "
    "of the row's size. Where one is not, or where d is no multiple of a pack, numbers go one at a time."
)

LIMITED = (
    "A grid has at most LARGEST_GRID_YZ blocks in y, and in z (65,535 on a GPU): where there may be "
    "more rows, the launcher takes the smaller of the two, and a loop in the kernel goes on."
)

ROWS_IN_64_BITS = (
    "The number of a row times the way to the next passes 2**31 in a large batch: make it int64_t "
    "first. Neither the number nor the product, nor a variable that takes it, may be an int."
)
IN_X = (
    "A grid has at most 65,535 blocks in y, and in z; in x it may have 2**31 - 1. What there may be "
    "more of goes along x, or is left to a loop in the kernel."
)


def kernels_of(part: ModuleType) -> Any:
    """The operations under test; their calls are written down."""
    return watch(part.LayerKernels(), "kernels")


def sums_of(part: ModuleType) -> Any:
    """The kernels that try task 14.1 alone, which the lab gives."""
    return watch(importlib.import_module(f"{part.__name__}.sums"), "sums")


def launch_of(part: ModuleType) -> Any:
    """Calls a launcher of the part by its name, with sizes and strides that no tensor here has."""
    return importlib.import_module(f"{part.__name__}.layer_kernels").LIBRARY.call


def expect_launched(call: Callable[[int], object], count: int) -> None:
    """CUDA takes the launch of call(count), of which no kernel runs."""
    note(f"# {count:,} rows or tokens; the launch is looked at, and no kernel runs")
    with blamed("launch", IN_X, where="a grid of"):
        launches_of(lambda: call(count))


def expect_two_warps(launches: list[Launch], what: str) -> None:
    """The blocks of the first launch have 64 threads or more. what: as in "rms_norm of 512 rows"."""
    expect(
        launches[0].threads >= 64,
        f"{what}: blocks of {launches[0].threads} threads",
        why="An SM has room for 64 warps, and for 32 blocks: blocks of one warp or less fill at most "
        "half of it. A block has room for more of them along y or z.",
    )


def expect_loads_in_packs(work: Work, what: str) -> None:
    """No line loads 16-bit numbers one at a time."""
    for launch in work.seen:
        for line in launch.lines:
            traffic = line.traffic
            if line.kind == "global load" and traffic.bytes < 4 * traffic.count:
                raise Mismatch(
                    f"{what}: numbers are loaded one at a time in {line.file}:{line.line}",
                    f"{traffic.bytes // 16} loads of 16 bytes",
                    f"{traffic.count} of {traffic.bytes / traffic.count:g}",
                    PACKED,
                )


def expect_packed(
    work: Work, moves: int, what: str, again: Callable[[], object], sizes: str
) -> None:
    """`moves` bytes are stored, in packs. again: a call whose sizes are multiples of 16 as counts of
    numbers, too; sizes: these, in words."""
    try:
        expect_wide(work, moves, what)
    except Mismatch as error:
        with off_the_record(), suppress(Exception):
            other = work_of(again)
            if other.stores.bytes == 16 * other.stores.count and other.stores.count:
                error.why = (
                    f"With {sizes} packs are used. Those are multiples of 16 as counts of numbers, too; "
                    "here sizes and strides are so in bytes alone, and packs_fit takes bytes."
                )
        raise


@contextmanager
def half_told(half: int, d: int, dtype: torch.dtype, larger: Callable[[], None]) -> Iterator[None]:
    """If a call fails for which only half is no multiple of 16 bytes, and `larger` does not, whose half
    is one, half is what was not asked about."""
    size = dtype.itemsize
    try:
        yield
    except (Mismatch, KernelFault) as failure:
        if half * size % 16 and d * size % 16 == 0:
            with off_the_record(), suppress(Mismatch, KernelFault):
                larger()
                told = (
                    f"half is {half} here, {half * size} bytes, no multiple of 16; all else is. With "
                    f"a half of {4 * half} all is right: packs_fit is asked about half, too, in bytes."
                )
                if isinstance(failure, KernelFault):
                    vars(failure)["blame"] = told
                else:
                    failure.why = told
        raise


def what_is_left(wrong: Tensor, launches: Sequence[Launch]) -> str:
    """Which tokens [tokens] bool were left out, beside what was launched."""
    first, last = (int(i) for i in wrong.nonzero().flatten()[[0, -1]])
    some = (
        f"tokens {first:,} to {last:,} are as they were"
        if last > first
        else f"token {first:,} is as it was"
    )
    return (
        f"Of {len(wrong):,} tokens, {some}, and {told_grid(launches)} is launched. The grid has blocks "
        "for all tokens (in x it may have 2**31 - 1), or a loop in the kernel goes on where it ends: "
        "every token has a turn."
    )


def stays(got: Tensor, before: Tensor, right: Tensor) -> Tensor:
    """Which heads [tokens, heads] bool are as they were, though something belongs there."""
    wrong = ~torch.isclose(got.double(), right.double(), rtol=0.02, atol=0.02).all(dim=-1)
    return wrong & (got.double() == before.double()).all(dim=-1)


def heads_left(left: Tensor, names: str, call: Callable[[], object]) -> str:
    """That heads from the number of a block's threads along y on were left out; "" if it is not so.

    left: [tokens, heads] bool, in the order in which threads have them. names: of what they are."""
    heads = left.any(dim=0).tolist()  # at position 0 nothing changes
    first = heads.index(True) if True in heads else 0
    if not first or not all(heads[first:]) or not bool(left.any(dim=1).all()):
        return ""
    with off_the_record(), suppress(Exception):
        block = launches_of(call)[0].block
        if block[1] == first:
            were = f"heads 0 to {first - 1} are" if first > 1 else "head 0 is"
            threads = f"{first} threads" if first > 1 else "one thread"
            return (
                f"Of {len(heads)} heads ({names}) {were} right, and the others as they were. A block "
                f"has {threads} along y: each takes the head of threadIdx.y, and a loop goes on to the "
                "head blockDim.y further."
            )
    return ""


def tokens_left(left: Tensor, call: Callable[[], object]) -> str:
    """That tokens behind those for which the grid has threads were left out; "" if it is not so.

    left: [tokens, heads] bool."""
    tokens = left.any(dim=1)
    first = int(tokens.nonzero()[0]) if bool(tokens.any()) else 0
    if not first or not bool(tokens[first:].all()):
        return ""
    with off_the_record(), suppress(Exception):
        launches = launches_of(call)
        if launches[0].grid[0] * launches[0].block[2] == first:
            return what_is_left(tokens, launches)
    return ""


def spread(x: Tensor, before: int = 0, after: int = 0) -> Tensor:
    """x [tokens, ...] as a view of wider rows, `before` and `after` numbers larger, filled with 99."""
    row = x[0].numel() if len(x) else x.numel()
    wide = torch.full((len(x), before + row + after), 99.0, dtype=x.dtype)
    view = wide[:, before : before + row].view(x.shape)
    return view.copy_(x)


def laid(x: Tensor, number: int = 0, *, start: int = 0, step: int = 0) -> Tensor:
    """x [tokens, ...] as a view with NaN around its tokens. number: other numbers give other strides.
    Addresses and strides are multiples of 32 bytes, but for `start` and `step` numbers."""
    row = x[0].numel()
    stride = -(-row // 16) * 16 + 16 * (number + 1) + step
    room = torch.full((32 + start + len(x) * stride,), math.nan, dtype=x.dtype)
    strides = stride, *x[0].contiguous().stride()
    return room.as_strided(tuple(x.shape), strides, 16 + start).copy_(x)


def shifted(x: Tensor, start: int) -> Tensor:
    """A contiguous copy of x that begins `start` numbers behind an aligned address."""
    room = torch.zeros(x.numel() + start, dtype=x.dtype)
    return room[start:].view(x.shape).copy_(x)


@contextmanager
def only(name: str, told: str = "") -> Iterator[str]:
    """Inside, `name` alone is no multiple of 16 bytes: gives the advice, and says it of faults.

    told: what the number is, where that helps. Calls before it passed, and are not quoted."""
    start_script()
    why = (
        f"Of the numbers that packs_fit should get only {name} is no multiple of 16 bytes here. "
        f"{told}{' ' * bool(told)}That alone forbids packs: each of them has a say."
    )
    note(f"# {name} alone is no multiple of 16 bytes")
    with blamed("misaligned", why), blamed("out_of_bounds", why), blamed("crash", why):
        yield why


def told_half(name: str, half: int) -> str:
    """What half is in bytes, for `only`."""
    if name != "half":
        return ""
    return (
        f"half is {half}, and so {2 * half} bytes of q and k, whose numbers have 2: there the second "
        "number of the first pair lies. Bytes of the angles, which have 4, do not count."
    )


def begins(x: Tensor, name: str = "x") -> str:
    """Where the first rows of x [tokens, .., d] begin, for a fault that names an element."""
    per_token, d = max(x[0].numel() // x.shape[-1], 1), x.shape[-1]
    at = [t * x.stride(0) + row * d for t in range(len(x)) for row in range(per_token)]
    return (
        f"Here rows 0 to {len(at) - 1} of {name} begin at its elements {', '.join(map(str, at))}."
    )


@st.composite
def rows(draw: st.DrawFn, multiple: int = 1) -> Tensor:
    """x [..., d] of any dtype, contiguous or a view of wider rows, aligned or not."""
    lead = draw(st.sampled_from([[0], [1], [2], [5], [2, 3]]))
    d = multiple * draw(st.sampled_from([1, 3, 8, 16, 33, 64, 80, 100, 264]))
    x = random(*lead, d, seed=draw(st.integers(0, 99)), dtype=draw(DTYPES))
    return spread(x, draw(st.integers(0, 8)), draw(st.integers(0, 8)))


@st.composite
def heads(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, int]:
    """(q, k, v, half): views of one product, with a part of each head that turns."""
    tokens, kv_heads = draw(st.integers(0, 4)), draw(st.integers(1, 3))
    count = kv_heads * draw(st.integers(1, 3))
    d, half = draw(st.sampled_from([(16, 8), (64, 32), (20, 10), (32, 8), (48, 8), (10, 3)]))
    product = random(
        tokens,
        (count + 2 * kv_heads) * d + draw(st.integers(0, 1)),
        seed=draw(st.integers(0, 99)),
        dtype=draw(DTYPES),
    )
    sizes = [count * d, kv_heads * d, kv_heads * d]
    q, k, v = product[:, : sum(sizes)].split(sizes, dim=1)
    return q.unflatten(1, (count, d)), k.unflatten(1, (-1, d)), v.unflatten(1, (-1, d)), half
