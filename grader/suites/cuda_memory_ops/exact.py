"""What the memory operations must leave behind, by PyTorch's indexing, and what their work may be."""

from types import ModuleType
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import Mismatch, expect_equal, watch
from grader.kit.kernels import random
from grader.kit.recomputed import from_element

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
DTYPES = st.sampled_from([F32, F16, BF16])
EVERY = "What the grid does not cover is done in a loop, in steps of the whole grid."
ALIGNED = "A copy is as wide as both addresses and the block's size allow, which may be 2 bytes."
TAIL = (
    "A block of {0} bytes was taken for {1} copies of {2} bytes, {3} bytes in all. The width of a copy "
    "must divide the block's size, too."
)
LIMITED = (
    "A grid has at most LARGEST_GRID_YZ blocks in y, and in z (65,535 on a GPU): where there may be "
    "more to do, the launcher takes the smaller of the two, and a loop in the kernel goes on."
)
MOST_BLOCKS = 6
"""Wrong blocks that a report lists."""


def memory_of(part: ModuleType) -> Any:
    """The operations under test; their calls are written down."""
    return watch(part.MemoryKernels(), "memory")


def blocks_of(*shape: int, seed: int = 0, dtype: torch.dtype = F32) -> Tensor:
    """Blocks [num_blocks, ...] that hold something, so that a stray write shows."""
    return random(*shape, seed=seed, dtype=dtype)


def at_offset(x: Tensor, offset: int) -> Tensor:
    """A contiguous copy of x that begins `offset` numbers behind an aligned address."""
    room = torch.zeros(x.numel() + offset, dtype=x.dtype)
    copy = room[offset:].view(x.shape)
    return copy.copy_(x)


def moved(source: Tensor, target: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
    """`target` with the blocks of `pairs` out of `source`."""
    result = target.clone()
    for here, there in pairs:
        result[there] = source[here]
    return result


def expect_same(got: Any, right: Tensor, what: str, *, why: str = "", place: bool = True) -> None:
    """Equal bit by bit; in a report the first place is that of a block or a row, then inside it.

    place: say also from which element of its row on values are wrong."""
    if not isinstance(got, Tensor):
        raise Mismatch(f"{what}: {type(got).__name__} instead of a tensor", why=why)
    expect_equal(list(got.shape), list(right.shape), f"the shape of {what}", why=why)
    expect_equal(got.dtype, right.dtype, f"the dtype of {what}", why=why)
    if torch.equal(got, right):
        return
    wrong = (got != right) & ~(got.isnan() & right.isnan())
    index = tuple(int(i) for i in wrong.nonzero()[0])
    begin = from_element(got, right, 0.0) if place and got.is_floating_point() else ""
    lost = bool(got[index].isnan()) and not bool(right.isnan().any())
    raise Mismatch(
        f"{what}: {int(wrong.sum())} of {wrong.numel()} numbers differ, the first at {list(index)}"
        + f", {begin}" * bool(begin),
        str(right[index].item()),
        "NaN, since nothing was written there" if lost else str(got[index].item()),
        why,
    )


def expect_blocks(
    got: Tensor, right: Tensor, what: str, known: dict[str, Tensor], why: str
) -> None:
    """Equal bit by bit; a report says of each wrong block which one it should be and which it is.

    known: what a block may hold, by words: "block {} of the source", "what block {} held". Blocks are
    all different.
    """
    if got.shape != right.shape or torch.equal(got, right):
        return expect_same(got, right, what, why=why)
    differ = [i for i in range(len(right)) if not torch.equal(got[i], right[i])]

    def told(blocks: Tensor) -> str:
        named = [f"{i}: {which(blocks[i], i, known)}" for i in differ[:MOST_BLOCKS]]
        return ", ".join(named + ["..."] * (len(differ) > MOST_BLOCKS))

    count = f"{len(differ)} of {len(right)} blocks are wrong"
    raise Mismatch(f"{what}: {count}", told(right), told(got), why)


def which(block: Tensor, at: int, known: dict[str, Tensor]) -> str:
    """What a block holds, in words."""
    for words, blocks in known.items():
        for i, other in enumerate(blocks):
            if torch.equal(block, other):
                return "as it was" if i == at and words.endswith("held") else words.format(i)
    return "none of these blocks" if bool((block == block).all()) else "partly not written"


def all_odd(num_blocks: int, size: int, seed: int = 0) -> Tensor:
    """Blocks of `size` numbers of 2 bytes at an address that allows no wider copy."""
    return at_offset(random(num_blocks, 1, size, seed=seed, dtype=BF16), 1)


def tail_left(got: Tensor, blocks: Tensor, entries: list[int]) -> str:
    """Whether these entries [n, numbers] of blocks [m, numbers] are gathered in whole copies alone, the
    next block beginning where the copies of the last one end."""
    length = blocks.shape[1] * blocks.itemsize
    for width in (16, 8, 4):
        taken = length // width * (width // blocks.itemsize)
        if taken in (0, blocks.shape[1]):
            continue
        flat, out = blocks.flatten(), torch.full_like(got.flatten(), torch.nan)
        for at, entry in enumerate(entries):
            out[at * taken : (at + 1) * taken] = flat[entry * taken : (entry + 1) * taken]
        if torch.equal(out.nan_to_num(99.0), got.flatten().nan_to_num(99.0)):
            return TAIL.format(length, length // width, width, length // width * width)
    return ""


@st.composite
def stores(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(k, v, key_blocks, value_blocks, slot_mapping), k and v views of one product or on their own."""
    tokens, heads = draw(st.integers(0, 5)), draw(st.integers(1, 3))
    d = draw(st.sampled_from([1, 3, 8, 20, 33, 64]))
    size, dtype, seed = draw(st.integers(1, 4)), draw(DTYPES), draw(st.integers(0, 99))
    num_blocks = -(-(tokens + 2) // size)
    slots = torch.randperm(num_blocks * size, generator=torch.Generator().manual_seed(seed))
    slots = slots[:tokens]
    for i in range(tokens):
        if draw(st.integers(0, 3)) == 0:
            slots[i] = -1
    before = draw(st.integers(0, 3))
    product = random(tokens, before + 2 * heads * d, seed=seed, dtype=dtype)
    k, v = product[:, before:].unflatten(1, (2, heads, d)).unbind(1)
    shape = (num_blocks, size, heads, d)
    keys = at_offset(blocks_of(*shape, seed=seed + 1, dtype=dtype), draw(st.integers(0, 2)))
    return k, v, keys, blocks_of(*shape, seed=seed + 2, dtype=dtype), slots


@st.composite
def pairs_of(draw: st.DrawFn, num_blocks: int) -> list[tuple[int, int]]:
    """Pairs in which no block occurs twice."""
    order = draw(st.permutations(range(num_blocks)))
    count = draw(st.integers(0, num_blocks // 2))
    return [(order[2 * i], order[2 * i + 1]) for i in range(count)]
