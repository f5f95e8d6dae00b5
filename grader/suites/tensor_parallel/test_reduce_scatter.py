"""Task 20.2: each rank ends with one chunk of the sum."""

from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from grader.kit import expect, expect_equal, note, task
from grader.kit.rank_links import SimLink, run_on
from grader.kit.ranks import Ranks
from grader.suites.tensor_parallel.bench import SIZES, chunk, marked, most_bytes
from grader.suites.tensor_parallel.sent_kinds import expect_few_bytes
from grader.suites.tensor_parallel.sum_kinds import why_chunk, why_digits


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


def expect_chunks(ran: tuple[list[Tensor], Ranks], n: int, size: int) -> None:
    """ran: what `scattered` returns."""
    got, ranks = ran
    for rank, x in enumerate(got):
        held = chunk(n, rank, size)
        expected = (marked(n, 0, x.dtype) * sum(10**one for one in range(size)))[held].tolist()
        what = f"chunk {rank} of {n} numbers, on rank {rank} of {size}, after reduce_scatter"
        expect_equal(x[held].tolist(), expected, what, why=why_chunk(got, n, rank, ranks.sent))


@task("20.2")
def test_every_rank_ends_with_its_chunk_of_the_sum(part: ModuleType) -> None:
    """After reduce_scatter chunk `rank` holds the sum of that chunk over all ranks."""
    for size in SIZES:
        for n in (size, 3 * size):
            expect_chunks(scattered(part, n, size), n, size)


@task("20.2")
def test_chunks_need_not_be_of_one_size(part: ModuleType) -> None:
    """reduce_scatter takes vectors of any length: chunks are shares, and some may be empty."""
    for size in SIZES:
        for n in (size + 1, 2 * size - 1, 1, 0):
            expect_chunks(scattered(part, n, size), n, size)


@task("20.2")
def test_it_does_not_matter_who_is_first(part: ModuleType) -> None:
    """reduce_scatter gives the same in whatever order the ranks get to run."""
    for order in ((3, 2, 1, 0), (1, 3, 0, 2)):
        expect_chunks(scattered(part, 6, 4, order=order), 6, 4)


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
        expect_chunks((got, ranks), 4, 2)
        what = f"reduce_scatter of 4 numbers of {dtype}: {max(ranks.sent)} bytes sent by a rank"
        expect(max(ranks.sent) <= 2 * dtype.itemsize, f"{what}, where 2 numbers are enough")


@task("20.2")
def test_one_rank_has_the_sum_already(part: ModuleType) -> None:
    """On one rank reduce_scatter sends nothing and changes nothing."""
    got, ranks = scattered(part, 3, 1)
    expect_equal((got[0].tolist(), ranks.sent), ([1, 2, 3], [0]), "x and bytes sent, on one rank")


ONE_RING = (
    "A ring serves for as long as its ranks run, with tensors of any length and dtype. What is made for "
    "one call, its chunks and its memory, does not fit another."
)
CALLS = ((4, torch.float32), (11, torch.float32), (2, torch.float64), (7, torch.int64))


@task("20.2")
def test_one_ring_for_all_tensors(part: ModuleType) -> None:
    """A ring takes one vector after the other, of any length and dtype."""

    def work(link: SimLink) -> list[Tensor]:
        ring, made = part.Ring(link), []
        for n, dtype in CALLS:
            note(f"rank {link.rank} calls reduce_scatter of {n} numbers of {dtype} on its ring")
            made.append(marked(n, link.rank, dtype))
            ring.reduce_scatter(made[-1])
        return made

    got, _ = run_on(part, 3, work)
    for number, (n, dtype) in enumerate(CALLS):
        for rank, made in enumerate(got):
            held = chunk(n, rank, 3)
            expected = [111 * (place + 1) for place in range(n)[held]]
            what = f"chunk {rank} of {n} numbers of {dtype}, in call {number + 1} of one ring"
            expect_equal(made[number][held].tolist(), expected, what, why=ONE_RING)


@task("20.2")
def test_sums_keep_their_digits(part: ModuleType) -> None:
    """reduce_scatter adds numbers as they are, in the dtype of the vector."""
    inf, nan = float("inf"), float("nan")
    rows: list[tuple[torch.dtype, list[float], list[float]]] = [
        (torch.int64, [2**60 + 2**40 + 1, 2**53 + 1], [5, 2]),
        (torch.float64, [1 + 2.0**-20 + 2.0**-50, 3.0], [2.0**-51, 2.0**-50]),
        (torch.float32, [1.0, inf], [nan, 1.0]),
    ]
    for dtype, one, other in rows:
        given = [torch.tensor(one, dtype=dtype), torch.tensor(other, dtype=dtype)]

        def work(link: SimLink, given: list[Tensor] = given) -> Tensor:
            x = given[link.rank].clone()
            note(f"rank {link.rank} calls reduce_scatter of {x.tolist()}, of {x.dtype}")
            part.Ring(link).reduce_scatter(x)
            return x

        got, _ = run_on(part, 2, work)
        sums = [str(x[rank].item()) for rank, x in enumerate(got)]
        for rank, number in enumerate(sums):
            right = str((given[0] + given[1])[rank].item())
            what = f"chunk {rank}, one number of {dtype}, on rank {rank} of 2"
            expect_equal(number, right, what, why=why_digits(sums, rank, *given))
