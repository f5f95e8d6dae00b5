"""Tasks 2.1, 2.2 and 2.4: what is done to each vector by itself."""

from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_close, expect_equal, task
from grader.kit.layout import Reading, expect_gaps_kept, padded, padded_apart
from grader.kit.mistakes import told_by
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
from grader.suites.transformer_ops.rounded import expect_rounded_once, rounded_norms

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
SHAPES = st.lists(st.integers(1, 3), max_size=2)
DTYPES = st.sampled_from([F32, F16, BF16])


def expect_norm(
    got: Any, x: Tensor, weight: Tensor, eps: float, what: str, *, why: str = ""
) -> None:
    """The RMSNorm of x. why: said where no mistake is known that gives this."""
    wide, scale = x.double(), weight.double()
    square = wide.square().mean(dim=-1, keepdim=True)
    apart = wide - wide.mean(dim=-1, keepdim=True)
    spread = (apart.square().mean(dim=-1, keepdim=True) + eps).sqrt()
    right = exact_norm(x, weight, eps)

    def gives() -> dict[str, Tensor]:
        return {
            "The mean was subtracted first, as in LayerNorm: RMSNorm subtracts nothing.":
            apart / spread * scale,
            "The mean was subtracted from the values, though not before they were squared: RMSNorm "
            "subtracts nothing.": apart / (square + eps).sqrt() * scale,
            "This is divided by the root of the sum of the squares: it is the mean of the squares, not "
            "their sum.": wide / (square * x.shape[-1] + eps).sqrt() * scale,
            "This is divided by the mean of the squares: take its root.": wide / (square + eps) * scale,
            "eps outside the root gives this: add it to the mean of the squares first.":
            wide / (square.sqrt() + eps) * scale,
            "eps was left out here.": wide / square.sqrt() * scale,
            "The weight was left out here.": right / scale,
            "The weight was applied twice here: it comes last, once.": right * scale,
            "1 + weight was applied here: it is the weight itself.": right / scale * (1 + scale),
            "A mean over more than the last dimension mixes tokens (and heads, where q and k are "
            "normed).":
            wide / (wide.square().mean() + eps).sqrt() * scale,
        }  # fmt: skip

    inputs = Reading(lambda x, weight: exact_norm(x, weight, eps), {"x": x, "weight": weight})
    expect_near(got, right, x.dtype, what, why=why, inputs=inputs, gives=gives)


@task("2.1")
def test_rms_norm_divides_by_the_root_mean_square(part: ModuleType) -> None:
    """A vector is divided by the root of the mean of its squares."""
    x = torch.tensor([[1.0, 7.0]])
    got = ops_of(part).rms_norm(x.clone(), torch.ones(2), 0.0)
    why = "The squares 1 and 49 have the mean 25: divide by 5."
    expect_norm(got, x, torch.ones(2), 0.0, "rms_norm of (1, 7)", why=why)


@task("2.1")
def test_rms_norm_multiplies_by_the_weight(part: ModuleType) -> None:
    """Each dimension is multiplied by its weight after the division."""
    x, weight = torch.tensor([[1.0, 7.0]]), torch.tensor([10.0, -1.0])
    got = ops_of(part).rms_norm(x.clone(), weight.clone(), 0.0)
    expect_norm(got, x, weight, 0.0, "rms_norm of (1, 7) with weights (10, -1)")


@task("2.1")
def test_eps_stands_under_the_root(part: ModuleType) -> None:
    """eps is added to the mean of the squares, before the root."""
    ops, ones, x = ops_of(part), torch.ones(2), torch.full((1, 2), 1e-3)
    got = ops.rms_norm(x.clone(), ones, 3e-6)
    why = "1e-3 / sqrt(1e-6 + 3e-6) is 0.5."
    expect_norm(got, x, ones, 3e-6, "rms_norm of (0.001, 0.001) at eps 3e-6", why=why)
    got = ops.rms_norm(torch.zeros(1, 2), ones, 1e-6)
    why = "eps keeps a vector of zeros from a division by zero."
    expect_near(got, torch.zeros(1, 2), F32, "rms_norm of (0, 0)", why=why)


@task("2.1")
def test_rms_norm_is_over_the_last_dimension(part: ModuleType) -> None:
    """Every vector along the last dimension is normalised by itself, whatever comes before it."""
    x, weight = torch.tensor([[[1.0, 7.0]], [[10.0, 70.0]]]), torch.ones(2)
    got = ops_of(part).rms_norm(x.clone(), weight, 0.0)
    expect_norm(got, x, weight, 0.0, "rms_norm of (1, 7) and (10, 70), shape [2, 1, 2]")


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
    why = f"A root rounded to bfloat16 is off by up to 0.4%, and its whole vector with it. {WIDE}"
    gives = rounded_norms(x, torch.ones(64).bfloat16(), 1e-5)
    expect_rounded_once(got, exact, "rms_norm", why, gives)


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
    expect_norm(got, x, weight, 1e-5, f"rms_norm in {dtype}")


@task("2.2")
def test_fused_gives_the_norm_and_the_sum(part: ModuleType) -> None:
    """fused_add_rms_norm gives the normed sum first and the sum itself second."""
    x, residual = torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 4.0]])
    ops = with_reference_norm(part)
    pair = ops.fused_add_rms_norm(x, residual, torch.tensor([10.0, 1.0]), 0.0)
    normed, total = expect_pair(pair, "fused_add_rms_norm")
    norm, whole = torch.tensor([[2.0, 1.4]]), torch.tensor([[1.0, 7.0]])
    of_x, weight = torch.tensor([[1.0, 3.0]]), torch.tensor([10.0, 1.0])
    why = told_by(
        normed,
        {
            "The sum came first and the norm second: it is the other way round.": whole,
            "The norm here is that of x: the norm is of the sum (1, 7).": exact_norm(
                of_x, weight, 0.0
            ),
            "The norm here is that of the residual: the norm is of the sum (1, 7).": exact_norm(
                torch.tensor([[0.0, 4.0]]), weight, 0.0
            ),
        },
    )
    expect_near(normed, norm, F32, "the first result, the norm of (1, 3) + (0, 4)", why=why)
    goes_on = "The sum goes on as the next residual"
    why = told_by(
        total,
        {
            f"{goes_on}, without any norm: here it is normed as well.": norm,
            f"{goes_on}: here x alone does.": of_x,
            f"{goes_on}: here the residual stayed as it was.": torch.tensor([[0.0, 4.0]]),
        },
    )
    expect_near(total, whole, F32, "the second result, the sum of (1, 3) + (0, 4)", why=why)


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
    expect_near(new_residual, total, dtype, f"the sum in {dtype}")
    expect_near(normed, exact_norm(total, weight, 1e-3), dtype, f"the norm in {dtype}")


def expect_gated(got: Any, x: Tensor, what: str, why: str = "") -> None:
    """silu(gate) * up of x = [gate | up]. why: said where no mistake is known that gives this."""
    wide = x.double()
    gate, up = wide.chunk(2, dim=-1)

    def gives() -> dict[str, Tensor]:
        silu = torch.nn.functional.silu
        return {
            "The second half was taken for the gate: x is [gate | up], gate first.": silu(up) * gate,
            "Gate and up were taken in turns: x is [gate | up], two halves one after the other, not in "
            "turns.": silu(wide[..., ::2]) * wide[..., 1::2],
            "This is GELU: SiLU is x * sigmoid(x).": torch.nn.functional.gelu(gate) * up,
            "This is GELU, by tanh: SiLU is x * sigmoid(x).":
            torch.nn.functional.gelu(gate, approximate="tanh") * up,
            "This is ReLU: SiLU is x * sigmoid(x).": gate.relu() * up,
            "This is the sigmoid alone: SiLU is x * sigmoid(x).": gate.sigmoid() * up,
            "up was left out here.": silu(gate),
            "The gate went through nothing: SiLU is x * sigmoid(x).": gate * up,
        }  # fmt: skip

    inputs = Reading(exact_silu_mul, {"x": x})
    expect_near(got, exact_silu_mul(x), x.dtype, what, why=why, inputs=inputs, gives=gives)


@task("2.4")
def test_the_first_half_is_the_gate(part: ModuleType) -> None:
    """The first half of x goes through SiLU, and the second half multiplies it."""
    x = torch.tensor([[0.0, 20.0, 3.0, 5.0]])
    got = ops_of(part).silu_mul(x.clone())
    expect_gated(got, x, "silu_mul of gate (0, 20) and up (3, 5)")


@task("2.4")
def test_silu_is_x_times_its_sigmoid(part: ModuleType) -> None:
    """SiLU is x * sigmoid(x): below zero it dips and comes back, and far out it does not overflow."""
    gate = [1.0, -1.0, -2.0, -1000.0, 1000.0]
    x = torch.tensor([gate + [1.0] * 5])
    got = ops_of(part).silu_mul(x.clone())
    why = "silu(-1) = -1 / (1 + e) = -0.2689."
    if isinstance(got, Tensor) and not bool(got.isfinite().all()):
        why = "An exponential overflows: e^1000 is infinite in float32, and inf / inf is NaN."
    expect_gated(got, x, f"silu of {gate}", why=why)


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
    expect_gated(got, x, f"silu_mul in {dtype}")
