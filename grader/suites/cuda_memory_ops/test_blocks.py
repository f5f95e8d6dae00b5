"""Task 13.2: whole blocks are gathered, one after the other."""

from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_equal, note, start_script, task
from grader.kit.cuda_work import (
    blamed,
    count_beyond_grid,
    expect_errors_returned,
    expect_grid_fits,
    expect_many_threads,
    expect_no_wrap,
    expect_whole_sectors,
    expect_whole_warps,
    expect_wide,
    launches_of,
    left_in_a_row,
    left_over,
    work_of,
)
from grader.kit.kernels import random
from grader.kit.poison import poisoned
from grader.suites.cuda_memory_ops.exact import (
    ALIGNED,
    BF16,
    DTYPES,
    EVERY,
    LIMITED,
    all_odd,
    at_offset,
    expect_blocks,
    expect_same,
    memory_of,
    tail_left,
)

ORDER = "Entry e of the tables becomes the e-th block of the result, whatever number it has."
SCATTERED = (
    "Block e of the pool went to place block_tables[e] of the result. The other way round: place e of "
    "the result gets block block_tables[e]."
)


def table(*rows: list[int]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int32)


@task("13.2")
def test_gather_follows_the_tables(part: ModuleType) -> None:
    """The blocks of each table stand one after the other, a table a row."""
    blocks = torch.arange(16.0).view(4, 2, 2)
    with poisoned():
        got = memory_of(part).gather(blocks, table([3, 0], [1, 2]))
    right = blocks[[3, 0, 1, 2]]
    what = "tables (3, 0) and (1, 2) on four blocks of 2 slots"
    expect_equal(list(got.shape), [2, 4, 2], f"the shape of {what}", why=ORDER)
    scattered = torch.empty_like(blocks).index_copy(0, torch.tensor([3, 0, 1, 2]), blocks)
    why = SCATTERED if torch.equal(got.view(4, 2, 2), scattered) else ORDER
    expect_blocks(got.view(4, 2, 2), right, what, {"block {}": blocks}, why)


@task("13.2")
def test_blocks_of_any_size(part: ModuleType) -> None:
    """Blocks of any size are gathered to their end, longer ones than the grid has threads, too."""
    memory, dry = memory_of(part), part.MemoryKernels()
    long = count_beyond_grid(lambda size: dry.gather(all_odd(1, size), table([0])), 2**20, 5000)
    for blocks, why in (
        (random(3, 5, 7), ALIGNED),
        (random(2, 1, 1), ALIGNED),
        (random(2, 60, 80), EVERY),
        (all_odd(2, long), EVERY),
    ):
        start_script()
        with poisoned():
            got = memory.gather(blocks, table([1, 0]))
        exact = blocks[[1, 0]].flatten(0, 1)[None]
        if got.shape == exact.shape and not torch.equal(got, exact):
            each, right = (x.reshape(2, -1) for x in (got, exact))
            launches = launches_of(lambda blocks=blocks: dry.gather(blocks, table([1, 0])))  # type: ignore[misc]
            wrong = (each != right)[0].tolist()
            reached = left_in_a_row(launches, wrong, "numbers of a block")
            told = reached or left_over(launches, -1, "bytes")
            tail = tail_left(each, blocks.reshape(len(blocks), -1), [1, 0])
            why = tail or (told + EVERY if why == EVERY else ALIGNED)
        expect_same(got, exact, f"gathering blocks of {list(blocks.shape[1:])}", why=why)


@task("13.2")
def test_any_number_of_entries(part: ModuleType) -> None:
    """Each entry of the tables gets its block, also where there are more than a grid has blocks in y."""
    memory, blocks = memory_of(part), random(4, 1, 1, 4)

    def tables_of(entries: int) -> Tensor:
        return torch.arange(entries, dtype=torch.int32)[None] % 4

    dry = part.MemoryKernels()
    with blamed("launch", LIMITED), poisoned():
        entries = count_beyond_grid(lambda n: dry.gather(blocks, tables_of(n)), 70_000)
        got = memory.gather(blocks, tables_of(entries))
    right = blocks.flatten(0, 1)[torch.arange(entries) % 4][None]
    if got.shape == right.shape and not torch.equal(got, right):
        first = int((got != right).flatten(0, 1).flatten(1).any(dim=1).nonzero()[0])
        launches = launches_of(lambda: dry.gather(blocks, tables_of(entries)))
        why = left_over(launches, first, "entries") + LIMITED
    else:
        why = LIMITED
    expect_same(got, right, f"gathering {entries} blocks of 16 bytes", why=why)


@task("13.2")
def test_each_number_limits_the_width(part: ModuleType) -> None:
    """The address of the blocks and a block's size each may forbid a wide copy, alone."""
    memory = memory_of(part)
    shifted, short = at_offset(random(3, 1, 16, dtype=BF16), 4), random(3, 1, 12, dtype=BF16)
    for name, blocks in (("the address of blocks", shifted), ("block_bytes", short)):
        why = f"Only {name} is no multiple of 16 here, but one of 8: 8 bytes are the widest copy."
        note(f"# {name} alone is no multiple of 16")
        with blamed("misaligned", why), blamed("out_of_bounds", why):
            got = memory.gather(blocks, table([2, 0]))
        what = f"gathering where only {name} is no multiple of 16"
        expect_same(got, blocks[[2, 0]].flatten(0, 1)[None], what, why=why)


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
    """Six of eight blocks of 6,144 bytes, and the bytes that move."""
    return random(8, 24, 2, 64, dtype=BF16), table([5, 2, 7], [1, 0, 5]), 6 * 6144


@task("13.2")
def test_a_gather_fills_its_sectors(part: ModuleType) -> None:
    """Neighbouring threads move neighbouring addresses, 16 bytes each."""
    memory, (blocks, tables, moves) = memory_of(part), a_gather()
    work = work_of(lambda: memory.gather(blocks, tables))
    expect_whole_sectors(work, "gathering 6 blocks of 6,144 bytes")
    expect_wide(work, moves, "gathering 6 blocks of 6,144 bytes")


@task("13.2")
def test_the_table_is_read_once_a_block(part: ModuleType) -> None:
    """A thread reads an entry of the table once, however many units of its block it copies."""
    memory, blocks, entries = memory_of(part), random(4, 16, 8, 128, dtype=BF16), 3
    work = work_of(lambda: memory.gather(blocks, table([2, 0, 3])))
    extra = work.loads.count - entries * 2048
    most = work.threads * max(1, -(-entries // work.blocks))
    why = "The number of a block does not change while it is copied: read it before the loop."
    problem = (
        f"gathering {entries} blocks of 32,768 bytes: {extra:,} loads beside those of the blocks' "
        f"2,048 units each, by {work.threads:,} threads"
    )
    expect(extra <= most, problem, why=why)


@task("13.2")
def test_many_threads_gather(part: ModuleType) -> None:
    """The work is spread over the device: threads for all of it, in more than one block."""
    memory, (blocks, tables, moves) = memory_of(part), a_gather()
    work = work_of(lambda: memory.gather(blocks, tables))
    expect_many_threads(work, moves, "gathering 6 blocks of 6,144 bytes")


@task("13.2")
def test_most_threads_have_work(part: ModuleType) -> None:
    """The grid is no larger than what there is to copy, and grows with it, in blocks of whole warps."""
    memory = memory_of(part)
    for entries, slots in ((4, 16), (64, 16), (2, 64)):
        blocks = torch.zeros(2, slots, 8, 128, dtype=BF16)
        numbers = table([i % 2 for i in range(entries)])
        launches = launches_of(lambda b=blocks, n=numbers: memory.gather(b, n))  # type: ignore[misc]
        what = f"gathering {entries} blocks of {blocks[0].nbytes:,} bytes"

        def of_entries(n: int, blocks: Tensor = blocks, numbers: Tensor = numbers) -> None:
            part.MemoryKernels().gather(blocks, numbers[:, :n].contiguous())

        parts = {"table entries": (entries, of_entries)}
        expect_grid_fits(launches, entries * blocks[0].nbytes // 16, what, parts=parts)
        expect_whole_warps(launches, what)


@task("13.2")
def test_a_gather_returns_its_error(part: ModuleType) -> None:
    """What launch() returns is what the launcher returns."""
    memory, (blocks, tables, _) = memory_of(part), a_gather()
    expect_errors_returned(lambda: memory.gather(blocks, tables), "gathering 6 blocks")


@task("13.2")
def test_block_numbers_past_32_bits(part: ModuleType) -> None:
    """Where a block begins is computed in 64 bits."""
    memory, blocks = memory_of(part), random(8, 4, 2, 64, dtype=BF16)
    far = table([2**26])  # of 64 units: 2**32 units, while the number itself fits into an int
    result: list[Tensor] = []
    expect_no_wrap(
        lambda: result.append(memory.gather(blocks, far)),
        lambda: expect(
            not any(torch.equal(x[0], blocks[0]) for x in result), "what came out is block 0"
        ),
        "block 2**26, of 64 units of 16 bytes, begins at unit 2**32",
        why="The number 2**26 fits into an int, and its product with a block's units does not. Make a "
        "factor int64_t first; a variable that takes the product may be no int either.",
    )
