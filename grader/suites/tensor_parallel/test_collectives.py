"""Task 20.3: chunks go round until every rank has all of them."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import ModuleType

import torch
from torch import Tensor

from grader.kit import Mismatch, expect, expect_close, expect_equal, note, start_script, task
from grader.kit.rank_links import SimLink, run_on
from grader.kit.rank_processes import RankProcesses
from grader.kit.script import current_script, show
from grader.suites.tensor_parallel import real
from grader.suites.tensor_parallel.bench import (
    SIZES,
    chunk,
    drawn,
    lent_ring,
    marked,
    most_bytes,
)
from grader.suites.tensor_parallel.sent_kinds import TWO_ROUNDS, expect_few_bytes
from grader.suites.tensor_parallel.sum_kinds import why_reduced
from grader.suites.tensor_parallel.test_reduce_scatter import ONE_RING
from solutions.tensor_parallel.one_process import reduced

SAME_BITS = (
    "Sums of floats depend on the order of the additions. Each number must be summed in one place "
    "and copied from there: otherwise the ranks drift apart, and one day draw different tokens."
)
ONCE_EACH = "In each step a rank passes on one rank's tensor: size - 1 sends are enough."
AS_IT_IS = "Numbers are sent in the dtype of the tensor: in a wider one they are more bytes."
IN_ORDER = "Place r of the result is rank r's tensor, whenever it arrived."


PASSED_ON = "In each step a rank passes on the chunk that it received in the step before."
Shape = tuple[int, ...]
BEFORE = -1000.0
"""What stands in the other ranks' chunks before they are gathered."""
OWN = (
    "Place {0} of the result of rank {0} is not its own tensor, on none of the ranks: its own tensor "
    "belongs to the result too, and is the first that a rank sends."
)


def added(x: Tensor) -> str:
    """That what arrived was added to what was there, if that explains all that is wrong; else ""."""
    wrong = [(place, got) for place, got in enumerate(x.tolist()) if got != place]
    if not wrong or any(
        got - place not in (BEFORE, 2 * BEFORE, 3 * BEFORE) for place, got in wrong
    ):
        return ""
    place, got = wrong[0]
    return (
        f"Place {place} was {BEFORE:g} before, and {place} arrived. Here they are added, to {got:g}. "
        "What arrives replaces what is there."
    )


def misplaced(x: Tensor, rank: int, size: int) -> str:
    """Which chunks lie in each other's places, if all have arrived; else ""."""
    got, n = x.tolist(), len(x)
    owners = {place: owner for owner in range(size) for place in range(n)[chunk(n, owner, size)]}
    if sorted(got) != list(range(n)):
        return ""
    wrong = {owners[place]: owners[int(value)] for place, value in enumerate(got) if value != place}
    lies = ", ".join(
        f"chunk {held} (rank {held}'s) lies where chunk {place} belongs"
        for place, held in wrong.items()
    )
    told = f"Every chunk has arrived on rank {rank}, in the wrong place: {lies}."
    received = re.compile(rf"rank {rank} receives \d+ numbers? (?:of \w+ )?from rank (\d+)")
    if found := next(filter(None, map(received.match, current_script().lines)), None):
        told += f" Rank {rank} receives from rank {found[1]}, whose own is chunk {found[1]}."
    return told


def completed(part: ModuleType, n: int, size: int) -> list[Tensor]:
    """x on every rank after gather_chunks; before it only the own chunk was there."""

    def work(link: SimLink) -> Tensor:
        x = torch.full((n,), BEFORE)
        held = chunk(n, link.rank, size)
        x[held] = torch.arange(n, dtype=torch.float32)[held]
        part.Ring(link).gather_chunks(x)
        return x

    got, ranks = run_on(part, size, work)
    what = f"gather_chunks of {n} numbers on {size} ranks"
    expect_few_bytes(ranks.sent, most_bytes(n, size), what, -(-n // size), size - 1)
    return got


@task("20.3")
def test_every_rank_gets_all_chunks(part: ModuleType) -> None:
    """After gather_chunks every rank has chunk r as rank r had it, and each has sent (size - 1) / size
    of the bytes of x."""
    for size in SIZES:
        for n in (size, 3 * size, size + 1, 2 * size - 1, 1, 0):
            for rank, x in enumerate(completed(part, n, size)):
                what = f"x on rank {rank} of {size} after gather_chunks (chunk r held places of rank r)"
                right = [float(place) for place in range(n)]
                why = added(x) or misplaced(x, rank, size) or PASSED_ON
                expect_equal(x.tolist(), right, what, why=why)


def expect_same_bits(x: Tensor, first: Tensor, what: str) -> None:
    """That a sum is bit for bit that of rank 0; if not, the first number that differs, in full."""
    if not torch.equal(x, first):
        at = int((x != first).flatten().nonzero()[0])
        right, got = (float(each.flatten()[at]) for each in (first, x))
        problem = f"{what}: other bits than on rank 0, the first at place {at}"
        raise Mismatch(problem, f"{right:.17g}, as on rank 0", f"{got:.17g}", SAME_BITS)


def on_all(part: ModuleType, name: str, given: Sequence[Tensor]) -> tuple[list[Tensor], list[int]]:
    """What a method of the ring gives on every rank, called with `given[rank]`, and the bytes that each
    rank has sent."""

    def work(link: SimLink) -> Tensor:
        note(f"rank {link.rank} calls {name}({show(given[link.rank])})")
        result: Tensor = getattr(lent_ring(part, link), name)(given[link.rank])
        return result

    got, ranks = run_on(part, len(given), work)
    return got, ranks.sent


@task("20.3")
def test_all_reduce_gives_the_sum_to_every_rank(part: ModuleType) -> None:
    """all_reduce returns the sum over all ranks on each of them, in the shape and dtype of x."""
    for size in SIZES:
        total = sum(10**rank for rank in range(size))
        for shape in ((4,), (2, 3), (5, 1, 2), (1,), (), (0, 4)):
            n = torch.Size(shape).numel()
            given = [marked(n, rank).view(shape) for rank in range(size)]
            got, _ = on_all(part, "all_reduce", given)
            expected = (marked(n, 0) * total).view(shape)
            for rank, x in enumerate(got):
                what = f"all_reduce of {list(shape)}, on rank {rank} of {size}"
                expect_close(x, expected, what, rtol=0, atol=0, why=why_reduced(got, rank))


@task("20.3")
def test_every_rank_gets_the_same_bits(part: ModuleType) -> None:
    """all_reduce gives every rank the same bits, and the sum up to rounding."""
    for size in (3, 4, 5):
        for dtype, close in ((torch.float32, 1e-6), (torch.bfloat16, 0.05)):
            parts = [drawn(4, 9, seed=rank, dtype=dtype) for rank in range(size)]
            got, _ = on_all(part, "all_reduce", [x.clone() for x in parts])
            for rank, x in enumerate(got):
                what = f"all_reduce in {dtype}, on rank {rank} of {size}"
                expect_equal(x.dtype, dtype, f"{what}: its dtype")
                expect_close(x, reduced(parts), what, rtol=close, atol=close)
                expect_same_bits(x, got[0], what)


@task("20.3")
def test_all_reduce_sends_less_than_twice_the_tensor(part: ModuleType) -> None:
    """In an all_reduce a rank sends 2 * (size - 1) / size of the bytes of x."""
    for size in SIZES:
        for n in (12 * size, 7):
            _, sent = on_all(part, "all_reduce", [marked(n, rank) for rank in range(size)])
            most = 2 * most_bytes(n, size)
            what = f"all_reduce of {n} numbers on {size} ranks"
            expect_few_bytes(sent, most, what, -(-n // size), 2 * (size - 1), TWO_ROUNDS)
    narrow = [marked(8, rank, torch.bfloat16) for rank in range(2)]
    _, sent = on_all(part, "all_reduce", narrow)
    what = f"all_reduce of 8 numbers of bfloat16 on 2 ranks: {max(sent)} bytes sent by a rank"
    expect(max(sent) <= 16, f"{what}, where 16 are enough", why=AS_IT_IS)


@task("20.3")
def test_all_gather_is_in_the_order_of_the_ranks(part: ModuleType) -> None:
    """all_gather returns [size, *x.shape], rank by rank, on every rank, and leaves x as it was."""
    for size in SIZES:
        for shape in ((2,), (3, 2), (1,), (), (0, 2)):
            n = torch.Size(shape).numel()
            own = [marked(n, rank, torch.int64).view(shape) for rank in range(size)]
            given = [x.clone() for x in own]
            got, sent = on_all(part, "all_gather", given)
            for rank, x in enumerate(got):
                what = f"all_gather of {list(shape)}, on rank {rank} of {size}"
                expect_equal(list(x.shape), [size, *shape], f"{what}: its shape", why=IN_ORDER)
                others = [torch.equal(got[r][s], own[r]) for r in range(size) for s in range(size)]
                lacks_own = not any(others) and n > 0 and got[0].shape == (size, *shape)
                why = OWN.format(rank) if lacks_own else IN_ORDER
                expect_equal(x.tolist(), torch.stack(own).tolist(), what, why=why)
                expect_equal(given[rank].tolist(), own[rank].tolist(), f"{what}: x afterwards")
            what = f"all_gather of {n} numbers on {size} ranks"
            expect_few_bytes(sent, (size - 1) * n * 8, what, n, size - 1, ONCE_EACH)


@task("20.3")
def test_tensors_need_not_lie_in_one_piece(part: ModuleType) -> None:
    """all_reduce and all_gather take tensors that are not contiguous."""
    views: list[Callable[[Tensor], Tensor]] = [Tensor.t, lambda x: x[:, ::2], lambda x: x[:, 1:]]
    for view in views:
        given = [view(drawn(3, 4, seed=rank)) for rank in range(3)]
        own = [x.clone() for x in given]
        of = f"of shape {list(own[0].shape)} and strides {list(given[0].stride())}"
        got, _ = on_all(part, "all_gather", given)
        expect_close(got[1], torch.stack(own), f"all_gather {of}", rtol=0, atol=0)
        got, _ = on_all(part, "all_reduce", given)
        expect_close(got[1], reduced(own), f"all_reduce {of}")


@task("20.3")
def test_one_ring_for_all_sums(part: ModuleType) -> None:
    """A ring sums and gathers one tensor after the other, of any shape and dtype."""
    given = (
        ((2, 3), torch.float32), ((2, 3), torch.int64), ((6,), torch.bfloat16),
        ((3, 5), torch.float32),
    )  # fmt: skip
    names = "all_gather", "all_reduce"
    for name in names:
        for calls in pairwise(given):
            expect_ring_serves(part, [(name, *call) for call in calls])
    expect_ring_serves(part, [(name, *call) for call in given for name in names])


def expect_ring_serves(part: ModuleType, calls: Sequence[tuple[str, Shape, torch.dtype]]) -> None:
    """That two ranks get what these calls on one ring, one after the other, are to give. calls: name,
    shape and dtype of each."""

    def of_rank(rank: int, shape: Shape, dtype: torch.dtype) -> Tensor:
        return (marked(torch.Size(shape).numel(), 0, dtype) + rank).view(shape)

    def work(link: SimLink) -> list[Tensor]:
        ring, made = lent_ring(part, link), []
        for name, shape, dtype in calls:
            note(f"rank {link.rank} calls {name} of {list(shape)}, {dtype}, on its ring")
            made.append(getattr(ring, name)(of_rank(link.rank, shape, dtype)).clone())
        return made

    got, _ = run_on(part, 2, work)
    for number, (name, shape, dtype) in enumerate(calls):
        own = [of_rank(rank, shape, dtype) for rank in (0, 1)]
        right = torch.stack(own) if name == "all_gather" else own[0] + own[1]
        what = f"{name} of {list(shape)}, {dtype}, call {number + 1} of one ring, on rank 1 of 2"
        x = got[1][number]
        expect_equal(x.dtype, dtype, f"{what}: its dtype", why=ONE_RING)
        expect_equal(x.tolist(), right.tolist(), what, why=ONE_RING)


@task("20.3")
def test_one_rank_needs_no_link(part: ModuleType) -> None:
    """On one rank all_reduce and all_gather give what they are given, and send nothing."""
    got, sent = on_all(part, "all_reduce", [marked(3, 0)])
    expect_equal(
        (got[0].tolist(), sent), ([1, 2, 3], [0]), "all_reduce and bytes sent, on one rank"
    )
    got, sent = on_all(part, "all_gather", [marked(3, 0)])
    expect_equal(
        (got[0].tolist(), sent), ([[1, 2, 3]], [0]), "all_gather and bytes sent, on one rank"
    )


@task("20.3")
def test_real_ranks_add_up(part: ModuleType, processes: RankProcesses) -> None:
    """Two and four real processes over gloo sum and gather small and large tensors."""
    for size in (2, 4):
        for n, dtype, close in (
            (3, torch.float32, 1e-5),
            (200_003, torch.float32, 1e-5),
            (1001, torch.bfloat16, 0.05),
        ):
            start_script()
            note(f"# {size} processes: all_reduce of {n} numbers of {dtype}")
            got = processes.run(size, real.reduced, n, dtype)
            parts = [drawn(n, seed=rank, dtype=dtype) for rank in range(size)]
            for rank, x in enumerate(got):
                what = f"all_reduce of {n} numbers, on rank {rank} of {size} real ones"
                expect_close(x, reduced(parts), what, rtol=close, atol=close)
                expect_same_bits(x, got[0], what)
        start_script()
        note(f"# {size} processes: all_gather of [2, 50000]")
        expected = torch.stack([drawn(2, 50_000, seed=rank) for rank in range(size)])
        for rank, x in enumerate(processes.run(size, real.gathered, 50_000)):
            what = f"all_gather of [2, 50000], on rank {rank} of {size} real ones"
            expect_close(x, expected, what, rtol=0, atol=0, why=IN_ORDER)
