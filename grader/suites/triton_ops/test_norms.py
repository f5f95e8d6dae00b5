"""Task 9.1: a norm in one pass over memory."""

from types import ModuleType

import torch
from hypothesis import given as drawn
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_close, kernels, task
from grader.kit.far import FAR_WHY, far
from grader.kit.kernels import expect_near, padded, random
from grader.kit.layout import Reading
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
    expect_mostly,
    expect_one_launch,
    expect_rows_written,
    expect_work,
    goes_by_longest_row,
    reads_of,
    run,
    strides_told,
)
from solutions.transformer_ops import TransformerOps

SHAPES = st.lists(st.integers(1, 4), max_size=2)
DTYPES = st.sampled_from([F32, F16])


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
def test_every_tile_of_rows_is_normed(part: ModuleType) -> None:
    """27 rows of 300, of which no tile holds all: several programs, and a last tile that is not full."""
    x, weight = random(27, 300), random(300, seed=1)
    got, seen = run(part, "rms_norm", x, weight, 1e-5, record=True)
    right, what = kernels.rms_norm(x, weight, 1e-5), "rms_norm of 27 rows of 300"
    expect_rows_written(seen, got, what, EVERY)
    expect_near(got, right, F32, what, why=EVERY)


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
    x, weight = padded(random(3, 2, 300)), random(300, seed=1)
    got, seen = run(part, "rms_norm", x, weight, 1e-5)
    why = (
        "The kernel has nothing to do but move bytes: whoever reads a row twice takes half as long "
        "again. A tile that holds the whole row keeps it in registers between its two uses."
    )
    expect_one_launch(seen, "rms_norm", why)
    expect_work(seen.loads(x), x.numel(), "numbers read of x", why)
    expect_work(seen.stores(got), x.numel(), "numbers written", why)
    if goes_by_longest_row(part):
        x, weight = random(1, 16_384), torch.ones(16_384)
        _, seen = run(part, "rms_norm", x, weight, 1e-5)
        expect_work(seen.loads(x), x.numel(), "numbers read of a row of 16,384", LONGEST)


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
    before = x.clone()
    got, seen = run(part, "rms_norm", x, weight, 1e-5, record=True)
    expect_near(got, kernels.rms_norm(x, weight, 1e-5), F32, "rms_norm of 40,000 numbers", why=TAIL)
    expect_work(
        reads_of(seen, x).lanes, 16_384, "numbers in the widest tile of a row of 40,000", LONG
    )
    stays = "With ADD the long kernel writes to `residual`, which here is x: rms_norm adds nothing."
    expect_close(x, before, "x afterwards", rtol=0, atol=0, why=stays)


@task("9.1")
def test_long_heads_are_normed_where_they_lie(part: ModuleType) -> None:
    """Rows of 17,000 numbers, heads of tokens with gaps, take tiles of at most 16,384 as well."""
    x, weight = padded(random(3, 2, 17_000)), random(17_000, seed=1)
    reading = Reading(lambda x: kernels.rms_norm(x, weight, 1e-3), {"x": x})
    got, seen = run(part, "rms_norm", x, weight, 1e-3, record=True)
    why = (
        f"{strides_told(x=x)}. Each head of each token is a row, which two strides lead to. The result "
        "has no gaps: its rows are 17,000 numbers apart."
    )
    what = "the norm of 2 heads of 3 tokens, 17,000 numbers each"
    expect_near(got, reading.compute(x), F32, what, why=why, reading=reading)
    lanes = reads_of(seen, x).lanes
    expect_work(lanes, 16_384, "numbers in the widest tile of rows of 17,000", LONG)


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
    x = padded(x, seed % 3) if seed % 4 else x
    before = x.clone()
    got, _ = run(part, "rms_norm", x, weight, 1e-5)
    expect(torch.equal(x, before), "x has changed", why="The result is a tensor of its own.")
    expect_near(got, kernels.rms_norm(x, weight, 1e-5), dtype, f"rms_norm in {dtype}", why=WIDE)
