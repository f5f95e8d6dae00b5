"""Tasks 2.1, 2.2 and 2.4: what is done to each vector by itself."""

from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_close, expect_equal, task
from grader.kit.layout import Reading, expect_gaps_kept, padded, padded_apart
from grader.suites.transformer_ops.exact import (
    STRIDES,
    WIDE,
    exact_norm,
    exact_silu_mul,
    expect_near,
    expect_pair,
    expect_unchanged,
    ops_of,
    random,
    sliced,
    with_reference_norm,
)

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
SHAPES = st.lists(st.integers(1, 3), max_size=2)
DTYPES = st.sampled_from([F32, F16, BF16])


@task("2.1")
def test_rms_norm_divides_by_the_root_mean_square(part: ModuleType) -> None:
    """A vector is divided by the root of the mean of its squares."""
    got = ops_of(part).rms_norm(torch.tensor([[1.0, 7.0]]), torch.ones(2), 0.0)
    why = (
        "The squares 1 and 49 have the mean 25: divide by 5. Nothing is subtracted first (that is "
        "LayerNorm), and it is the mean of the squares, not their sum."
    )
    expect_near(got, torch.tensor([[0.2, 1.4]]), F32, "rms_norm of (1, 7)", why=why)


@task("2.1")
def test_rms_norm_multiplies_by_the_weight(part: ModuleType) -> None:
    """Each dimension is multiplied by its weight after the division."""
    got = ops_of(part).rms_norm(torch.tensor([[1.0, 7.0]]), torch.tensor([10.0, -1.0]), 0.0)
    what = "rms_norm of (1, 7) with weights (10, -1)"
    expect_near(got, torch.tensor([[2.0, -1.4]]), F32, what, why="The weight comes last, once.")


@task("2.1")
def test_eps_stands_under_the_root(part: ModuleType) -> None:
    """eps is added to the mean of the squares, before the root."""
    ops, ones = ops_of(part), torch.ones(2)
    got = ops.rms_norm(torch.full((1, 2), 1e-3), ones, 3e-6)
    why = "1e-3 / sqrt(1e-6 + 3e-6) is 0.5. With eps outside the root it would be nearly 1."
    expect_near(
        got, torch.full((1, 2), 0.5), F32, "rms_norm of (0.001, 0.001) at eps 3e-6", why=why
    )
    got = ops.rms_norm(torch.zeros(1, 2), ones, 1e-6)
    why = "eps keeps a vector of zeros from a division by zero."
    expect_near(got, torch.zeros(1, 2), F32, "rms_norm of (0, 0)", why=why)


@task("2.1")
def test_rms_norm_is_over_the_last_dimension(part: ModuleType) -> None:
    """Every vector along the last dimension is normalised by itself, whatever comes before it."""
    x, weight = torch.tensor([[[1.0, 7.0]], [[10.0, 70.0]]]), torch.ones(2)
    got = ops_of(part).rms_norm(x, weight, 0.0)
    why = "A mean over more than the last dimension mixes tokens (and heads, where q and k are normed)."
    what = "rms_norm of (1, 7) and (10, 70), shape [2, 1, 2]"
    expect_near(got, torch.tensor([[[0.2, 1.4]], [[0.2, 1.4]]]), F32, what, why=why)


@task("2.1")
def test_rms_norm_squares_in_float32(part: ModuleType) -> None:
    """In float16, values are squared in float32, where they neither overflow nor vanish."""
    why = f"300 squared is more than float16 holds, and 0.0001 squared less. {WIDE}"
    for value in (300.0, 1e-4):
        x = torch.full((1, 4), value, dtype=F16)
        got = ops_of(part).rms_norm(x, torch.ones(4, dtype=F16), 1e-12)
        expect_near(
            got, torch.ones(1, 4), F16, f"rms_norm of four times {value} in float16", why=why
        )


@task("2.1")
def test_rms_norm_rounds_the_normalised_value(part: ModuleType) -> None:
    """In bfloat16 the normalised value is computed in float32 and rounded once."""
    x = random(16, 64).bfloat16()
    got = ops_of(part).rms_norm(x.clone(), torch.ones(64).bfloat16(), 1e-5)
    exact = exact_norm(x, torch.ones(64), 1e-5)
    expect_near(got, exact, BF16, "rms_norm in bfloat16")
    share = float((got == exact.bfloat16()).double().mean())
    why = f"A root rounded to bfloat16 is off by up to 0.4%, and its whole vector with it. {WIDE}"
    problem = f"only {share:.0%} of the values are the exact ones rounded to bfloat16"
    expect(share > 0.98, problem, why=why)


@task("2.1")
def test_rms_norm_leaves_its_inputs(part: ModuleType) -> None:
    """rms_norm changes neither x nor the weight."""
    x, weight = random(2, 4), random(4, seed=1)
    before = x.clone(), weight.clone()
    ops_of(part).rms_norm(x, weight, 1e-5)
    why = "The layer adds x to the block's output afterwards: the residual must survive the norm."
    expect_close(x, before[0], "x after rms_norm", rtol=0, atol=0, why=why)
    expect_close(weight, before[1], "the weight after rms_norm", rtol=0, atol=0, why=why)


@task("2.1")
def test_rms_norm_of_a_slice(part: ModuleType) -> None:
    """x and the weight may be slices of larger tensors, with gaps in memory."""
    [x], [weight] = sliced(random(2, 3, 4)), sliced(random(4, seed=1))
    reading = Reading(lambda x, weight: exact_norm(x, weight, 1e-5), {"x": x, "weight": weight})
    exact = exact_norm(x, weight, 1e-5)
    got = ops_of(part).rms_norm(x, weight, 1e-5)
    expect_near(got, exact, F32, "rms_norm of a slice", reading=reading)


@task("2.1")
@examples(60)
@given(SHAPES, st.integers(1, 40), DTYPES, st.integers(0, 99))
def test_any_rms_norm(
    part: ModuleType, lead: list[int], d: int, dtype: torch.dtype, seed: int
) -> None:
    """For any shape and dtype rms_norm is its definition in float64, rounded."""
    x, weight = random(*lead, d, seed=seed).to(dtype), random(d, seed=seed + 1).to(dtype)
    got = ops_of(part).rms_norm(x.clone(), weight, 1e-5)
    expect_near(got, exact_norm(x, weight, 1e-5), dtype, f"rms_norm in {dtype}", why=WIDE)


@task("2.2")
def test_fused_gives_the_norm_and_the_sum(part: ModuleType) -> None:
    """fused_add_rms_norm gives the normed sum first and the sum itself second."""
    x, residual = torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 4.0]])
    ops = with_reference_norm(part)
    pair = ops.fused_add_rms_norm(x, residual, torch.tensor([10.0, 1.0]), 0.0)
    normed, total = expect_pair(pair, "fused_add_rms_norm")
    why = (
        "The norm is of the sum (1, 7), which also goes on as the next residual, without any norm."
    )
    expect_near(normed, torch.tensor([[2.0, 1.4]]), F32, "the norm of (1, 3) + (0, 4)", why=why)
    expect_near(total, torch.tensor([[1.0, 7.0]]), F32, "the sum of (1, 3) + (0, 4)", why=why)


@task("2.2")
def test_fused_keeps_the_weight(part: ModuleType) -> None:
    """Inputs may be overwritten, but not the weight, and the two results are two tensors."""
    weight = random(4, seed=3)
    before = weight.clone()
    pair = with_reference_norm(part).fused_add_rms_norm(
        random(2, 4), random(2, 4, seed=1), weight, 1e-5
    )
    normed, total = expect_pair(pair, "fused_add_rms_norm")
    expect_close(weight, before, "the weight afterwards", rtol=0, atol=0, why="It is the model's.")
    total.zero_()
    why = "An addition to the residual in place must not change the normed tensor."
    expect(bool(normed.any()), "the norm and the sum share memory", why=why)


@task("2.2")
def test_fused_on_slices(part: ModuleType) -> None:
    """x and the residual may be slices, each with gaps of its own; what lies in the gaps stays."""
    x, residual = padded_apart(random(2, 3, 4), random(2, 3, 4, seed=1))
    weight = padded(random(4, seed=2), dims=(0,))
    inputs = {"x": x, "residual": residual}
    total = x.double() + residual.double()
    norm = exact_norm(total, weight, 1e-3)
    sums = Reading(lambda x, residual: x.double() + residual.double(), inputs)
    norms = Reading(lambda x, residual: exact_norm(x.double() + residual, weight, 1e-3), inputs)
    pair = with_reference_norm(part).fused_add_rms_norm(x, residual, weight, 1e-3)
    normed, new_residual = expect_pair(pair, "fused_add_rms_norm")
    expect_near(new_residual, total, F32, "the sum of two slices", reading=sums)
    expect_near(normed, norm, F32, "the norm of the sum of two slices", reading=norms)
    for name, view in inputs.items():
        expect_gaps_kept(name, view, why=STRIDES)


@task("2.2")
@examples(60)
@given(SHAPES, st.integers(1, 40), DTYPES, st.integers(0, 99))
def test_any_fused_add_rms_norm(
    part: ModuleType, lead: list[int], d: int, dtype: torch.dtype, seed: int
) -> None:
    """For any shape and dtype the results are the sum and its norm."""
    x, residual = (random(*lead, d, seed=seed + i).to(dtype) for i in (0, 1))
    weight = random(d, seed=seed + 2).to(dtype)
    total = x.double() + residual.double()
    pair = with_reference_norm(part).fused_add_rms_norm(x.clone(), residual.clone(), weight, 1e-3)
    normed, new_residual = expect_pair(pair, "fused_add_rms_norm")
    expect_near(new_residual, total, dtype, f"the sum in {dtype}", why=WIDE)
    expect_near(normed, exact_norm(total, weight, 1e-3), dtype, f"the norm in {dtype}", why=WIDE)


@task("2.4")
def test_the_first_half_is_the_gate(part: ModuleType) -> None:
    """The first half of x goes through SiLU, and the second half multiplies it."""
    got = ops_of(part).silu_mul(torch.tensor([[0.0, 20.0, 3.0, 5.0]]))
    why = "x is [gate | up]: two halves one after the other, gate first, not in turns."
    expect_near(
        got, torch.tensor([[0.0, 100.0]]), F32, "silu_mul of gate (0, 20) and up (3, 5)", why=why
    )


@task("2.4")
def test_silu_is_x_times_its_sigmoid(part: ModuleType) -> None:
    """SiLU is x * sigmoid(x): below zero it dips and comes back, and far out it does not overflow."""
    gate = [1.0, -1.0, -2.0, -1000.0, 1000.0]
    got = ops_of(part).silu_mul(torch.tensor([gate + [1.0] * 5]))
    right = torch.tensor([[0.7310586, -0.2689414, -0.2384058, 0.0, 1000.0]])
    why = "SiLU is neither ReLU nor GELU nor the sigmoid alone: silu(-1) = -1 / (1 + e) = -0.2689."
    expect_near(got, right, F32, f"silu of {gate}", why=why)


@task("2.4")
def test_silu_mul_of_a_slice(part: ModuleType) -> None:
    """x may be a slice of a larger tensor, with gaps in memory."""
    x = padded(random(2, 3, 8))
    before = x.clone()
    exact, reading = exact_silu_mul(x), Reading(exact_silu_mul, {"x": x})
    got = ops_of(part).silu_mul(x)
    expect_near(got, exact, F32, "silu_mul of a slice", reading=reading)
    expect_unchanged(
        "Only fused_add_rms_norm may reuse the memory of what it is given.", x=(x, before)
    )
    expect_gaps_kept("x", x, why=STRIDES)


@task("2.4")
@examples(60)
@given(SHAPES, st.integers(1, 20), DTYPES, st.integers(0, 99))
def test_any_silu_mul(
    part: ModuleType, lead: list[int], d: int, dtype: torch.dtype, seed: int
) -> None:
    """For any shape and dtype silu_mul is its definition in float64, rounded."""
    x = random(*lead, 2 * d, seed=seed).to(dtype)
    got = ops_of(part).silu_mul(x.clone())
    exact = exact_silu_mul(x)
    expect_equal(list(got.shape), list(exact.shape), "the shape of silu_mul")
    expect_near(got, exact, dtype, f"silu_mul in {dtype}", why=WIDE)
