"""Task 14.1: the sum over a warp, and over a block of several."""

from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType

import torch
from torch import Tensor

from grader.kit import expect, task
from grader.kit.cuda_work import blamed, work_of
from grader.kit.kernels import expect_near, random
from grader.suites.cuda_ops.exact import F32, sums_of
from grader.suites.cuda_ops.mistakes import partial_sums

EVERY_LANE = (
    "Every lane needs the sum. An exchange with the lane whose number differs in one bit (xor) leaves "
    "it in all of them; one that only hands numbers down leaves it in lane 0."
)
EVERY_WARP = "There are as many partial sums as warps, each at its own warp's number."
BARRIERS = (
    "A partial sum is read after all are written, and written again after all have read it: two "
    "barriers a call, if the next call uses the same memory."
)


def expect_sums(got: Tensor, x: Tensor, what: str, why: str) -> None:
    """got [blocks, threads, 2]: the sums of x [blocks, threads] and of its squares, in every thread."""
    for index, name, exact in ((0, "sum", x), (1, "second sum, of the squares,", x.square())):
        right = exact.double().sum(dim=1, keepdim=True).expand(x.shape)
        kinds = partial_sums(exact)
        expect_near(got[..., index], right, F32, f"the {name} of {what}", why=why, kinds=kinds)


def half_sums(x: Tensor, distance: int) -> Tensor:
    """Sums of x [warps, 32] over the 16 lanes that are alike in one bit of their number."""
    halves = x.unflatten(1, (-1, 2, distance))
    return halves.sum(dim=(1, 3), keepdim=True).expand(halves.shape).flatten(1)


@task("14.1")
def test_every_lane_has_the_sum_of_its_warp(part: ModuleType) -> None:
    """warp_sum gives every lane the sum over the 32 lanes of its warp."""
    x = torch.arange(64.0).view(2, 32)
    got = sums_of(part).warp_sums(x)
    right = x.double().sum(dim=1, keepdim=True).expand(2, 32)
    what = "warp_sum of lanes that hold 0 to 31, and 32 to 63"
    kinds: dict[str, Callable[[], Tensor]] = {"Every lane got its own number.": lambda: x}
    for distance in (1, 2, 4, 8, 16):
        told = f"The exchange at distance {distance} is missing: each lane has the sum of 16."
        kinds[told] = lambda distance=distance: half_sums(x, distance)  # type: ignore[misc]
    alone = torch.isclose(got, right.float()).all(dim=0).nonzero().flatten().tolist()
    why = f"Lane 0 alone has the sum of its warp. {EVERY_LANE}" if alone == [0] else EVERY_LANE
    expect_near(got, right, F32, what, why=why, kinds=kinds)


@task("14.1")
def test_a_warp_needs_few_exchanges(part: ModuleType) -> None:
    """A warp's sum takes five exchanges, since each doubles how many numbers a lane has seen."""
    sums, x = sums_of(part), random(1, 32)
    work = work_of(lambda: sums.warp_sums(x))
    why = "1, 2, 4, 8, 16, 32: five doublings. One lane after the other would be 31 steps."
    barriers = f" and {work.barriers} barriers" if work.barriers else ""
    expect(
        work.collectives + work.barriers <= 8,
        f"{work.collectives} exchanges{barriers} for the sum of 32 lanes",
        why=why,
    )


@task("14.1")
def test_a_block_of_one_warp(part: ModuleType) -> None:
    """block_sum of a single warp is that warp's sum."""
    x = torch.arange(32.0)[None]
    with blamed("uninitialized", EVERY_WARP):
        got = sums_of(part).block_sums(x)
    expect_sums(got, x, "a block of 32 threads", EVERY_WARP)


@task("14.1")
def test_every_warp_counts(part: ModuleType) -> None:
    """block_sum counts each warp once: the last as much as the first, and any number of them."""
    sums = sums_of(part)
    for warps in (2, 3, 5, 32):
        x = torch.arange(warps).repeat_interleave(32).float()[None] + 1
        what = f"{warps} warps, of which warp w holds w + 1 in every lane"
        faults = ("out_of_bounds", EVERY_WARP), ("uninitialized", EVERY_WARP), ("race", BARRIERS)
        with ExitStack() as stack:
            for fault in faults:
                stack.enter_context(blamed(*fault))
            got = sums.block_sums(x)
        expect_sums(got, x, what, EVERY_WARP)


@task("14.1")
def test_every_thread_of_a_block_has_the_sum(part: ModuleType) -> None:
    """Any block's threads all get the sum of all of them, also when the next sum follows at once."""
    x = random(3, 160, seed=5)
    with blamed("race", BARRIERS):
        got = sums_of(part).block_sums(x)
    expect_sums(got, x, "3 blocks of 160 threads", f"{EVERY_LANE} {EVERY_WARP}")


@task("14.1")
def test_sums_are_of_float32(part: ModuleType) -> None:
    """A sum of many small numbers and a large one loses none of them."""
    x = torch.ones(1, 1024)
    x[0, 0] = 4096.0
    why = "float16 and bfloat16 hold 11 and 8 binary digits: 4096 + 1 is 4096 in both."
    expect_sums(sums_of(part).block_sums(x), x, "1,023 ones and 4096", why)


@task("14.1")
def test_what_is_no_number_is_not_lost(part: ModuleType) -> None:
    """One NaN makes a sum NaN and one infinity makes it infinite, in every thread."""
    sums = sums_of(part)
    for value in (float("nan"), float("inf")):
        x = torch.ones(1, 96)
        x[0, 40] = value
        got = sums.block_sums(x)
        right = torch.full_like(got, value)
        expect(
            torch.equal(got.isnan(), right.isnan()) and torch.equal(got.isinf(), right.isinf()),
            f"the sum of 95 ones and {value} is {got[0, 0, 0]:g} in thread 0",
            why=f"{value} was left out of the sum, or counted as 0." * bool(got[0, 0, 0] == 95),
        )


@task("14.1")
def test_a_block_needs_few_barriers(part: ModuleType) -> None:
    """The sum of a block takes a few barriers, however many warps it has."""
    sums, x = sums_of(part), random(1, 1024)
    each = work_of(lambda: sums.block_sums(x)).barriers / 2
    expect(
        each <= 8,
        f"{each:g} barriers for the sum over 32 warps",
        why="At a barrier the whole block waits. Two are enough: all warps write their sums at once, "
        "and then each adds up all of them. Warps that take turns wait 32 times.",
    )
