"""Task 9.2: the addition and the norm after it, in one pass over memory."""

from types import ModuleType
from typing import Any

import torch
from hypothesis import given as drawn
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_close, expect_equal, kernels, task
from grader.kit.far import FAR_WHY, far
from grader.kit.kernels import expect_gaps_kept, expect_near, padded_apart, random
from grader.kit.layout import Reading
from grader.kit.triton_watch import Seen
from grader.suites.triton_ops.launches import (
    EVERY,
    F16,
    F32,
    LONG,
    LONGEST,
    ROUNDING,
    SHORT,
    STRIDES,
    TAIL,
    WIDE,
    expect_explained,
    expect_mostly,
    expect_one_launch,
    expect_work,
    given,
    goes_by_longest_row,
    reads_of,
    run,
    strides_told,
)
from solutions.transformer_ops import TransformerOps

SHAPES = st.lists(st.integers(1, 4), max_size=2)
DTYPES = st.sampled_from([F32, F16])
BACK = "x and residual come back, in that order, however long their rows: the engine goes on with them."


@task("9.2")
def test_fused_writes_the_norm_and_the_sum(part: ModuleType) -> None:
    """The norm goes over x and the sum over residual, and both are given back."""
    x, residual = torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 4.0]])
    with given(part, "normalise"):
        got, _ = run(part, "fused_add_rms_norm", x, residual, torch.tensor([10.0, 1.0]), 0.0)
    why = "The sum (1, 7) goes on as the next residual, as it is; its norm (0.2, 1.4) is weighted."
    expect_near(x, torch.tensor([[2.0, 1.4]]), F32, "x afterwards", why=why)
    expect_near(residual, torch.tensor([[1.0, 7.0]]), F32, "residual afterwards", why=why)
    expect_given_back(got, x, residual)


@task("9.2")
def test_the_norm_is_of_the_rounded_sum(part: ModuleType) -> None:
    """In float16 the sum is rounded first, and its norm is that of what is stored."""
    x, residual = random(4, 200, dtype=F16) / 64, random(4, 200, seed=1, dtype=F16) * 8
    weight = random(200, seed=2, dtype=F16)
    right, total = TransformerOps().fused_add_rms_norm(x.clone(), residual.clone(), weight, 1e-5)
    with given(part, "normalise"):
        run(part, "fused_add_rms_norm", x, residual, weight, 1e-5)
    expect_close(residual, total, "the sum, beside that of lab 2", rtol=0, atol=0)
    why = (
        f"The next layer reads the rounded sum; whoever norms another one drifts apart. {ROUNDING}"
    )
    expect_mostly(x, right, "the norm in float16 are those of lab 2", why)


@task("9.2")
def test_the_sum_has_the_dtype_of_residual(part: ModuleType) -> None:
    """A residual may be kept in float32 beside an x of float16: the sum is rounded to its dtype."""
    for narrow, wide in ((F16, F32), (F32, F16)):
        x, residual = random(3, 40, dtype=narrow) / 7, random(3, 40, seed=1, dtype=wide) / 7
        weight = random(40, seed=2, dtype=narrow)
        normed, total = kernels.fused_add_rms_norm(x, residual, weight, 1e-3)
        with given(part, "normalise"):
            run(part, "fused_add_rms_norm", x, residual, weight, 1e-3)
        why = (
            f"x is {narrow} here, and residual {wide}: the sum is rounded to the dtype of residual, and "
            "its norm to that of x."
        )
        expect_near(residual, total, wide, f"the sum in {wide}", why=why)
        expect_near(x, normed, narrow, f"the norm in {narrow}", why=why)


@task("9.2")
def test_rows_with_gaps(part: ModuleType) -> None:
    """Rows of x and of residual are differently far apart, and what lies between them stays."""
    expect_added_and_normed(
        part, random(5, seed=2), *padded_apart(random(3, 5), random(3, 5, seed=1))
    )


@task("9.2")
def test_every_tile_of_rows_is_added(part: ModuleType) -> None:
    """27 rows of 300, of which no tile holds all: several programs, and a last tile that is not full."""
    x, residual, weight = random(27, 300), random(27, 300, seed=1), random(300, seed=2)
    normed, total = kernels.fused_add_rms_norm(x, residual, weight, 1e-5)
    with given(part, "normalise"):
        run(part, "fused_add_rms_norm", x, residual, weight, 1e-5)
    expect_near(residual, total, F32, "the sum of 27 rows of 300", why=EVERY)
    expect_near(x, normed, F32, "the norm of 27 rows of 300", why=EVERY)


@task("9.2")
def test_long_rows_with_gaps(part: ModuleType) -> None:
    """Rows of 20,000 numbers, which no register holds, are differently far apart as well."""
    x, residual = padded_apart(random(2, 20_000), random(2, 20_000, seed=1))
    seen = expect_added_and_normed(part, random(20_000, seed=2), x, residual)
    expect_work(
        reads_of(seen, x).lanes, 16_384, "numbers in the widest tile of rows of 20,000", LONG
    )


@task("9.2")
def test_long_rows_of_every_leading_dimension(part: ModuleType) -> None:
    """x and residual [2, 2, 17000] have four rows, which no register holds."""
    x, residual = random(2, 2, 17_000), random(2, 2, 17_000, seed=1)
    expect_added_and_normed(part, random(17_000, seed=2), x, residual)


def expect_added_and_normed(part: ModuleType, weight: Tensor, x: Tensor, residual: Tensor) -> Seen:
    """The sum and its norm are right, and in the gaps of x and residual is what was there."""
    inputs = {"x": x, "residual": residual}
    readings = [
        Reading(
            lambda i=i, **on: kernels.fused_add_rms_norm(**on, weight=weight, eps=1e-3)[i], inputs
        )
        for i in (0, 1)
    ]
    right = [reading.compute(**inputs) for reading in readings]
    with given(part, "normalise"):
        got, seen = run(part, "fused_add_rms_norm", x, residual, weight, 1e-3, record=True)
    expect_given_back(got, x, residual)
    why = f"{strides_told(**inputs)}. {STRIDES} {TAIL}"
    size = len(weight)
    for name, tensor in inputs.items():
        expect_gaps_kept(name, tensor, why=why)
    expect_explained(
        lambda: expect_near(
            x, right[0], F32, f"the norm of rows of {size}", why=why, reading=readings[0]
        ),
        lambda: expect_near(
            residual, right[1], F32, f"the sum of rows of {size}", why=why, reading=readings[1]
        ),
    )
    return seen


def expect_given_back(got: Any, x: Tensor, residual: Tensor) -> None:
    expect(isinstance(got, tuple), f"fused_add_rms_norm gives {got} and no pair", why=BACK)
    pointers = [tensor.data_ptr() for tensor in got]
    expect_equal(
        pointers, [x.data_ptr(), residual.data_ptr()], "the memory of the results", why=BACK
    )


@task("9.2")
def test_rows_of_both_may_be_far_apart(part: ModuleType) -> None:
    """The offset of a row may be more than int32 holds, in x and in residual."""
    weight = random(5, seed=2, dtype=F16)
    with far() as apart:
        x, residual = (apart(random(3, 5, seed=seed, dtype=F16)) for seed in (0, 1))
        normed, total = kernels.fused_add_rms_norm(x, residual, weight, 1e-5)
        with given(part, "normalise"):
            run(part, "fused_add_rms_norm", x, residual, weight, 1e-5)
        expect_near(residual, total, F16, "the sum of rows that are far apart", why=FAR_WHY)
        expect_near(x, normed, F16, "the norm of rows that are far apart", why=FAR_WHY)


@task("9.2")
def test_fused_reads_and_writes_once(part: ModuleType) -> None:
    """One launch reads x and residual once and writes each once; short rows share a program."""
    x, residual = padded_apart(random(5, 300), random(5, 300, seed=1))
    weight = random(300, seed=2)
    with given(part, "normalise"):
        _, seen = run(part, "fused_add_rms_norm", x, residual, weight, 1e-5)
    why = "That is what fusing is for: the sum goes to its norm in registers, not through memory."
    expect_one_launch(seen, "fused_add_rms_norm", why)
    for name, tensor in (("x", x), ("residual", residual)):
        expect_work(seen.loads(tensor), tensor.numel(), f"numbers read of {name}", why)
        expect_work(seen.stores(tensor), tensor.numel(), f"numbers written to {name}", why)
    with given(part, "normalise"):
        rows = (random(64, 16), random(64, 16, seed=1), random(16, seed=2))
        _, seen = run(part, "fused_add_rms_norm", *rows, 1e-5)
    expect_work(seen.programs, 16, "programs for 64 rows of 16 numbers", SHORT)
    if goes_by_longest_row(part):
        x, residual, weight = random(1, 16_384), random(1, 16_384, seed=1), torch.ones(16_384)
        with given(part, "normalise"):
            _, seen = run(part, "fused_add_rms_norm", x, residual, weight, 1e-5)
        expect_work(seen.loads(residual), 16_384, "numbers read of a residual of 16,384", LONGEST)


@task("9.2")
@examples(10)
@drawn(SHAPES, st.integers(1, 70), DTYPES, st.integers(0, 99))
def test_any_fused_add_rms_norm(
    part: ModuleType, lead: list[int], d: int, dtype: torch.dtype, seed: int
) -> None:
    """For any shape and dtype the results are the sum and its norm."""
    x, residual = (random(*lead, d, seed=seed + i, dtype=dtype) for i in (0, 1))
    if len(lead) == 1:  # rows of more dimensions must be one view of [rows, d]
        x, residual = padded_apart(x, residual)
    weight = random(d, seed=seed + 2, dtype=dtype)
    normed, total = kernels.fused_add_rms_norm(x, residual, weight, 1e-3)
    kept = weight.clone()
    with given(part, "normalise"):
        run(part, "fused_add_rms_norm", x, residual, weight, 1e-3)
    expect_near(residual, total, dtype, f"the sum in {dtype}", why=WIDE)
    expect_near(x, normed, dtype, f"the norm in {dtype}", why=WIDE)
    expect(torch.equal(weight, kept), "the weight has changed", why="It is the model's.")
