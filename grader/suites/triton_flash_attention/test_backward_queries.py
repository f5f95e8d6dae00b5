"""Task 10.6: the gradient of the queries, from the oracle's out and lse."""

from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, task
from grader.suites.triton_flash_attention.checks import (
    EMPTY,
    expect_causal_gradients,
    expect_exact_scores,
    expect_exact_terms,
    expect_far,
    expect_gradients,
    expect_masked_gradients,
    expect_whole_tiles,
    expect_work,
    explained,
    one_key,
)
from grader.suites.triton_flash_attention.problems import (
    BF16,
    F16,
    F32,
    Problem,
    backward,
    problem,
    problems,
)
from grader.suites.triton_flash_attention.programs import expect_programs, expect_tensor_cores


@task("10.6")
def test_dq_of_one_query(part: ModuleType) -> None:
    """dQ = dS K * scale with dS = P * (dP - delta)."""
    explained(part, "10.6")
    why = "P = exp(score * scale - lse); dP = dO V^T; delta is the row's sum of dO * O."
    expect_gradients(part, one_key(), "10.6", "one query over two keys", why)
    expect_gradients(part, one_key(0.25), "10.6", "one query over two keys, scale 0.25", why)


@task("10.6")
def test_every_tile_has_a_program(part: ModuleType) -> None:
    """Each query tile has a program, and each program a query tile."""
    expect_programs(part, "10.6")


@task("10.6")
def test_every_key_adds_to_dq(part: ModuleType) -> None:
    """20 queries over 150 keys: dq sums over all key tiles, the last one cut off."""
    why = (
        "A program holds a query tile, with the lse and the delta of these queries, and visits every "
        "key tile, as the forward kernel does."
    )
    expect_gradients(part, problem(20, 150), "10.6", "20 queries over 150 keys", why)
    expect_gradients(part, problem(150, 20), "10.6", "150 queries over 20 keys", why)


@task("10.6")
def test_the_tail_of_the_keys_gives_nothing(part: ModuleType) -> None:
    """With an lse of -200, what a lane past the last key would weigh is inf: it is masked."""
    given_problem = problem(2, 19, scale=1.0)
    given_problem.q = torch.ones(1, 2, 1, 16)
    given_problem.k = torch.full((1, 19, 1, 16), -12.5)
    why = (
        "A lane past the end of the keys was loaded as 0: exp(0 - lse) is inf here, and inf * 0 is NaN. "
        "Mask its probability, as the forward kernel masks its score."
    )
    expect_gradients(part, given_problem, "10.6", "19 keys with score -200", why)


@task("10.6")
def test_dq_of_grouped_heads(part: ModuleType) -> None:
    """Each query head reads its key head, h // group, and has a gradient of its own."""
    why = "Head h reads key head h // group, in the backward kernel too."
    given_problem = problem(20, 40, heads=6, kv_heads=2, n=2)
    expect_gradients(part, given_problem, "10.6", "6 heads on 2", why)


@task("10.6")
def test_dq_of_a_causal_layer(part: ModuleType) -> None:
    """A query collects from the keys that it sees: the walk is that of the forward kernel."""
    expect_causal_gradients(part, "10.6")


@task("10.6")
def test_queries_that_see_nothing_have_no_gradient(part: ModuleType) -> None:
    """More queries than keys: the first ones see nothing, and their dq is 0."""
    expect_gradients(part, problem(50, 20, causal=True), "10.6", "50 queries over 20 keys", EMPTY)


@task("10.6")
def test_dq_under_a_block_mask(part: ModuleType) -> None:
    """A block that the mask drops gives nothing to dq, and is not computed."""
    expect_masked_gradients(part, "10.6")


@task("10.6")
def test_tiles_that_a_query_does_not_see_are_not_visited(part: ModuleType) -> None:
    """Of 256 causal queries over 256 keys, half of the products are left out; a window leaves more."""
    given_problem = problem(256, 256, dtype=F16, causal=True)
    work = expect_gradients(part, given_problem, "10.6", "256 causal queries")
    expect_whole_tiles(work, "10.6")
    expect_work(part, given_problem, work, "10.6", 0.8, "those at and below the diagonal are 50%")
    given_problem = problem(400, 400, dtype=F16, causal=True, window=20)
    work = expect_gradients(part, given_problem, "10.6", "400 causal queries, window 20")
    expect_work(part, given_problem, work, "10.6", 0.5, "the window's are 5%")


@task("10.6")
def test_dq_is_summed_in_float32(part: ModuleType) -> None:
    """In float16, small terms in every tile after large ones: none is lost."""
    keys = 2048
    k = torch.zeros(1, keys, 1, 16, dtype=F16)
    v = torch.ones(1, keys, 1, 16, dtype=F16)
    v[:, 1::2] = -1.0  # dP is 1 and -1 in turn, so that delta is 0
    k[:, 0:128:2], k[:, 128::2] = 32.0, 0.012
    given_problem = Problem(torch.zeros(1, 1, 1, 16, dtype=F16), k, v)
    grad_out = torch.zeros(1, 1, 1, 16, dtype=F16)
    grad_out[..., 0] = 1.0
    got, _ = backward(part, given_problem, grad_out, "10.6")
    right = given_problem.exact_gradients(grad_out)[0]
    error = ((got["dq"].double() - right).abs().max() / right.abs().max()).item()
    why = "The sum is in half precision: dq is accumulated in float32, and rounded once."
    expect(error < 2e-3, f"dq in float16 is off by {error:.2%} of its largest value", why=why)


@task("10.6")
def test_products_of_float32_are_not_rounded(part: ModuleType) -> None:
    """Two float32 tiles are multiplied as float32, not as TF32."""
    given_problem = problem(20, 40)
    backward(part, given_problem, torch.ones_like(given_problem.q), "10.6", exact=True)


@task("10.6")
def test_scores_are_not_rounded(part: ModuleType) -> None:
    """Scores near 100 in float16: the probabilities are those of scores in float32."""
    expect_exact_scores(part, "10.6")
    expect_exact_terms(part, "10.6")


@task("10.6")
def test_products_use_tensor_cores(part: ModuleType) -> None:
    """Tiles of float16 are multiplied as such, the gradients of scores and the keys too."""
    expect_tensor_cores(part, "10.6")


@task("10.6")
def test_query_heads_may_lie_far_apart(part: ModuleType) -> None:
    """Heads 2**30 elements apart: offsets are int64."""
    expect_far(part, "10.6")


@task("10.6")
def test_gradients_have_their_dtype(part: ModuleType) -> None:
    """dq has the dtype of q, and is summed in float32."""
    for dtype in (F32, F16, BF16):
        expect_gradients(
            part, problem(20, 400, dtype=dtype), "10.6", f"{dtype}", "Sum in float32, round once."
        )


@task("10.6")
@examples(7)
@given(st.one_of(problems(), problems(causal=True, group=True), problems(mask=True)))
def test_dq_of_any_problem(part: ModuleType, problem: Problem) -> None:
    """Any shapes, masks and groups: dq is that of float64."""
    expect_gradients(part, problem, "10.6")
