"""Tasks 13.2 to 13.4: whole blocks are gathered, copied and swapped."""

from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect_equal, task
from grader.kit.cuda_work import (
    blamed,
    expect_many_threads,
    expect_no_wrap,
    expect_whole_sectors,
    expect_wide,
    work_of,
)
from grader.kit.kernels import random
from grader.suites.cuda_memory_ops.exact import (
    BF16,
    DTYPES,
    F16,
    F32,
    at_offset,
    blocks_of,
    expect_same,
    memory_of,
    moved,
    pairs_of,
)

ORDER = "Entry e of the tables becomes the e-th block of the result, whatever number it has."
PAIR = (
    "A pair is (from, to). The first number is a block of the source, the second one of the target."
)
EVERY = "The grid covers what it covers; a loop in steps of the whole grid takes over the rest."
ALIGNED = "A copy is as wide as both addresses and the block's size allow, which may be 2 bytes."


def table(*rows: list[int]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int32)


def pairs(*numbers: tuple[int, int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64).reshape(-1, 2)


@task("13.2")
def test_gather_follows_the_tables(part: ModuleType) -> None:
    """The blocks of each table stand one after the other, a table a row."""
    blocks = torch.arange(16.0).view(4, 2, 2)
    got = memory_of(part).gather(blocks, table([3, 0], [1, 2]))
    right = blocks[[3, 0, 1, 2]].view(2, 4, 2)
    expect_same(got, right, "tables (3, 0) and (1, 2) on four blocks of 2 slots", why=ORDER)


@task("13.2")
def test_blocks_of_any_size(part: ModuleType) -> None:
    """A block may be longer than all threads of the grid together, and of any size."""
    for shape in ((2, 1, 1), (3, 5, 7), (2, 60, 80)):
        blocks = random(*shape)
        got = memory_of(part).gather(blocks, table([1, 0]))
        exact = blocks[[1, 0]].flatten(0, 1)[None]
        expect_same(got, exact, f"gathering blocks of {list(shape[1:])}", why=f"{EVERY} {ALIGNED}")


@task("13.2")
@examples(30)
@given(st.data())
def test_any_gather(part: ModuleType, data: st.DataObject) -> None:
    """Any gather is what indexing gives: heads, head sizes, addresses and dtypes of every kind."""
    size, heads = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    d, dtype = data.draw(st.sampled_from([1, 5, 8, 24, 33])), data.draw(DTYPES)
    blocks = at_offset(random(5, size, heads, d, dtype=dtype), data.draw(st.integers(0, 3)))
    n, m = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 4))
    entries = data.draw(st.lists(st.integers(0, 4), min_size=n * m, max_size=n * m))
    tables = torch.tensor(entries, dtype=torch.int32).view(n, m)
    with blamed("misaligned", ALIGNED):
        got = memory_of(part).gather(blocks, tables)
    right = blocks[tables.long()].reshape(n, m * size, heads, d)
    expect_same(got, right, f"gathering blocks of {[size, heads, d]} {dtype}", why=ALIGNED)


def a_gather() -> tuple[Tensor, Tensor, int]:
    """Six of eight blocks of 1,024 bytes, and the bytes that move."""
    return random(8, 4, 2, 64, dtype=BF16), table([5, 2, 7], [1, 0, 5]), 6 * 1024


@task("13.2")
def test_a_gather_fills_its_sectors(part: ModuleType) -> None:
    """Neighbouring threads move neighbouring addresses, 16 bytes each."""
    memory, (blocks, tables, moves) = memory_of(part), a_gather()
    work = work_of(lambda: memory.gather(blocks, tables))
    expect_whole_sectors(work, "gathering 6 blocks of 1,024 bytes")
    expect_wide(work, moves, "gathering 6 blocks of 1,024 bytes")


@task("13.2")
def test_many_threads_gather(part: ModuleType) -> None:
    """The work is spread over the device: threads for all of it, in more than one block."""
    memory, (blocks, tables, moves) = memory_of(part), a_gather()
    work = work_of(lambda: memory.gather(blocks, tables))
    expect_many_threads(work, moves, "gathering 6 blocks of 1,024 bytes")


@task("13.2")
def test_block_numbers_past_32_bits(part: ModuleType) -> None:
    """Where a block begins is computed in 64 bits."""
    memory, blocks = memory_of(part), random(8, 4, 2, 64, dtype=BF16)
    far = table([2**26])  # of 64 units: 2**32 units, while the number itself fits into an int
    result: list[Tensor] = []
    expect_no_wrap(
        lambda: result.append(memory.gather(blocks, far)),
        lambda: expect_equal(
            any(torch.equal(x[0], blocks[0]) for x in result),
            False,
            "whether a gather of block 2**26 gives block 0",
        ),
        "block 2**26, of 64 units",
    )


@task("13.3")
def test_every_tensor_gets_its_copies(part: ModuleType) -> None:
    """Block src of each tensor is copied to its block dst, in all tensors of the list."""
    tensors = [torch.arange(8.0).view(4, 2) + 10 * i for i in range(3)]
    right = [moved(t, t, [(2, 0), (1, 3)]) for t in tensors]
    memory_of(part).copy_blocks(tensors, pairs((2, 0), (1, 3)))
    for i, (got, exact) in enumerate(zip(tensors, right, strict=True)):
        expect_same(got, exact, f"tensor {i} of 3 after copies 2 to 0 and 1 to 3", why=PAIR)


@task("13.3")
def test_tensors_of_different_blocks(part: ModuleType) -> None:
    """Each tensor has a block size of its own: layers need not be alike."""
    tensors = [random(4, 2, 3), random(4, 50), random(6, 2, 4, dtype=BF16), random(5, 1)]
    right = [moved(t, t, [(3, 1), (0, 2)]) for t in tensors]
    why = "block_bytes of the table belongs to one tensor; the largest only says how many threads."
    with blamed("out_of_bounds", why):
        memory_of(part).copy_blocks(tensors, pairs((3, 1), (0, 2)))
    for got, exact in zip(tensors, right, strict=True):
        what = f"the tensor of blocks {list(got.shape[1:])} after copies 3 to 1 and 0 to 2"
        expect_same(got, exact, what, why=why)


@task("13.3")
def test_one_launch_for_all_tensors(part: ModuleType) -> None:
    """However many tensors and pairs there are, one kernel is launched."""
    memory, tensors = memory_of(part), [random(4, 8) for _ in range(6)]
    work = work_of(lambda: memory.copy_blocks(tensors, pairs((2, 0), (1, 3))))
    why = "A model of 32 layers has 64 tensors: 64 launches would take longer than the copies."
    expect_equal(work.launches, 1, "launches to copy 2 blocks in 6 tensors", why=why)


@task("13.3")
def test_no_copies(part: ModuleType) -> None:
    """Without pairs nothing moves."""
    blocks = random(3, 4)
    before = blocks.clone()
    memory_of(part).copy_blocks([blocks], pairs())
    expect_same(blocks, before, "the blocks after no copies", why="A grid of 0 blocks is an error.")


@task("13.3")
@examples(20)
@given(st.data())
def test_any_copies(part: ModuleType, data: st.DataObject) -> None:
    """Any copies leave what indexing leaves, in tensors at any address."""
    sizes = data.draw(st.lists(st.sampled_from([1, 3, 8, 40]), min_size=1, max_size=3))
    tensors = [
        at_offset(random(6, size, dtype=data.draw(DTYPES)), data.draw(st.integers(0, 2)))
        for size in sizes
    ]
    which = data.draw(pairs_of(6))
    right = [moved(t, t, which) for t in tensors]
    with blamed("misaligned", ALIGNED):
        memory_of(part).copy_blocks(tensors, pairs(*which))
    for got, exact in zip(tensors, right, strict=True):
        expect_same(got, exact, f"blocks of {got.shape[1]} {got.dtype} after {which}", why=ALIGNED)


@task("13.3")
def test_copies_fill_their_sectors(part: ModuleType) -> None:
    """Neighbouring threads move neighbouring addresses, 16 bytes each."""
    memory, tensors = memory_of(part), [random(6, 512, dtype=F16, seed=i) for i in range(2)]
    work = work_of(lambda: memory.copy_blocks(tensors, pairs((0, 3), (5, 1))))
    expect_whole_sectors(work, "copying 2 blocks of 1,024 bytes in 2 tensors")
    expect_wide(work, 4 * 1024, "copying 2 blocks of 1,024 bytes in 2 tensors")


@task("13.4")
def test_swap_has_two_tensors(part: ModuleType) -> None:
    """Block `here` of the source goes to block `there` of the target, and only there."""
    source, target = torch.arange(8.0).view(4, 2), -torch.arange(1.0, 13).view(6, 2)
    right, kept = moved(source, target, [(1, 5), (3, 0)]), source.clone()
    memory_of(part).swap_blocks(source, target, pairs((1, 5), (3, 0)))
    expect_same(target, right, "the target after swapping 1 to 5 and 3 to 0", why=PAIR)
    expect_same(source, kept, "the source", why="What is swapped out is copied, not exchanged.")


@task("13.4")
@examples(30)
@given(st.data())
def test_any_swap(part: ModuleType, data: st.DataObject) -> None:
    """Any swap leaves what indexing leaves, between tensors at any address."""
    size, dtype = data.draw(st.sampled_from([1, 3, 8, 40])), data.draw(DTYPES)
    source = at_offset(random(5, 2, size, dtype=dtype), data.draw(st.integers(0, 2)))
    target = at_offset(random(7, 2, size, seed=1, dtype=dtype), data.draw(st.integers(0, 2)))
    there = data.draw(st.lists(st.integers(0, 6), unique=True, max_size=4))
    which = [(data.draw(st.integers(0, 4)), block) for block in there]
    right = moved(source, target, which)
    with blamed("misaligned", ALIGNED):
        memory_of(part).swap_blocks(source, target, pairs(*which))
    expect_same(target, right, f"blocks of {[2, size]} {dtype} after swapping {which}", why=ALIGNED)


@task("13.4")
def test_a_swap_fills_its_sectors(part: ModuleType) -> None:
    """Neighbouring threads move neighbouring addresses, 16 bytes each: the bus is slow enough."""
    memory, source, target = memory_of(part), random(4, 256, dtype=F32), random(5, 256, dtype=F32)
    work = work_of(lambda: memory.swap_blocks(source, target, pairs((0, 3), (2, 1))))
    expect_whole_sectors(work, "swapping 2 blocks of 1,024 bytes")
    expect_wide(work, 2 * 1024, "swapping 2 blocks of 1,024 bytes")


@task("13.4")
def test_many_blocks_are_swapped(part: ModuleType) -> None:
    """Any number of pairs is swapped in one launch."""
    source, target = blocks_of(60, 2), blocks_of(70, 2, seed=1)
    which = [(i, 69 - i) for i in range(60)]
    right, memory = moved(source, target, which), memory_of(part)
    work = work_of(lambda: memory.swap_blocks(source, target, pairs(*which)))
    expect_same(target, right, "the target after swapping 60 blocks", why=EVERY)
    expect_equal(work.launches, 1, "launches to swap 60 blocks")
