"""Task 20.2: each rank ends with one chunk of the sum."""

from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from grader.kit import expect, expect_equal, task
from grader.kit.rank_links import SimLink, run_on
from grader.kit.ranks import Ranks
from grader.suites.tensor_parallel.bench import DIGITS, SIZES, chunk, marked, most_bytes
from grader.suites.tensor_parallel.sent_kinds import expect_few_bytes


def scattered(
    part: ModuleType,
    n: int,
    size: int,
    dtype: torch.dtype = torch.float32,
    order: Sequence[int] = (),
) -> tuple[list[Tensor], Ranks]:
    """x on every rank after reduce_scatter."""

    def work(link: SimLink) -> Tensor:
        x = marked(n, link.rank, dtype)
        part.Ring(link).reduce_scatter(x)
        return x

    return run_on(part, size, work, order)


def expect_chunks(got: list[Tensor], n: int, size: int) -> None:
    total = sum(10**rank for rank in range(size))
    for rank, x in enumerate(got):
        held = chunk(n, rank, size)
        expected = [total * (place + 1) for place in range(n)[held]]
        what = f"chunk {rank} of {n} numbers, on rank {rank} of {size}, after reduce_scatter"
        expect_equal(x[held].tolist(), expected, what, why=DIGITS)


@task("20.2")
def test_every_rank_ends_with_its_chunk_of_the_sum(part: ModuleType) -> None:
    """After reduce_scatter chunk `rank` holds the sum of that chunk over all ranks."""
    for size in SIZES:
        for n in (size, 3 * size):
            expect_chunks(scattered(part, n, size)[0], n, size)


@task("20.2")
def test_chunks_need_not_be_of_one_size(part: ModuleType) -> None:
    """reduce_scatter takes vectors of any length: chunks are shares, and some may be empty."""
    for size in SIZES:
        for n in (size + 1, 2 * size - 1, 1, 0):
            expect_chunks(scattered(part, n, size)[0], n, size)


@task("20.2")
def test_it_does_not_matter_who_is_first(part: ModuleType) -> None:
    """reduce_scatter gives the same in whatever order the ranks get to run."""
    for order in ((3, 2, 1, 0), (1, 3, 0, 2)):
        expect_chunks(scattered(part, 6, 4, order=order)[0], 6, 4)


@task("20.2")
def test_a_rank_sends_every_chunk_but_one(part: ModuleType) -> None:
    """In a reduce_scatter a rank sends (size - 1) / size of the bytes of x."""
    for size in SIZES:
        for n in (12 * size, 7):
            most = most_bytes(n, size)
            sent = scattered(part, n, size)[1].sent
            what = f"reduce_scatter of {n} numbers on {size} ranks"
            expect_few_bytes(sent, most, what, -(-n // size), size - 1)


@task("20.2")
def test_sums_stay_in_the_dtype_of_the_tensor(part: ModuleType) -> None:
    """reduce_scatter takes any dtype, and sends it as it is."""
    for dtype in (torch.float64, torch.int64, torch.bfloat16):
        got, ranks = scattered(part, 4, 2, dtype)
        expect_chunks(got, 4, 2)
        what = f"reduce_scatter of 4 numbers of {dtype}: {max(ranks.sent)} bytes sent by a rank"
        expect(max(ranks.sent) <= 2 * dtype.itemsize, f"{what}, where 2 numbers are enough")


@task("20.2")
def test_one_rank_has_the_sum_already(part: ModuleType) -> None:
    """On one rank reduce_scatter sends nothing and changes nothing."""
    got, ranks = scattered(part, 3, 1)
    expect_equal((got[0].tolist(), ranks.sent), ([1, 2, 3], [0]), "x and bytes sent, on one rank")
