"""Task 14.4: SiLU and multiply, number by number."""

from types import ModuleType

import torch
from hypothesis import given
from torch import Tensor

from grader.kit import Mismatch, examples, start_script, task
from grader.kit.cuda_work import (
    blamed,
    count_beyond_grid,
    expect_errors_returned,
    expect_grid_fits,
    expect_no_wrap,
    expect_whole_sectors,
    expect_whole_warps,
    launches_of,
    left_over,
    work_of,
)
from grader.kit.kernels import Reading, expect_near, random, silu_mul
from grader.kit.poison import poisoned
from grader.kit.recomputed import never_written
from grader.suites.cuda_ops.exact import (
    BF16,
    F32,
    LIMITED,
    ODD,
    ROWS_IN_64_BITS,
    begins,
    expect_packed,
    kernels_of,
    laid,
    launch_of,
    only,
    rows,
)
from grader.suites.cuda_ops.mistakes import silu_kinds


@task("14.4")
def test_the_first_half_is_the_gate(part: ModuleType) -> None:
    """The first half of a row goes through SiLU, and the second half multiplies it."""
    x = torch.tensor([[0.0, 20.0, 3.0, 5.0], [20.0, 0.0, 2.0, 9.0]])
    with poisoned():
        got = kernels_of(part).silu_mul(x)
    right = torch.tensor([[0.0, 100.0], [40.0, 0.0]])
    why = "A row is [gate | up]: up[i] lies d behind gate[i], in the same row."
    none = (
        "Nothing was written. d is 2 here: 8 bytes, half of a pack. For packs to fit, d, too, must be "
        "a multiple of one, and where it is none numbers go one at a time."
    )
    what = "silu_mul of gates (0, 20), (20, 0) and ups (3, 5), (2, 9)"
    kinds = {**silu_kinds(x), none: never_written}
    expect_near(got, right, F32, what, why=why, kinds=kinds)


@task("14.4")
def test_silu_far_out(part: ModuleType) -> None:
    """silu(x) is x * sigmoid(x), without overflow."""
    gate = [1.0, -1.0, -1000.0, 1000.0]
    got = kernels_of(part).silu_mul(torch.tensor([gate + [1.0] * 4]))
    right = torch.tensor([[0.7310586, -0.2689414, 0.0, 1000.0]])
    why = "exp(1000) is infinite, and infinity by infinity is NaN; x / (1 + exp(-x)) is 0 or x far out."
    expect_near(got, right, F32, f"silu of {gate}", why=why)


@task("14.4")
def test_rows_longer_than_a_block(part: ModuleType) -> None:
    """Rows longer than a block of threads, and rows that end within a pack, are done to their end."""
    kernels = kernels_of(part)
    for d in (1, 12, 260, 1030, 2100):
        start_script()
        x = random(2, 2 * d, seed=d)
        why = "The last block of a row has threads to spare, and they belong to no other row."
        with poisoned():
            got = kernels.silu_mul(x)
        what, kinds = f"silu_mul of 2 rows of 2 x {d}", silu_kinds(x)
        expect_near(got, silu_mul(x), F32, what, why=why, kinds=kinds)


@task("14.4")
def test_each_number_limits_packs(part: ModuleType) -> None:
    """The address of x, the stride and d may forbid packs, alone."""
    kernels = kernels_of(part)
    for name in ("the address of x", "the stride", "d, half of a row,"):
        d = 12 if name[0] == "d" else 16
        start, step = 4 * (name == "the address of x"), 4 * (name == "the stride")
        x = laid(random(3, 2 * d, dtype=BF16), start=start, step=step)
        with only(name) as why:
            got = kernels.silu_mul(x)
        what = f"silu_mul of 3 rows of 2 x {d}, where {name} does not suit packs"
        expect_near(got, silu_mul(x), BF16, what, why=why)


@task("14.4")
@examples(25)
@given(rows(multiple=2))
def test_any_silu_mul(part: ModuleType, x: Tensor) -> None:
    """Any shape, dtype, stride and alignment gives the definition in float64, rounded."""
    what = f"silu_mul of {list(x.shape)} {x.dtype}, strides {x.stride()}"
    with blamed("misaligned", ODD):
        got = kernels_of(part).silu_mul(x)
    expect_near(got, silu_mul(x), x.dtype, what, why=ODD)


@task("14.4")
def test_any_number_of_rows(part: ModuleType) -> None:
    """Every row is done, also where there are more rows than a grid has blocks in y."""
    kernels = kernels_of(part)
    for d, kind in ((4, "packs"), (1, "numbers, one at a time")):
        start_script()
        with blamed("launch", LIMITED):
            count = count_beyond_grid(
                lambda count, d=d: part.LayerKernels().silu_mul(torch.zeros(count, 2 * d)),  # type: ignore[misc]
                70_000,
            )
            x = random(count, 2 * d)
            with poisoned():
                got = kernels.silu_mul(x)
        lost = got.isnan().flatten(1).any(dim=1).nonzero()
        first = int(lost[0]) if len(lost) else -1
        launches = launches_of(lambda x=x: part.LayerKernels().silu_mul(x))  # type: ignore[misc]
        why = left_over(launches, first, "rows") + LIMITED
        expect_near(got, silu_mul(x), F32, f"silu_mul of {count} rows in {kind}", why=why)


@task("14.4")
def test_rows_apart(part: ModuleType) -> None:
    """A token's rows are neighbours, tokens are `stride` apart, and the result is contiguous."""
    kernels = kernels_of(part)
    for shape, dtype, start in (((3, 2, 64), BF16, 0), ((2, 3, 16), F32, 1), ((3, 16), BF16, 0)):
        x = laid(random(*shape, dtype=dtype), start=start)  # from 1 on no pack fits
        what = f"silu_mul of {list(shape)} {dtype}, strides {x.stride()}"
        why = "rows.start() says where a row of x begins; row r of the result begins at r * d."
        with blamed("out_of_bounds", f"{begins(x)} {why}"):
            got = kernels.silu_mul(x)
        reading = Reading(silu_mul, {"x": x})
        expect_near(got, silu_mul(x), dtype, what, why=why, reading=reading)


@task("14.4")
def test_silu_mul_moves_packs(part: ModuleType) -> None:
    """16 bytes at a time, neighbours by neighbours."""
    kernels, x = kernels_of(part), random(4, 1040, dtype=BF16)
    work = work_of(lambda: kernels.silu_mul(x))
    again, sizes = random(4, 2048, dtype=BF16), "rows of 2 x 1,024"
    what = "silu_mul of 4 rows of 2 x 520"
    expect_packed(work, 4 * 1040, what, lambda: kernels.silu_mul(again), sizes)
    expect_whole_sectors(work, "silu_mul of 4 rows of 2 x 520")


@task("14.4")
def test_most_threads_have_work(part: ModuleType) -> None:
    """A row gets threads for its packs, or for its numbers where packs do not fit, in whole warps."""
    kernels = kernels_of(part)
    for d, pieces, kind in ((14_336, 1_792, "packs"), (14_337, 14_337, "numbers, one at a time")):
        x = torch.zeros(16, 2 * d, dtype=BF16)
        launches = launches_of(lambda x=x: kernels.silu_mul(x))  # type: ignore[misc]
        what = f"16 rows of 2 x {d:,} in {kind}"
        expect_grid_fits(launches, 16 * pieces, what)
        expect_whole_warps(launches, what)


@task("14.4")
def test_a_row_may_begin_beyond_32_bits(part: ModuleType) -> None:
    """Where a row of x begins is computed in 64 bits."""
    for d in (16, 15):  # with packs, and without
        x, out = torch.ones(1, 2 * d), torch.zeros(2, d)

        def unchanged(out: Tensor = out) -> None:
            if out[1].any():
                raise Mismatch("row 1 of the result was made of row 0", "no result", "numbers")

        expect_no_wrap(
            lambda x=x, out=out, d=d: launch_of(part)(  # type: ignore[misc]
                "silu_mul", x, out, 2, 1, 2**32, 2 * d, F32
            ),
            unchanged,
            f"row 1 of 2 x {d} numbers, 2**32 of them behind row 0",
            why=ROWS_IN_64_BITS,
        )


@task("14.4")
def test_errors_of_a_launch_are_returned(part: ModuleType) -> None:
    """What launch() returned is returned, with packs and without."""
    kernels = kernels_of(part)
    for d in (16, 15):
        x = torch.ones(2, 2 * d)
        expect_errors_returned(lambda x=x: kernels.silu_mul(x), f"silu_mul of 2 rows of 2 x {d}")  # type: ignore[misc]
