"""Tasks 9.1 and 9.2: a norm in one pass over memory, alone and with the addition before it."""

from types import ModuleType

import torch
from hypothesis import given as drawn
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_close, expect_equal, kernels, task
from grader.kit.far import FAR_WHY, far
from grader.kit.kernels import expect_gaps_kept, expect_near, padded, padded_apart, random
from grader.kit.layout import Reading
from grader.kit.triton_watch import Seen
from grader.suites.triton_ops.launches import (
    F16,
    F32,
    STRIDES,
    TAIL,
    WIDE,
    expect_explained,
    expect_mostly,
    expect_one_launch,
    expect_work,
    given,
    reads_of,
    run,
    strides_told,
)
from solutions.transformer_ops import TransformerOps

SHAPES = st.lists(st.integers(1, 4), max_size=2)
DTYPES = st.sampled_from([F32, F16])
ROUNDING = (
    "The normed value is rounded to the input's dtype before the weight, as in lab 2, or an engine "
    "gives other tokens with one backend than with another."
)

SHORT = (
    "A row of 16 numbers is half a warp's work, and starting a program costs more. A tile [ROWS, "
    "BLOCK], or a loop over rows, gives each program several: `norm_tile` says how many."
)
LONG = (
    "A tile that holds a row of 20,000 numbers or more has 32,768 lanes or more, which no program's "
    "registers hold. Above LONGEST_ROW a loop over the row reads it twice: `long_rms_norm_kernel`."
)


@task("9.1")
def test_rms_norm_divides_by_the_root_mean_square(part: ModuleType) -> None:
    """A vector is divided by the root of the mean of its squares, then multiplied by the weight."""
    why = "The squares 1 and 49 have the mean 25: divide by 5. Not by the root of their sum."
    got, _ = run(part, "rms_norm", torch.tensor([[1.0, 7.0]]), torch.ones(2), 0.0)
    expect_near(got, torch.tensor([[0.2, 1.4]]), F32, "rms_norm of (1, 7)", why=why)
    weight = torch.tensor([10.0, -1.0])
    got, _ = run(part, "rms_norm", torch.tensor([[1.0, 7.0]]), weight, 0.0)
    what = "rms_norm of (1, 7) with weights (10, -1)"
    expect_near(got, torch.tensor([[2.0, -1.4]]), F32, what, why="The weight comes last, once.")


@task("9.1")
def test_eps_stands_under_the_root(part: ModuleType) -> None:
    """eps is added to the mean of the squares, before the root."""
    got, _ = run(part, "rms_norm", torch.full((1, 2), 1e-3), torch.ones(2), 3e-6)
    why = "1e-3 / sqrt(1e-6 + 3e-6) is 0.5. With eps outside the root it would be nearly 1."
    what = "rms_norm of (0.001, 0.001) at eps 3e-6"
    expect_near(got, torch.full((1, 2), 0.5), F32, what, why=why)


@task("9.1")
def test_the_mean_is_over_the_row_alone(part: ModuleType) -> None:
    """In a row of 5 numbers the mean is over 5, whatever the tile's size and the memory behind it."""
    x, weight = padded(random(3, 5)), torch.ones(5)
    got, _ = run(part, "rms_norm", x, weight, 1e-5)
    why = f"{TAIL} And the sum is divided by 5, not by the tile's 8 lanes."
    expect_near(got, kernels.rms_norm(x, weight, 1e-5), F32, "rms_norm of rows of 5", why=why)


@task("9.1")
def test_the_last_rows_are_masked_too(part: ModuleType) -> None:
    """A number of rows that no tile divides: 37 rows of 3."""
    x, weight = random(37, 3), random(3, seed=1)
    got, _ = run(part, "rms_norm", x, weight, 1e-5)
    expect_near(got, kernels.rms_norm(x, weight, 1e-5), F32, "rms_norm of 37 rows", why=TAIL)


@task("9.1")
def test_squares_are_summed_in_float32(part: ModuleType) -> None:
    """In float16, values are squared and summed in float32, where they neither overflow nor vanish."""
    for value in (300.0, 1e-4):
        x = torch.full((1, 4), value, dtype=F16)
        got, _ = run(part, "rms_norm", x, torch.ones(4, dtype=F16), 1e-12)
        why = f"300 squared is more than float16 holds, and 0.0001 squared less. {WIDE}"
        what = f"rms_norm of four times {value} in float16"
        expect_near(got, torch.ones(1, 4), F16, what, why=why)


@task("9.1")
def test_rms_norm_rounds_where_lab_2_does(part: ModuleType) -> None:
    """In float16 the results are those of lab 2."""
    x, weight = random(4, 200, dtype=F16), random(200, seed=1, dtype=F16)
    got, _ = run(part, "rms_norm", x, weight, 1e-5)
    right = TransformerOps().rms_norm(x, weight, 1e-5)
    expect_mostly(got, right, "rms_norm in float16 are those of lab 2", ROUNDING)


@task("9.1")
def test_heads_are_normed_where_they_lie(part: ModuleType) -> None:
    """x may be a view [T, heads, d] of a fused product, with gaps between tokens."""
    qkv, weight = random(3, 6 * 8), random(8, seed=1)
    heads, before = qkv[:, 16:32].view(3, 2, 8), qkv.clone()
    why = f"Two strides lead to a row: from token to token, and from head to head. {STRIDES}"
    for what, x in (
        ("2 heads out of 6 of a product", heads),
        ("2 tokens of 3 heads, with gaps", padded(random(2, 3, 5))),
    ):
        gain = weight[: x.shape[-1]]
        reading = Reading(lambda x, gain=gain: kernels.rms_norm(x, gain, 1e-5), {"x": x})
        got, _ = run(part, "rms_norm", x, gain, 1e-5)
        right, told = reading.compute(x), f"the norm of {what}"
        expect_near(got, right, F32, told, why=why, reading=reading)
    expect_close(qkv, before, "the product that x is a view of", rtol=0, atol=0, why="x stays.")


@task("9.1")
def test_a_row_is_read_once(part: ModuleType) -> None:
    """One launch reads every number once and writes every result once."""
    x, weight = random(6, 300), random(300, seed=1)
    got, seen = run(part, "rms_norm", x, weight, 1e-5)
    why = (
        "The kernel has nothing to do but move bytes: whoever reads a row twice takes half as long "
        "again. A tile that holds the whole row keeps it in registers between its two uses."
    )
    expect_one_launch(seen, "rms_norm", why)
    expect_work(seen.loads(x), x.numel(), "numbers read of x", why)
    expect_work(seen.stores(got), x.numel(), "numbers written", why)


@task("9.1")
def test_short_rows_share_a_program(part: ModuleType) -> None:
    """256 rows of 16 numbers take at most 64 programs: several short rows make one worth its start."""
    x, weight = random(256, 16), random(16, seed=1)
    got, seen = run(part, "rms_norm", x, weight, 1e-5)
    expect_near(got, kernels.rms_norm(x, weight, 1e-5), F32, "rms_norm of 256 rows of 16", why=TAIL)
    expect_work(seen.programs, 64, "programs for 256 rows of 16 numbers", SHORT)


@task("9.1")
def test_a_row_that_no_register_holds(part: ModuleType) -> None:
    """A row of 40,000 numbers, which may be read twice, takes tiles of at most 16,384."""
    x, weight = random(1, 40_000), torch.ones(40_000)
    got, seen = run(part, "rms_norm", x, weight, 1e-5, record=True)
    expect_near(got, kernels.rms_norm(x, weight, 1e-5), F32, "rms_norm of 40,000 numbers", why=TAIL)
    expect_work(
        reads_of(seen, x).lanes, 16_384, "numbers in the widest tile of a row of 40,000", LONG
    )


@task("9.1")
def test_rows_of_a_norm_may_be_far_apart(part: ModuleType) -> None:
    """The offset of a row may be more than int32 holds."""
    weight = random(5, seed=1, dtype=F16)
    with far() as apart:
        x = apart(random(3, 5, dtype=F16))
        got, _ = run(part, "rms_norm", x, weight, 1e-5)
        right = kernels.rms_norm(x, weight, 1e-5)
        expect_near(got, right, F16, "rms_norm of rows that are far apart", why=FAR_WHY)


@task("9.1")
@examples(10)
@drawn(SHAPES, st.integers(1, 70), DTYPES, st.integers(0, 99))
def test_any_rms_norm(
    part: ModuleType, lead: list[int], d: int, dtype: torch.dtype, seed: int
) -> None:
    """For any shape and dtype rms_norm is its definition in float64, rounded."""
    x, weight = random(*lead, d, seed=seed, dtype=dtype), random(d, seed=seed + 1, dtype=dtype)
    x = padded(x, seed % 3)
    got, _ = run(part, "rms_norm", x, weight, 1e-5)
    expect_near(got, kernels.rms_norm(x, weight, 1e-5), dtype, f"rms_norm in {dtype}", why=WIDE)


@task("9.2")
def test_fused_writes_the_norm_and_the_sum(part: ModuleType) -> None:
    """The norm goes over x and the sum over residual, and both are given back."""
    x, residual = torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 4.0]])
    with given(part, "normalise"):
        got, _ = run(part, "fused_add_rms_norm", x, residual, torch.tensor([10.0, 1.0]), 0.0)
    why = "The sum (1, 7) goes on as the next residual, as it is; its norm (0.2, 1.4) is weighted."
    expect_near(x, torch.tensor([[2.0, 1.4]]), F32, "x afterwards", why=why)
    expect_near(residual, torch.tensor([[1.0, 7.0]]), F32, "residual afterwards", why=why)
    pointers = [tensor.data_ptr() for tensor in got]
    expect_equal(pointers, [x.data_ptr(), residual.data_ptr()], "the memory of the results")


@task("9.2")
def test_the_norm_is_of_the_rounded_sum(part: ModuleType) -> None:
    """In float16 the sum is rounded first, and its norm is that of what is stored."""
    x, residual = random(4, 200, dtype=F16) / 64, random(4, 200, seed=1, dtype=F16) * 8
    weight = random(200, seed=2, dtype=F16)
    right, total = TransformerOps().fused_add_rms_norm(x.clone(), residual.clone(), weight, 1e-5)
    with given(part, "normalise"):
        run(part, "fused_add_rms_norm", x, residual, weight, 1e-5)
    expect_equal(residual.tolist() == total.tolist(), True, "whether the sum is that of lab 2")
    why = (
        f"The next layer reads the rounded sum; whoever norms another one drifts apart. {ROUNDING}"
    )
    expect_mostly(x, right, "the norm in float16 are those of lab 2", why)


@task("9.2")
def test_rows_with_gaps(part: ModuleType) -> None:
    """Rows of x and of residual are differently far apart, and what lies between them stays."""
    expect_added_and_normed(
        part, random(5, seed=2), *padded_apart(random(3, 5), random(3, 5, seed=1))
    )


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
            lambda i=i, **on: kernels.fused_add_rms_norm(**on, weight=weight, eps=1e-5)[i], inputs
        )
        for i in (0, 1)
    ]
    right = [reading.compute(**inputs) for reading in readings]
    with given(part, "normalise"):
        _, seen = run(part, "fused_add_rms_norm", x, residual, weight, 1e-5, record=True)
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
    x, residual, weight = random(5, 300), random(5, 300, seed=1), random(300, seed=2)
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
