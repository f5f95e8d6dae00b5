"""Tasks 13.3 and 13.4: blocks are copied and swapped, by pairs of numbers."""

from collections.abc import Callable
from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect_equal, note, start_script, task
from grader.kit.cuda_work import (
    blamed,
    count_beyond_grid,
    expect_errors_returned,
    expect_grid_fits,
    expect_many_threads,
    expect_no_wrap,
    expect_whole_sectors,
    expect_wide,
    launches_of,
    left_over,
    told_grid,
    work_of,
)
from grader.kit.kernels import random
from grader.suites.cuda_memory_ops.exact import (
    ALIGNED,
    BF16,
    DTYPES,
    EVERY,
    F16,
    F32,
    LIMITED,
    all_odd,
    at_offset,
    blocks_of,
    expect_blocks,
    expect_same,
    memory_of,
    moved,
    pairs_of,
)

PAIR = (
    "A pair is (from, to). The first number is a block of the source, the second one of the target."
)
EXCHANGED = "What is swapped out is copied, not exchanged."
ONLY_READ = "The source of a copy is read and stays as it is."
FAR = 2**26
"""A block that no pool here has. Of 1,024 bytes each: 2**32 units of 16 bytes, or 2**36 bytes."""
WIDE = 2**32 + 2
"""Another one, whose number is 2 in 32 bits."""


def pairs(*numbers: tuple[int, int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64).reshape(-1, 2)


def cut(pair: tuple[int, int]) -> str:
    """What is cut to an int in a pair with one block that no pool has. FAR is tried first."""
    far, which = max(pair), "from" if pair[0] > pair[1] else "to"
    if far == FAR:
        return (
            f"The number of the block ({which}), {far:,}, fits into an int, and its product with a "
            "block's size does not. Make a factor int64_t first; a variable that takes the product may "
            "be no int either."
        )
    return (
        f"A smaller number of a block, {FAR:,}, does not wrap: here the number itself ({which}), 2**32 "
        "+ 2, is held in an int. The numbers of a pair are int64_t."
    )


def neighbours(count: int) -> Tensor:
    """Pairs (0, 1), (2, 3), ..."""
    return torch.arange(2 * count).reshape(-1, 2)


def first_pair(got: Tensor, right: Tensor, which: Tensor) -> int:
    """The number of the first pair whose target is wrong; -1 if none is."""
    wrong = (got != right).flatten(1).any(dim=1)[which[:, 1]].nonzero()
    return int(wrong[0]) if len(wrong) else -1


def of_the_rest(call: Callable[[], object], first: dict[str, int], is_many: bool) -> str:
    """Why what the grid does not cover was left out. first: by words, the first number that is wrong.

    is_many: of many pairs or tensors, rather than of long blocks.
    """
    launches = launches_of(call)
    if not is_many:
        return left_over(launches, -1, "bytes") + EVERY
    told = [left_over(launches, number, pieces) for pieces, number in first.items()]
    return next((words for words in told if "left out" in words), told[0]) + LIMITED


@task("13.3")
def test_every_tensor_gets_its_copies(part: ModuleType) -> None:
    """Block src of each tensor is copied to its block dst, in all tensors of the list."""
    tensors = [torch.arange(8.0).view(4, 2) + 10 * i for i in range(3)]
    right = [moved(t, t, [(2, 0), (1, 3)]) for t in tensors]
    before = {f"what block {{}} of tensor {i} held": t.clone() for i, t in enumerate(tensors)}
    memory_of(part).copy_blocks(tensors, pairs((2, 0), (1, 3)))
    held = zip(tensors, before.values(), strict=True)
    left = [i for i, (got, old) in enumerate(held) if torch.equal(got, old)]
    launches = launches_of(lambda: part.MemoryKernels().copy_blocks(tensors, pairs((2, 0), (1, 3))))
    for i, (got, exact) in enumerate(zip(tensors, right, strict=True)):
        why = PAIR
        if i in left:
            names = " and ".join(f"tensors[{each}]" for each in left)
            why = (
                f"{names}: as before the call, with {told_grid(launches)}. The pairs are copied in "
                "every tensor of the list."
            )
        expect_blocks(got, exact, f"tensors[{i}] after copies 2 to 0 and 1 to 3", before, why)


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
def test_any_number_of_copies(part: ModuleType) -> None:
    """Any number of pairs and of tensors, and blocks of any size, are copied to their end."""
    memory, dry = memory_of(part), part.MemoryKernels()

    def expect_copied(tensors: list[Tensor], which: Tensor, what: str) -> None:
        right = [t.index_copy(0, which[:, 1], t[which[:, 0]]) for t in tensors]
        memory.copy_blocks(tensors, which)
        for i, (got, exact) in enumerate(zip(tensors, right, strict=True)):
            name = f"tensor {i} of {len(tensors)} after {what}"
            if torch.equal(got, exact):
                continue
            why = of_the_rest(
                lambda: dry.copy_blocks(tensors, which),
                {"tensors": i, "pairs": first_pair(got, exact, which)},
                len(which) > 1 or len(tensors) > 1,
            )
            expect_same(got, exact, name, why=why)

    def copy_pairs(count: int) -> None:
        dry.copy_blocks([torch.zeros(2 * count, 4)], neighbours(count))

    def copy_long(size: int) -> None:
        dry.copy_blocks([all_odd(2, size)], pairs((0, 1)))

    with blamed("launch", LIMITED):
        count = count_beyond_grid(copy_pairs, 70_000)
        expect_copied([random(2 * count, 4)], neighbours(count), f"{count} copies")
        tensors = [random(2, 4, seed=i) for i in range(1300)]
        count = count_beyond_grid(lambda n: dry.copy_blocks(tensors[:n], pairs((0, 1))), 1300)
        expect_copied(tensors[:count], pairs((0, 1)), "a copy in each")
        size = count_beyond_grid(copy_long, 2**20, 5000)
        what = f"a copy of blocks of {2 * size} bytes, 2 at a time"
        expect_copied([all_odd(2, size)], pairs((0, 1)), what)


@task("13.3")
def test_copies_past_32_bits(part: ModuleType) -> None:
    """Where a block begins is computed in 64 bits, be it read or written."""
    memory = memory_of(part)
    for pair in ((FAR, 1), (1, FAR), (WIDE, 1), (1, WIDE)):
        blocks = random(4, 512, dtype=BF16)
        before = blocks.clone()
        start_script()
        expect_no_wrap(
            lambda pair=pair, blocks=blocks: memory.copy_blocks([blocks], pairs(pair)),  # type: ignore[misc]
            lambda blocks=blocks, before=before: expect_same(blocks, before, "the blocks"),  # type: ignore[misc]
            f"copying block {pair[0]} to {pair[1]}, of 1,024 bytes",
            why=cut(pair),
        )


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


@task("13.3")
def test_many_threads_copy(part: ModuleType) -> None:
    """The work is spread over the device: threads for all of it, in more than one block."""
    memory, tensors = memory_of(part), [random(6, 4096, dtype=F16, seed=i) for i in range(2)]
    work = work_of(lambda: memory.copy_blocks(tensors, pairs((0, 3), (5, 1))))
    expect_many_threads(work, 4 * 8192, "copying 2 blocks of 8,192 bytes in 2 tensors")


@task("13.3")
def test_most_threads_copy_something(part: ModuleType) -> None:
    """The grid is no larger than what there is to copy, and grows with it."""
    memory = memory_of(part)
    for count, copies, size in ((4, 1, 32_768), (64, 1, 32_768), (1, 64, 32_768), (2, 1, 131_072)):
        tensors = [torch.zeros(2 * copies, size // 2, dtype=F16) for _ in range(count)]
        which = neighbours(copies)
        start_script()
        launches = launches_of(lambda t=tensors, p=which: memory.copy_blocks(t, p))  # type: ignore[misc]
        what = f"{copies} copies of a block of {size:,} bytes in each of {count} tensors"

        def of_pairs(n: int, tensors: list[Tensor] = tensors) -> None:
            part.MemoryKernels().copy_blocks(tensors, neighbours(n))

        def of_tensors(n: int, tensors: list[Tensor] = tensors, which: Tensor = which) -> None:
            part.MemoryKernels().copy_blocks(tensors[:n], which)

        parts = {"pairs": (copies, of_pairs), "tensors": (count, of_tensors)}
        expect_grid_fits(launches, count * copies * size // 16, what, parts=parts)


@task("13.3")
def test_a_copy_returns_its_error(part: ModuleType) -> None:
    """What launch() returns is what the launcher returns."""
    memory, blocks = memory_of(part), random(4, 8)
    expect_errors_returned(lambda: memory.copy_blocks([blocks], pairs((0, 1))), "copying a block")


@task("13.4")
def test_swap_has_two_tensors(part: ModuleType) -> None:
    """Block `here` of the source goes to block `there` of the target, and only there."""
    source, target = torch.arange(16.0).view(4, 4), -torch.arange(1.0, 25).view(6, 4)
    right, kept = moved(source, target, [(1, 5), (3, 0)]), source.clone()
    before = target.clone()
    memory_of(part).swap_blocks(source, target, pairs((1, 5), (3, 0)))
    what, held = "swapping 1 to 5 and 3 to 0", {"what block {} of the target held": before}
    known = {**held, "block {} of the source": kept}
    expect_blocks(target, right, f"the target after {what}", known, PAIR)
    known = {"what block {} held": kept, **held}
    is_exchanged = torch.equal(source[[1, 3]], before[[5, 0]])
    why = EXCHANGED if is_exchanged else ONLY_READ
    expect_blocks(source, kept, f"the source after {what}", known, why)


@task("13.4")
def test_each_number_limits_the_width(part: ModuleType) -> None:
    """Both addresses and a block's size each may forbid a wide copy, alone."""
    memory = memory_of(part)
    for name in ("the address of source", "the address of target", "block_bytes"):
        size = 12 if name == "block_bytes" else 16
        source, target = (
            at_offset(
                random(3, 1, size, seed=i, dtype=BF16), 4 * (name == f"the address of {which}")
            )
            for i, which in enumerate(("source", "target"))
        )
        right = moved(source, target, [(2, 1), (0, 2)])
        why = f"Only {name} is no multiple of 16 here, but one of 8: 8 bytes are the widest copy."
        start_script()
        note(f"# {name} alone is no multiple of 16")
        with blamed("misaligned", why), blamed("out_of_bounds", why):
            memory.swap_blocks(source, target, pairs((2, 1), (0, 2)))
        what = f"the target after a swap where only {name} is no multiple of 16"
        expect_same(target, right, what, why=why)


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
    """Any number of pairs, and blocks of any size, are swapped in one launch."""
    memory, dry = memory_of(part), part.MemoryKernels()

    def swap(source: Tensor, target: Tensor, which: Tensor) -> None:
        right = target.index_copy(0, which[:, 1], source[which[:, 0]])
        work = work_of(lambda: memory.swap_blocks(source, target, which))
        what = f"swapping {len(which)} blocks of {source[0].nbytes} bytes"
        if not torch.equal(target, right):
            first = {"pairs": first_pair(target, right, which)}
            why = of_the_rest(lambda: dry.swap_blocks(source, target, which), first, len(which) > 1)
            expect_same(target, right, f"the target after {what}", why=why)
        expect_equal(work.launches, 1, f"launches for {what}")

    def swap_pairs(count: int) -> None:
        blocks = torch.zeros(count, 4)
        dry.swap_blocks(blocks, blocks, torch.zeros(count, 2, dtype=torch.int64))

    def swap_long(size: int) -> None:
        dry.swap_blocks(all_odd(1, size), all_odd(1, size), pairs((0, 0)))

    with blamed("launch", LIMITED):
        count, size = (
            count_beyond_grid(swap_pairs, 70_000),
            count_beyond_grid(swap_long, 2**20, 5000),
        )
        order = torch.stack((torch.arange(count), count + 9 - torch.arange(count)), dim=1)
        swap(blocks_of(count, 4), blocks_of(count + 10, 4, seed=1), order)
        swap(all_odd(2, size), all_odd(2, size, seed=1), pairs((1, 0)))


@task("13.4")
def test_many_threads_swap(part: ModuleType) -> None:
    """The work is spread over the device: threads for all of it, in more than one block."""
    memory, source, target = memory_of(part), random(4, 2048), random(5, 2048, seed=1)
    work = work_of(lambda: memory.swap_blocks(source, target, pairs((0, 3), (2, 1))))
    expect_many_threads(work, 2 * 8192, "swapping 2 blocks of 8,192 bytes")


@task("13.4")
def test_most_threads_swap_something(part: ModuleType) -> None:
    """The grid is no larger than what there is to swap, and grows with it."""
    memory = memory_of(part)
    for count, size in ((2, 32_768), (64, 32_768), (2, 131_072)):
        blocks, which = torch.zeros(2 * count, size // 2, dtype=F16), neighbours(count)

        def swap(n: int, blocks: Tensor = blocks) -> None:
            part.MemoryKernels().swap_blocks(blocks, blocks.clone(), neighbours(n))

        start_script()
        launches = launches_of(lambda b=blocks, p=which: memory.swap_blocks(b, b.clone(), p))  # type: ignore[misc]
        what = f"swapping {count} blocks of {size:,} bytes"
        expect_grid_fits(launches, count * size // 16, what, parts={"pairs": (count, swap)})


@task("13.4")
def test_a_swap_returns_its_error(part: ModuleType) -> None:
    """What launch() returns is what the launcher returns."""
    memory, blocks = memory_of(part), random(4, 8)
    expect_errors_returned(
        lambda: memory.swap_blocks(blocks, blocks.clone(), pairs((0, 1))), "swapping a block"
    )


@task("13.4")
def test_swaps_past_32_bits(part: ModuleType) -> None:
    """Where a block begins is computed in 64 bits, in the source and in the target."""
    memory, source = memory_of(part), random(4, 256)
    for pair in ((FAR, 1), (1, FAR), (WIDE, 1), (1, WIDE)):
        target = random(4, 256, seed=1)
        before = target.clone()
        start_script()
        expect_no_wrap(
            lambda pair=pair, target=target: memory.swap_blocks(source, target, pairs(pair)),  # type: ignore[misc]
            lambda target=target, before=before: expect_same(target, before, "the target"),  # type: ignore[misc]
            f"swapping block {pair[0]} to {pair[1]}, of 1,024 bytes",
            why=cut(pair),
        )
