"""Task 14.3: the sum of x and residual, and its norm, in one launch."""

from types import ModuleType

import torch
from hypothesis import given
from torch import Tensor

from grader.kit import (
    Mismatch,
    examples,
    expect,
    expect_close,
    expect_equal,
    note,
    start_script,
    task,
)
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
from grader.kit.kernels import Reading, expect_near, fused_add_rms_norm, random, rms_norm
from grader.suites.cuda_ops.exact import (
    BF16,
    F16,
    F32,
    ODD,
    ROWS_IN_64_BITS,
    begins,
    expect_launched,
    expect_packed,
    kernels_of,
    laid,
    launch_of,
    only,
    rows,
    shifted,
)
from grader.suites.cuda_ops.mistakes import counted_squares, fused_kinds
from grader.suites.cuda_ops.roundings import expect_rounded, fine
from yaie.cuda.on_cpu import KernelFault

APART = (
    "x and residual are two tensors with a stride each, and x_rows and residual_rows say where their "
    "rows begin."
)


def fuse(part: ModuleType, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> None:
    """Runs the fused operation; its results must be the two tensors that it was given."""
    pair = kernels_of(part).fused_add_rms_norm(x, residual, weight, eps)
    same = isinstance(pair, tuple) and len(pair) == 2 and pair[0] is x and pair[1] is residual
    expect(same, "fused_add_rms_norm does not return x and residual, which it has written over")


@task("14.3")
def test_the_sum_goes_to_the_residual(part: ModuleType) -> None:
    """The sum is written over residual, its norm over x."""
    x, residual = torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 4.0]])
    weight = torch.tensor([10.0, 1.0])
    sums, norms = fused_kinds(x, residual, weight, 0.0)
    fuse(part, x, residual, weight, 0.0)
    why = "The sum (1, 7) goes on to the next layer as it is; its norm is what this layer reads."
    what, right = "residual after (1, 3) + (0, 4)", torch.tensor([[1.0, 7.0]])
    expect_near(residual, right, F32, what, why=why, kinds=sums)
    expect_near(x, torch.tensor([[2.0, 1.4]]), F32, "x after it", why=why, kinds=norms)
    for d in (64, 63):  # with packs, and without: short rows fail here, not where eps is looked at
        x, residual, weight = (random(1, d, seed=seed) for seed in range(3))
        normed, total = fused_add_rms_norm(x, residual, weight[0], 0.0)
        sums, norms = fused_kinds(x, residual, weight[0], 0.0)
        start_script()
        fuse(part, x, residual, weight[0], 0.0)
        expect_near(residual, total, F32, f"the sum of a row of {d}", kinds=sums)
        why = counted_squares(x, total, weight[0], 0.0)
        expect_near(x, normed, F32, f"the norm of the sum of a row of {d}", why=why, kinds=norms)


@task("14.3")
def test_the_norm_is_of_the_rounded_sum(part: ModuleType) -> None:
    """Squares are those of the sum as it was rounded and stored."""
    why = "256 + 1 is 256 in bfloat16, and that is the residual; the norm of equal numbers is 1."
    for d in (64, 63):
        x, residual = torch.full((1, d), 256.0, dtype=BF16), torch.full((1, d), 1.0, dtype=BF16)
        fuse(part, x, residual, torch.ones(d, dtype=BF16), 0.0)
        what = f"the sums of {d} times 256 and 1 in bfloat16"
        expect_equal(residual.unique().tolist(), [256.0], what, why=why)
        expect_equal(x.unique().tolist(), [1.0], f"the norm of {what}", why=why)
    mixed, zeros = torch.tensor([[257.0, 1.0]]), torch.zeros(1, 2, dtype=BF16)
    residual = zeros.clone()
    fuse(part, mixed.to(BF16), residual, torch.ones(2, dtype=BF16), 0.0)
    expect_equal(
        residual.tolist(), [[256.0, 1.0]], "the sums of (257, 1) and 0 in bfloat16", why=why
    )


@task("14.3")
def test_nothing_else_is_rounded(part: ModuleType) -> None:
    """Packs or not, squares, their sum and the scale stay in float32, to the last bit of the result."""
    for d, dtype in ((520, BF16), (1033, BF16), (520, F16), (1033, F16)):
        x, residual = fine(3, d, seed=d, dtype=dtype), fine(3, d, seed=2, dtype=dtype)
        weight, exact = fine(d, seed=1, dtype=dtype), x.float() + residual.float()
        fuse(part, x, residual, weight, 1e-5)
        what = f"3 rows of {d} in {dtype}"
        expect_close(residual, exact.to(dtype), f"the sum of {what}", rtol=0, atol=0)
        expect_rounded(x, residual, weight, 1e-5, f"the norm of the sum of {what}", exact)


@task("14.3")
def test_eps_stands_under_the_root(part: ModuleType) -> None:
    """eps is added to the mean of the squares of the sum, before the root."""
    why = "5e-4 + 5e-4 is 1e-3, and 1e-3 / sqrt(1e-6 + 3e-6) is 0.5."
    for d in (64, 63):
        x, residual = torch.full((1, d), 5e-4), torch.full((1, d), 5e-4)
        kinds = fused_kinds(x, residual, torch.ones(d), 3e-6)[1]
        fuse(part, x, residual, torch.ones(d), 3e-6)
        what = f"the norm of {d} sums of 0.0005 and 0.0005, at eps 3e-6"
        expect_near(x, torch.full((1, d), 0.5), F32, what, why=why, kinds=kinds)


@task("14.3")
def test_fused_rows_of_every_length(part: ModuleType) -> None:
    """Every number of a row counts once, whatever the row's length."""
    for d in (1, 33, 72, 100, 200, 264, 1000, 1032, 2100, 4800):  # up to 1, 2 and 4 packs a thread
        x, residual = random(3, d, seed=d), random(3, d, seed=d + 1)
        weight = random(d, seed=d + 2)
        start_script()
        normed, total = fused_add_rms_norm(x, residual, weight, 1e-5)
        sums, norms = fused_kinds(x, residual, weight, 1e-5)
        fuse(part, x, residual, weight, 1e-5)
        expect_near(residual, total, F32, f"the sum of 3 rows of {d}", kinds=sums)
        why = counted_squares(x, total, weight, 1e-5)
        expect_near(x, normed, F32, f"the norm of the sum of 3 rows of {d}", why=why, kinds=norms)


@task("14.3")
def test_fused_rows_apart(part: ModuleType) -> None:
    """Rows of x and of residual lie at their own strides, and nothing between them is touched."""
    cases = ((3, 16), F32, 0), ((2, 2, 64), BF16, 0), ((3, 16), F32, 1), ((2, 3000), F16, 0)
    for shape, dtype, start in cases:  # from 1 on no pack fits
        values = random(*shape, dtype=dtype), random(*shape, seed=1, dtype=dtype)
        x, residual = (laid(value, i, start=start) for i, value in enumerate(values))
        weight = random(shape[-1], seed=2, dtype=dtype)
        inputs = {"x": x, "residual": residual}
        sums = Reading(lambda x, residual: x.double() + residual.double(), inputs)
        norms = Reading(
            lambda x, residual, weight=weight: fused_add_rms_norm(x, residual, weight, 1e-5)[0],
            inputs,
        )
        normed, total = fused_add_rms_norm(x, residual, weight, 1e-5)
        what = f"{list(shape)} {dtype}, x with strides {x.stride()}, residual {residual.stride()}"
        start_script()
        with blamed("out_of_bounds", f"{begins(x)} {begins(residual, 'residual')} {APART}"):
            fuse(part, x, residual, weight, 1e-5)
        expect_near(residual, total, dtype, f"the sum of {what}", why=APART, reading=sums)
        expect_near(
            x,
            normed,
            dtype,
            f"the norm of the sum of {what}",
            why=APART,
            reading=norms,
            roundings=2,
        )


@task("14.3")
def test_each_number_limits_fused_packs(part: ModuleType) -> None:
    """Each address, both strides and d may forbid packs, alone."""
    names = "x", "residual", "weight", "x_stride", "residual_stride", "d"
    for name in names:
        d = 28 if name == "d" else 32
        x, residual = (
            laid(random(3, d, seed=i, dtype=BF16), i, start=4 * (name == tensor),
                 step=4 * (name == f"{tensor}_stride"))
            for i, tensor in enumerate(("x", "residual"))
        )  # fmt: skip
        weight = shifted(random(d, seed=2, dtype=BF16), 4 * (name == "weight"))
        normed, total = fused_add_rms_norm(x, residual, weight, 1e-5)
        with only(name) as why:
            fuse(part, x, residual, weight, 1e-5)
        what = f"3 rows of {d}, where {name} does not suit packs"
        expect_near(residual, total, BF16, f"the sum of {what}", why=why)
        expect_near(x, normed, BF16, f"the norm of the sum of {what}", why=why, roundings=2)


@task("14.3")
def test_any_number_of_fused_rows(part: ModuleType) -> None:
    """However many rows there are, each is summed and normed."""
    weight = random(16, seed=2)

    def rows_of(count: int) -> tuple[Tensor, Tensor]:
        return random(count, 16, seed=count), random(count, 16, seed=1)

    dry = part.LayerKernels()
    many = count_beyond_grid(
        lambda count: dry.fused_add_rms_norm(*rows_of(count), weight, 1e-5), 20_000
    )
    for count in (1, 9, many):
        x, residual = rows_of(count)
        normed, total = fused_add_rms_norm(x, residual, weight, 1e-5)
        launches = launches_of(
            lambda count=count: dry.fused_add_rms_norm(*rows_of(count), weight, 1e-5)  # type: ignore[misc]
        )
        fuse(part, x, residual, weight, 1e-5)
        why = (
            "The last block has room for rows that do not exist, and every row has a warp. Here "
            f"{told_grid(launches)} is launched."
        )
        expect_near(residual, total, F32, f"the sum of {count} rows of 16", why=why)
        expect_near(x, normed, F32, f"the norm of the sum of {count} rows of 16", why=why)


@task("14.3")
@examples(25)
@given(rows())
def test_any_fused_add_rms_norm(part: ModuleType, x: Tensor) -> None:
    """Any shape, dtype, stride and alignment, also where those of x and of residual differ."""
    residual = random(*x.shape, seed=7, dtype=x.dtype)
    weight = random(x.shape[-1], seed=1, dtype=x.dtype)
    normed, total = fused_add_rms_norm(x, residual, weight, 1e-5)
    what = f"{list(x.shape)} {x.dtype}, strides {x.stride()}"
    with blamed("misaligned", ODD):
        fuse(part, x, residual, weight, 1e-5)
    expect_near(residual, total, x.dtype, f"the sum of {what}", why=ODD)
    # The sum may round the other way than in float64, and the norm is of what was rounded.
    expect_near(
        x, rms_norm(residual, weight, 1e-5), x.dtype, f"the norm of the sum of {what}", why=ODD
    )
    expect_near(x, normed, x.dtype, f"the norm of the sum of {what}", why=ODD, roundings=2)


@task("14.3")
def test_fused_reads_each_input_once(part: ModuleType) -> None:
    """x and residual are read once and written once, in one launch."""
    kernels = kernels_of(part)
    for count, d in ((6, 488), (1, 16_384)):  # 61 packs, and as many as 512 threads keep, four each
        x, residual, weight = (random(n, d, seed=n, dtype=BF16) for n in (count, count, 1))
        work = work_of(
            lambda x=x, residual=residual, weight=weight: kernels.fused_add_rms_norm(  # type: ignore[misc]
                x, residual, weight[0], 1e-5
            )
        )
        what = f"the fused norm of {count} rows of {2 * d:,} bytes"
        expect_equal(
            work.launches, 1, f"launches for {what}", why="Two launches would read the sum again."
        )
        again = (random(count, 1024, seed=n, dtype=BF16) for n in range(3))
        expect_packed(
            work,
            2 * count * d * 2,
            what,
            lambda y=tuple(again): kernels.fused_add_rms_norm(y[0], y[1], y[2][0], 1e-5),  # type: ignore[misc]
            "rows of 1,024 numbers",
        )
        expect_read_once(work, 2 * count * d * 2, count * d * 2, what)
        expect_whole_sectors(work, what)


@task("14.3")
def test_many_fused_rows_have_many_threads(part: ModuleType) -> None:
    """512 rows are not the work of a few blocks of threads that go from one to the next."""
    dry = part.LayerKernels()
    for d, pieces in ((128, 16), (127, 127)):  # packs, and numbers
        x, weight = torch.zeros(512, d, dtype=BF16), torch.ones(d, dtype=BF16)
        launches = launches_of(
            lambda x=x, weight=weight: dry.fused_add_rms_norm(x, x.clone(), weight, 1.0)  # type: ignore[misc]
        )
        # How many threads share a row is free: a whole block's for 16 packs would be 64 for each.
        expect_grid_fits(launches, 512 * pieces, f"the fused norm of 512 rows of {d}", most=64)


@task("14.3")
def test_fused_blocks_stay_within_their_bounds(part: ModuleType) -> None:
    """Whatever a row's length, no block has more threads than its kernel's __launch_bounds__."""
    kernels = kernels_of(part)
    for d in (8_192, 16_384, 20_000, 20_001):
        x, weight = torch.zeros(1, d, dtype=BF16), torch.ones(d, dtype=BF16)
        launches = launches_of(
            lambda x=x, weight=weight: kernels.fused_add_rms_norm(x, x.clone(), weight, 1.0)  # type: ignore[misc]
        )
        expect_within_bounds(launches, bounds_of(part), f"the fused norm of a row of {d:,}")


@task("14.3")
def test_many_fused_rows_fit_a_grid(part: ModuleType) -> None:
    """However many rows there are, their launch is one that CUDA takes."""
    dry = part.LayerKernels()

    def launch(count: int, d: int) -> None:
        x = torch.zeros(count, d)
        dry.fused_add_rms_norm(x, torch.zeros_like(x), torch.ones(d), 1.0)

    for d in (4, 3):  # a pack, and none
        expect_launched(lambda count, d=d: launch(count, d), 300_000)  # type: ignore[misc]


@task("14.3")
def test_fused_rows_may_begin_beyond_32_bits(part: ModuleType) -> None:
    """Where a row of x begins, and of residual, is computed in 64 bits."""
    for name in ("x", "residual"):
        for d in (32, 31):
            x, residual = (torch.ones(2 - (name == each), d) for each in ("x", "residual"))
            strides = (2**32 if name == each else d for each in ("x", "residual"))
            given = x, residual, torch.ones(d), 2, 1, *strides, d, 1e-5, F32

            def call(given: tuple[object, ...] = given) -> None:
                launch_of(part)("fused_add_rms_norm", *given)

            def unchanged(x: Tensor = x, residual: Tensor = residual) -> None:
                if bool((x != 1).any() or (residual != 1).any()):
                    raise Mismatch("what lies there was written", "no result", "a sum or a norm")

            where = f"row 1 of {name}, of {d} numbers, 2**32 of them behind row 0"
            start_script()
            note(f"# called with 2 rows, and a stride of 2**32 numbers for {name}")
            try:
                expect_no_wrap(call, unchanged, where, why=ROWS_IN_64_BITS)
            except KernelFault as fault:
                if fault.kind != "race":
                    raise
                places = " and ".join(dict.fromkeys((fault.where, fault.other_where)))
                raise Mismatch(
                    f"{where}: its address wraps to the beginning, to row 0 (threads of both rows use "
                    f"the same elements, in {places})",
                    why=ROWS_IN_64_BITS,
                ) from fault


@task("14.3")
def test_errors_of_a_fused_launch_are_returned(part: ModuleType) -> None:
    """What launch() returned is returned, with packs and without."""
    kernels = kernels_of(part)
    for d in (64, 63):
        x, weight = torch.ones(2, d), torch.ones(d)
        expect_errors_returned(
            lambda x=x, weight=weight: kernels.fused_add_rms_norm(x, x.clone(), weight, 1.0),  # type: ignore[misc]
            f"the fused norm of 2 rows of {d}",
        )
