"""Tasks 14.2 and 14.3: a row is summed up by the threads that share it."""

from types import ModuleType

import torch
from hypothesis import given
from torch import Tensor

from grader.kit import Mismatch, examples, expect_close, start_script, task
from grader.kit.cuda_bounds import bounds_of
from grader.kit.cuda_work import (
    blamed,
    count_beyond_grid,
    expect_errors_returned,
    expect_grid_fits,
    expect_no_wrap,
    expect_read_once,
    expect_whole_sectors,
    expect_within_bounds,
    launches_of,
    told_grid,
    work_of,
)
from grader.kit.kernels import Reading, expect_near, random, rms_norm
from grader.kit.poison import poisoned
from grader.suites.cuda_ops.exact import (
    BF16,
    F16,
    F32,
    ODD,
    ROWS_IN_64_BITS,
    WIDE,
    begins,
    expect_launched,
    expect_packed,
    expect_two_warps,
    kernels_of,
    laid,
    launch_of,
    only,
    rows,
    shifted,
)
from grader.suites.cuda_ops.mistakes import counted_squares, norm_kinds
from grader.suites.cuda_ops.roundings import expect_rounded, fine

APART = (
    "rows.start() says where a row begins: a token's rows are neighbours, and the next token is "
    "`stride` numbers further on. Each tensor has a stride of its own, and what rms_norm returns has "
    "none: row r begins at r * d."
)
ROUNDED = (
    "x * scale = 1.0039 rounds to 1 in bfloat16, and times 1.9921875 that is 1.9921875. Without the "
    "rounding in between it would be 2: the reference of lab 2 rounds, as Llama's own code does."
)


@task("14.2")
def test_rms_norm_of_one_row(part: ModuleType) -> None:
    """A row is divided by the root of the mean of its squares, all of them, and multiplied by the weight
    once."""
    x, weight = torch.tensor([[1.0, 7.0]]), torch.tensor([10.0, -1.0])
    with poisoned():
        got = kernels_of(part).rms_norm(x, weight, 0.0)
    why = "1 and 49 have the mean 25: divide by 5, multiply by the weight once."
    what, kinds = "rms_norm of (1, 7) with (10, -1)", norm_kinds(x, weight, 0.0)
    expect_near(got, torch.tensor([[2.0, -1.4]]), F32, what, why=why, kinds=kinds)
    for d in (64, 63):  # with packs, and without: short rows fail here, not where eps is looked at
        x, weight = random(1, d, seed=2), random(d, seed=1)
        start_script()
        with poisoned():
            got = kernels_of(part).rms_norm(x, weight, 0.0)
        why = counted_squares(got, x, weight, 0.0)
        exact, kinds = rms_norm(x, weight, 0.0), norm_kinds(x, weight, 0.0)
        expect_near(got, exact, F32, f"rms_norm of a row of {d}", why=why, kinds=kinds)


@task("14.2")
def test_rows_that_do_not_exist(part: ModuleType) -> None:
    """A block that has threads for several rows leaves those alone that are not below count."""
    kernels, weight = kernels_of(part), torch.ones(128)
    for count in (1, 3):
        x = random(count, 128, seed=count)
        launches = launches_of(lambda x=x: part.LayerKernels().rms_norm(x, weight, 1e-5))  # type: ignore[misc]
        why = (
            f"Here count is {count}, and {told_grid(launches)} is launched. A row of 128 is 32 packs, "
            "one for each lane of a warp: every thread of a row that exists has one. Threads whose row "
            "is not below count must be masked by a condition, before they read."
        )
        with blamed("out_of_bounds", why):
            got = kernels.rms_norm(x, weight, 1e-5)
        expect_near(
            got, rms_norm(x, weight, 1e-5), F32, f"rms_norm of {count} rows of 128", why=why
        )


@task("14.2")
def test_eps_stands_under_the_root(part: ModuleType) -> None:
    """eps is added to the mean of the squares, before the root."""
    expect_eps_inside(part, 64)


def expect_eps_inside(part: ModuleType, d: int) -> None:
    """d times 0.001 at eps 3e-6 give 0.5."""
    x, weight = torch.full((1, d), 1e-3), torch.ones(d)
    got = kernels_of(part).rms_norm(x, weight, 3e-6)
    what, kinds = f"rms_norm of {d} times 0.001, at eps 3e-6", norm_kinds(x, weight, 3e-6)
    why = "1e-3 / sqrt(1e-6 + 3e-6) is 0.5."
    expect_near(got, torch.full((1, d), 0.5), F32, what, why=why, kinds=kinds)


@task("14.2")
def test_rows_of_every_length(part: ModuleType) -> None:
    """Every number of a row counts once: rows shorter than a warp, and no multiple of anything."""
    kernels = kernels_of(part)
    why = (
        "The last step of a loop reaches past the end of a row: threads out there have nothing to add, "
        "and every number before it has a thread."
    )
    kept = (
        "A block has at most 1,024 threads, and this kernel at most its __launch_bounds__. Layout.kept "
        "is 0 where a row is too long for the registers of so many threads: such a row belongs to the "
        "kernel for any d. Here a row has {:,} numbers."
    )
    for d in (1, 31, 33, 72, 96, 100, 257, 1000, 1032, 4800, 264, 40_000):
        x, weight = random(3 if d < 40_000 else 1, d, seed=d), random(d, seed=1)
        limit = blamed("launch", kept.format(d), where="a block of")
        start_script()
        with blamed("out_of_bounds", why), limit, poisoned():
            got = kernels.rms_norm(x, weight, 1e-5)
        exact, kinds = rms_norm(x, weight, 1e-5), norm_kinds(x, weight, 1e-5)
        told = counted_squares(got, x, weight, 1e-5) or why
        expect_near(got, exact, F32, f"rms_norm of {list(x.shape)}", why=told, kinds=kinds)


@task("14.2")
def test_eps_of_rows_without_packs(part: ModuleType) -> None:
    """eps is added to the mean, before the root, also where packs do not fit."""
    expect_eps_inside(part, 63)


@task("14.2")
def test_any_number_of_rows(part: ModuleType) -> None:
    """Rows are normalised each by itself, however many blocks of threads they fill."""
    kernels, weight = kernels_of(part), random(16, seed=1)
    dry = part.LayerKernels()
    many = count_beyond_grid(lambda n: dry.rms_norm(torch.zeros(n, 16), weight, 1.0), 20_000)
    for count in (1, 2, 9, 70, many):
        x = random(count, 16, seed=count)
        launches = launches_of(lambda x=x: dry.rms_norm(x, weight, 1e-5))  # type: ignore[misc]
        why = (
            "The last block has room for rows that do not exist, and a row never sees another's sum. "
            f"Here {told_grid(launches)} is launched."
        )
        with poisoned():
            got = kernels.rms_norm(x, weight, 1e-5)
        exact, what = rms_norm(x, weight, 1e-5), f"rms_norm of {count} rows of 16"
        expect_near(got, exact, F32, what, why=why)


@task("14.2")
def test_squares_are_summed_in_float32(part: ModuleType) -> None:
    """In 16 bits numbers are squared and summed in float32."""
    kernels = kernels_of(part)
    for value, dtype in ((300.0, F16), (1e-4, F16), (1.0, BF16)):
        x = torch.full((1, 1024), value, dtype=dtype)
        got = kernels.rms_norm(x, torch.ones(1024, dtype=dtype), 1e-12)
        what = f"rms_norm of 1,024 times {value:g} in {dtype}"
        why = f"In bfloat16 256 + 1 is 256, in float16 300 squared is infinite. {WIDE}"
        expect_near(got, torch.ones(1, 1024), dtype, what, why=why)


@task("14.2")
def test_the_norm_is_rounded_before_the_weight(part: ModuleType) -> None:
    """The normalised number is rounded to the dtype of x, then multiplied by the weight."""
    x, weight = torch.tensor([[1.0078125, 1.0]] * 2), torch.full((2,), 1.9921875)
    got = kernels_of(part).rms_norm(x.to(BF16), weight.to(BF16), 0.0)
    right = torch.full((2, 1), 1.9921875, dtype=BF16)
    what = "rms_norm of 1.0078125 beside 1, with weight 1.9921875"
    expect_close(got[:, :1], right, what, rtol=0, atol=0, why=ROUNDED)


@task("14.2")
def test_nothing_else_is_rounded(part: ModuleType) -> None:
    """Packs or not, squares, their sum and the scale stay in float32, to the last bit of the result."""
    kernels = kernels_of(part)
    for d, dtype in ((520, BF16), (519, BF16), (520, F16), (519, F16)):
        x, weight = fine(3, d, seed=d, dtype=dtype), fine(d, seed=1, dtype=dtype)
        got = kernels.rms_norm(x, weight, 1e-5)
        expect_rounded(got, x, weight, 1e-5, f"rms_norm of 3 rows of {d} in {dtype}")


@task("14.2")
def test_each_number_limits_packs(part: ModuleType) -> None:
    """Each address, the stride and d may forbid packs, alone."""
    kernels = kernels_of(part)
    for name in ("the address of x", "the address of weight", "the stride", "d"):
        d = 28 if name == "d" else 32
        start, step = 4 * (name == "the address of x"), 4 * (name == "the stride")
        x = laid(random(3, d, dtype=BF16), start=start, step=step)
        weight = shifted(random(d, seed=1, dtype=BF16), 4 * (name == "the address of weight"))
        with only(name) as why:
            got = kernels.rms_norm(x, weight, 1e-5)
        what = f"rms_norm of 3 rows of {d}, where {name} does not suit packs"
        expect_near(got, rms_norm(x, weight, 1e-5), BF16, what, why=why)


@task("14.2")
@examples(30)
@given(rows())
def test_any_rms_norm(part: ModuleType, x: Tensor) -> None:
    """Any shape, dtype, stride and alignment gives the definition in float64, rounded."""
    weight = random(x.shape[-1], seed=1, dtype=x.dtype)
    with blamed("misaligned", ODD):
        got = kernels_of(part).rms_norm(x, weight, 1e-5)
    what = f"rms_norm of {list(x.shape)} {x.dtype}, strides {x.stride()}"
    expect_near(got, rms_norm(x, weight, 1e-5), x.dtype, what, why=ODD)


@task("14.2")
def test_rows_apart(part: ModuleType) -> None:
    """A token's rows are neighbours, tokens are `stride` apart, and the result is contiguous."""
    kernels = kernels_of(part)
    cases = ((3, 2, 64), BF16, 0), ((2, 3, 16), F32, 1), ((3, 1024), BF16, 0), ((2, 3000), F16, 1)
    for shape, dtype, start in cases:  # from 1 on no pack fits
        x = laid(random(*shape, dtype=dtype), start=start)
        weight = random(shape[-1], seed=1, dtype=dtype)
        reading = Reading(lambda x, weight=weight: rms_norm(x, weight, 1e-5), {"x": x})
        start_script()
        with blamed("out_of_bounds", f"{begins(x)} {APART}"):
            got = kernels.rms_norm(x, weight, 1e-5)
        what = f"rms_norm of {list(shape)} {dtype}, strides {x.stride()}"
        expect_near(got, rms_norm(x, weight, 1e-5), dtype, what, why=APART, reading=reading)


@task("14.2")
def test_rms_norm_reads_x_once(part: ModuleType) -> None:
    """A row is read once, side by side: between the sum and the result it stays on the chip."""
    kernels = kernels_of(part)
    for count, d in ((6, 488), (1, 16_384)):  # 61 packs, and as many as 512 threads keep, four each
        x, weight = random(count, d, dtype=BF16), random(d, seed=1, dtype=BF16)
        work = work_of(lambda x=x, weight=weight: kernels.rms_norm(x, weight, 1e-5))  # type: ignore[misc]
        what = f"rms_norm of {count} rows of {2 * d:,} bytes"
        again = random(count, 1024, dtype=BF16), random(1024, seed=1, dtype=BF16)
        expect_packed(
            work,
            count * d * 2,
            what,
            lambda given=again: kernels.rms_norm(*given, 1e-5),  # type: ignore[misc]
            "rows of 1,024 numbers",
        )
        expect_read_once(work, count * d * 2, count * d * 2, what)
        expect_whole_sectors(work, what)


@task("14.2")
def test_short_rows_share_a_block(part: ModuleType) -> None:
    """Rows of one warp each share a block of threads: it has two warps or more."""
    kernels, weight = kernels_of(part), torch.ones(128, dtype=BF16)
    x = torch.zeros(512, 128, dtype=BF16)
    launches = launches_of(lambda: kernels.rms_norm(x, weight, 1.0))
    expect_two_warps(launches, "rms_norm of 512 rows of 128")


@task("14.2")
def test_many_rows_have_many_threads(part: ModuleType) -> None:
    """512 rows are not the work of a few blocks of threads that go from one to the next."""
    dry = part.LayerKernels()
    for d, pieces in ((128, 16), (127, 127)):  # packs, and numbers
        x, weight = torch.zeros(512, d, dtype=BF16), torch.ones(d, dtype=BF16)
        launches = launches_of(lambda x=x, weight=weight: dry.rms_norm(x, weight, 1.0))  # type: ignore[misc]
        # How many threads share a row is free: a whole block's for 16 packs would be 64 for each.
        expect_grid_fits(launches, 512 * pieces, f"rms_norm of 512 rows of {d}", most=64)


@task("14.2")
def test_blocks_stay_within_their_bounds(part: ModuleType) -> None:
    """Whatever a row's length, no block has more threads than its kernel's __launch_bounds__."""
    kernels = kernels_of(part)
    for d in (8_192, 16_384, 20_000, 20_001):
        x, weight = torch.zeros(1, d, dtype=BF16), torch.ones(d, dtype=BF16)
        launches = launches_of(lambda x=x, weight=weight: kernels.rms_norm(x, weight, 1.0))  # type: ignore[misc]
        expect_within_bounds(launches, bounds_of(part), f"rms_norm of a row of {d:,}")


@task("14.2")
def test_many_rows_fit_a_grid(part: ModuleType) -> None:
    """The norm of every head of a long prompt is a launch that CUDA takes."""
    dry = part.LayerKernels()

    def launch(count: int, d: int) -> None:
        dry.rms_norm(torch.zeros(count, d), torch.ones(d), 1.0)

    for d in (4, 3):  # a pack, and none
        expect_launched(lambda count, d=d: launch(count, d), 300_000)  # type: ignore[misc]


@task("14.2")
def test_a_row_may_begin_beyond_32_bits(part: ModuleType) -> None:
    """Where a row of x begins is computed in 64 bits."""
    for d in (32, 31):
        x, weight, out = random(1, d), torch.ones(d), torch.zeros(2, d)

        def unchanged(out: Tensor = out) -> None:
            if out[1].any():
                raise Mismatch("row 1 of the result is the norm of row 0", "no result", "a norm")

        expect_no_wrap(
            lambda x=x, weight=weight, out=out, d=d: launch_of(part)(  # type: ignore[misc]
                "rms_norm", x, weight, out, 2, 1, 2**32, d, 1e-5, F32
            ),
            unchanged,
            f"row 1 of {d} numbers, 2**32 of them behind row 0",
            why=ROWS_IN_64_BITS,
        )


@task("14.2")
def test_errors_of_a_launch_are_returned(part: ModuleType) -> None:
    """What launch() returned is returned, with packs and without."""
    kernels = kernels_of(part)
    for d in (64, 63):
        x, weight = torch.ones(2, d), torch.ones(d)
        expect_errors_returned(
            lambda x=x, weight=weight: kernels.rms_norm(x, weight, 1.0),  # type: ignore[misc]
            f"rms_norm of 2 rows of {d}",
        )
