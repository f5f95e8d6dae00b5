"""Tasks 14.2 and 14.3: a row is summed up by the threads that share it."""

from types import ModuleType

import torch
from hypothesis import given
from torch import Tensor

from grader.kit import examples, expect, expect_close, expect_equal, task
from grader.kit.cuda_work import blamed, expect_read_once, expect_wide, work_of
from grader.kit.kernels import expect_near, fused_add_rms_norm, random, rms_norm
from grader.suites.cuda_ops.exact import BF16, F16, F32, ODD, WIDE, kernels_of, rows, spread

ROUNDED = (
    "x * scale = 1.0039 rounds to 1 in bfloat16, and times 1.9921875 that is 1.9921875. Without the "
    "rounding in between it would be 2: the reference of lab 2 rounds, as Llama's own code does."
)


@task("14.2")
def test_rms_norm_of_one_row(part: ModuleType) -> None:
    """A row is divided by the root of the mean of its squares, and multiplied by the weight once."""
    x, weight = torch.tensor([[1.0, 7.0]]), torch.tensor([10.0, -1.0])
    got = kernels_of(part).rms_norm(x, weight, 0.0)
    why = "1 and 49 have the mean 25: divide by 5. The mean is over d, the sum over all threads."
    expect_near(got, torch.tensor([[2.0, -1.4]]), F32, "rms_norm of (1, 7) with (10, -1)", why=why)


@task("14.2")
def test_eps_stands_under_the_root(part: ModuleType) -> None:
    """eps is added to the mean of the squares, before the root."""
    got = kernels_of(part).rms_norm(torch.full((1, 64), 1e-3), torch.ones(64), 3e-6)
    what = "rms_norm of 64 times 0.001, at eps 3e-6"
    why = "1e-3 / sqrt(1e-6 + 3e-6) is 0.5."
    expect_near(got, torch.full((1, 64), 0.5), F32, what, why=why)


@task("14.2")
def test_rows_of_every_length(part: ModuleType) -> None:
    """Every number of a row counts once: rows shorter than a warp, and no multiple of anything."""
    kernels = kernels_of(part)
    why = (
        "The last step of a loop reaches past the end of a row: threads out there have nothing to add, "
        "and every number before it has a thread."
    )
    for d in (1, 31, 33, 72, 96, 100, 257, 1000, 1032):
        x, weight = random(3, d, seed=d), random(d, seed=1)
        with blamed("out_of_bounds", why):
            got = kernels.rms_norm(x, weight, 1e-5)
        expect_near(got, rms_norm(x, weight, 1e-5), F32, f"rms_norm of 3 rows of {d}", why=why)


@task("14.2")
def test_any_number_of_rows(part: ModuleType) -> None:
    """Rows are normalised each by itself, however many blocks of threads they fill."""
    kernels, weight = kernels_of(part), random(16, seed=1)
    for count in (1, 2, 9, 70):
        x = random(count, 16, seed=count)
        why = "The last block has room for rows that do not exist, and a row never sees another's sum."
        what = f"rms_norm of {count} rows of 16"
        expect_near(
            kernels.rms_norm(x, weight, 1e-5), rms_norm(x, weight, 1e-5), F32, what, why=why
        )


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
def test_rms_norm_reads_x_once(part: ModuleType) -> None:
    """A row is read once: between the sum and the result it stays on the chip."""
    kernels, x = kernels_of(part), random(6, 512, dtype=BF16)
    weight = random(512, seed=1, dtype=BF16)
    work = work_of(lambda: kernels.rms_norm(x, weight, 1e-5))
    expect_read_once(work, 6 * 512 * 2, 6 * 512 * 2, "rms_norm of 6 rows of 1,024 bytes")
    expect_wide(work, 6 * 512 * 2, "rms_norm of 6 rows of 1,024 bytes")


def fuse(part: ModuleType, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> None:
    """Runs the fused operation; its results must be the two tensors that it was given."""
    pair = kernels_of(part).fused_add_rms_norm(x, residual, weight, eps)
    same = isinstance(pair, tuple) and len(pair) == 2 and pair[0] is x and pair[1] is residual
    expect(same, "fused_add_rms_norm does not return x and residual, which it has written over")


@task("14.3")
def test_the_sum_goes_to_the_residual(part: ModuleType) -> None:
    """The sum is written over residual, its norm over x."""
    x, residual = torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 4.0]])
    fuse(part, x, residual, torch.tensor([10.0, 1.0]), 0.0)
    why = "The sum (1, 7) goes on to the next layer as it is; its norm is what this layer reads."
    expect_near(
        residual, torch.tensor([[1.0, 7.0]]), F32, "residual after (1, 3) + (0, 4)", why=why
    )
    expect_near(x, torch.tensor([[2.0, 1.4]]), F32, "x after it", why=why)


@task("14.3")
def test_the_norm_is_of_the_rounded_sum(part: ModuleType) -> None:
    """Squares are those of the sum as it was rounded and stored."""
    x, residual = torch.full((1, 64), 256.0, dtype=BF16), torch.full((1, 64), 1.0, dtype=BF16)
    fuse(part, x, residual, torch.ones(64, dtype=BF16), 0.0)
    why = "256 + 1 is 256 in bfloat16, and that is the residual; the norm of 64 equal numbers is 1."
    expect_equal(residual.unique().tolist(), [256.0], "the sums of 256 and 1 in bfloat16", why=why)
    expect_equal(x.unique().tolist(), [1.0], "their norm", why=why)
    mixed, zeros = torch.tensor([[257.0, 1.0]]), torch.zeros(1, 2, dtype=BF16)
    residual = zeros.clone()
    fuse(part, mixed.to(BF16), residual, torch.ones(2, dtype=BF16), 0.0)
    expect_equal(
        residual.tolist(), [[256.0, 1.0]], "the sums of (257, 1) and 0 in bfloat16", why=why
    )


@task("14.3")
def test_fused_rows_of_every_length(part: ModuleType) -> None:
    """Every number of a row counts once, whatever the row's length."""
    for d in (1, 33, 72, 100, 264, 1000, 1032):
        x, residual = random(3, d, seed=d), random(3, d, seed=d + 1)
        weight = random(d, seed=d + 2)
        normed, total = fused_add_rms_norm(x, residual, weight, 1e-5)
        fuse(part, x, residual, weight, 1e-5)
        expect_near(residual, total, F32, f"the sum of 3 rows of {d}")
        expect_near(x, normed, F32, f"the norm of the sum of 3 rows of {d}")


@task("14.3")
def test_fused_rows_apart(part: ModuleType) -> None:
    """Rows of x and of residual lie at their own strides, and nothing between them is touched."""
    x = spread(random(3, 16), 16, 8)
    residual = spread(random(3, 16, seed=1), 0, 16)
    weight = random(16, seed=2)
    normed, total = fused_add_rms_norm(x, residual, weight, 1e-5)
    why = "x and residual are two tensors with a stride each."
    with blamed("out_of_bounds", why):
        fuse(part, x, residual, weight, 1e-5)
    expect_near(residual, total, F32, "the sum of rows that lie apart", why=why)
    expect_near(x, normed, F32, "the norm of rows that lie apart", why=why)


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
    kernels, weight = kernels_of(part), random(512, seed=2, dtype=BF16)
    x, residual = (random(6, 512, seed=i, dtype=BF16) for i in (0, 1))
    work = work_of(lambda: kernels.fused_add_rms_norm(x, residual, weight, 1e-5))
    what = "the fused norm of 6 rows of 1,024 bytes"
    expect_equal(
        work.launches, 1, f"launches for {what}", why="Two launches would read the sum again."
    )
    expect_read_once(work, 2 * 6 * 512 * 2, 6 * 512 * 2, what)
    expect_wide(work, 2 * 6 * 512 * 2, what)
