"""Task 9.3: SiLU and multiply."""

from types import ModuleType

import torch
from hypothesis import given as drawn
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, kernels, task
from grader.kit.far import FAR_WHY, far
from grader.kit.kernels import expect_gaps_kept, expect_near, padded, random
from grader.kit.layout import Reading
from grader.suites.triton_ops.launches import (
    F16,
    F32,
    STRIDES,
    TAIL,
    WIDE,
    WORTH,
    expect_mostly,
    expect_one_launch,
    expect_work,
    reads_of,
    run,
    strides_told,
)
from solutions.transformer_ops import TransformerOps

DENSE = "Rows of the result follow one another without a gap, whatever gaps x has."


@task("9.3")
def test_the_first_half_is_the_gate(part: ModuleType) -> None:
    """The first half of x goes through SiLU, and the second half multiplies it."""
    got, _ = run(part, "silu_mul", torch.tensor([[0.0, 20.0, 3.0, 5.0]]))
    why = "x is [gate | up]: two halves one after the other, gate first, not in turns."
    what = "silu_mul of gate (0, 20) and up (3, 5)"
    expect_near(got, torch.tensor([[0.0, 100.0]]), F32, what, why=why)


@task("9.3")
def test_silu_is_x_times_its_sigmoid(part: ModuleType) -> None:
    """SiLU is x * sigmoid(x): below zero it dips and comes back, and far out it does not overflow."""
    gate = [1.0, -1.0, -2.0, -1000.0, 1000.0]
    got, _ = run(part, "silu_mul", torch.tensor([gate + [1.0] * 5]))
    right = torch.tensor([[0.7310586, -0.2689414, -0.2384058, 0.0, 1000.0]])
    why = "exp(1000) is infinite, and infinite / infinite is NaN: divide g by 1 + exp(-g)."
    expect_near(got, right, F32, f"silu of {gate}", why=why)


@task("9.3")
def test_the_tail_of_a_half(part: ModuleType) -> None:
    """Halves of 5, in rows with memory between them: the tile's last lanes lie in other numbers."""
    x = padded(random(3, 10))
    got, _ = run(part, "silu_mul", x)
    expect_equal(list(got.shape), [3, 5], "the shape of silu_mul")
    why, reading = f"{TAIL} {strides_told(x=x)}. {STRIDES}", Reading(kernels.silu_mul, {"x": x})
    right = kernels.silu_mul(x)
    expect_near(got, right, F32, "silu_mul of halves of 5", why=why, reading=reading)
    expect_gaps_kept("x", x, why=why)


@task("9.3")
def test_every_leading_dimension_makes_rows(part: ModuleType) -> None:
    """x [2, 3, 10] has six rows, and its first stride is that of three of them."""
    x = random(2, 3, 10)
    got, _ = run(part, "silu_mul", x)
    why = f"Rows are numbered through all leading dimensions: seen as [6, 10] here. {STRIDES}"
    expect_equal(list(got.shape), [2, 3, 5], "the shape of silu_mul of x [2, 3, 10]", why=why)
    expect_near(got, kernels.silu_mul(x), F32, "silu_mul of x [2, 3, 10]", why=why)


@task("9.3")
def test_a_wide_row_is_cut_into_tiles(part: ModuleType) -> None:
    """A half of 3,000 numbers takes several programs; those that start together read neighbours."""
    x = random(2, 6000)
    got, seen = run(part, "silu_mul", x, record=True)
    why, exact = TAIL, kernels.silu_mul(x)
    wrong = torch.zeros(2, 3000, dtype=torch.bool)
    if got.shape == exact.shape:
        wrong = ~torch.isclose(got.double(), exact.double(), rtol=1e-4, atol=1e-4)
    first = 3000 - int(wrong.all(dim=0).sum())
    if 0 < first < 3000 and bool(wrong[:, first:].all()) and not bool(wrong[:, :first].any()):
        why = (
            f"Columns 0 to {first - 1} of both rows are right, and all others are wrong. The programs "
            "of a row must cover it together, each with the tile that its number says."
        )
    expect_near(got, exact, F32, "silu_mul of halves of 3,000", why=why)
    expect_work(seen.programs, 2 * 24, "programs for two halves of 3,000 numbers", WORTH)
    why = (
        "Program p starts beside p + 1: number them along the rows, all tiles of row 0 before those of "
        "row 1. Down the columns, programs that run together read from as many distant rows. (Of a grid "
        "with two numbers, the first counts fastest.)"
    )
    starts = reads_of(seen, x).begins
    what = "where in x programs 0, 1, 2, ... begin to read"
    expect_equal(starts, sorted(starts), what, why=why)


@task("9.3")
def test_rows_of_a_gate_may_be_far_apart(part: ModuleType) -> None:
    """The offset of a row may be more than int32 holds."""
    with far() as apart:
        x = apart(random(3, 10, dtype=F16))
        got, _ = run(part, "silu_mul", x)
        what = "silu_mul of rows that are far apart"
        expect_near(got, kernels.silu_mul(x), F16, what, why=FAR_WHY)


@task("9.3")
def test_silu_mul_rounds_where_lab_2_does(part: ModuleType) -> None:
    """In float16 the results are those of lab 2."""
    x = random(4, 400, dtype=F16)
    got, _ = run(part, "silu_mul", x)
    why = f"Lab 2 rounds silu(gate) to the input's dtype before it multiplies. {WIDE}"
    expect_mostly(got, TransformerOps().silu_mul(x), "silu_mul in float16 are those of lab 2", why)


@task("9.3")
def test_nothing_is_read_twice(part: ModuleType) -> None:
    """One launch reads each number once and writes each result once."""
    x = padded(random(3, 600))
    got, seen = run(part, "silu_mul", x)
    why = (
        "An activation that goes through memory on its way to the product costs half as much again."
    )
    expect_one_launch(seen, "silu_mul", why)
    expect_work(seen.loads(x), x.numel(), "numbers read of x", why)
    expect_work(seen.stores(got), got.numel(), "numbers written", why)


@task("9.3")
@examples(10)
@drawn(
    st.lists(st.integers(1, 3), max_size=2),
    st.integers(1, 40),
    st.sampled_from([F32, F16]),
    st.integers(0, 99),
)
def test_any_silu_mul(
    part: ModuleType, lead: list[int], d: int, dtype: torch.dtype, seed: int
) -> None:
    """For any shape and dtype silu_mul is its definition in float64, rounded."""
    x = random(*lead, 2 * d, seed=seed, dtype=dtype)
    if len(lead) == 1:  # of more dimensions, rows must be one view of [rows, 2 * d]
        x = padded(x)
    before = x.clone()
    got, _ = run(part, "silu_mul", x)
    expect(torch.equal(x, before), "x has changed", why="The result is a tensor of its own.")
    expect(got.is_contiguous(), f"the result's strides are {list(got.stride())}", why=DENSE)
    expect_near(got, kernels.silu_mul(x), dtype, f"silu_mul in {dtype}", why=WIDE)
