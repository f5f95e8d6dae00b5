"""Task 10.5: the gradients of keys and values, from the oracle's out and lse."""

from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import Mismatch, examples, start_script, task
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
from grader.suites.triton_flash_attention.limits import expect_limits
from grader.suites.triton_flash_attention.problems import (
    F16,
    Problem,
    backward,
    problem,
    problems,
)
from grader.suites.triton_flash_attention.programs import expect_programs, expect_tensor_cores

LIMITS = (
    ((0, 31), 96, 96, None), ((64, 95), 96, 96, None), ((64, 89), 70, 90, None), ((0, 31), 20, 60, None),
    ((0, 19), 50, 20, None), ((0, 31), 96, 96, 40), ((32, 63), 96, 96, 1), ((32, 63), 128, 128, 70),
    ((0, 31), 20, 90, 30), ((0, 19), 50, 20, 10), ((64, 99), 100, 100, 300), ((33, 64), 96, 96, None),
    ((32, 63), 128, 128, 64), ((32, 63), 128, 128, 50),
    ((32, 63), 128, 128, 63), ((16, 47), 95, 96, None),
)  # fmt: skip
"""(first and last key of a tile, tq, tk, window)"""


@task("10.5")
def test_the_limits_of_the_walk(part: ModuleType) -> None:
    """`queries_that_see` says which tiles a key tile visits, and which of them need no mask."""
    for tile, tq, tk, window in LIMITS:
        expect_limits(part, "queries_that_see", tile, tq, tk, window, 16)


@task("10.5")
def test_dv_and_dk_of_one_query(part: ModuleType) -> None:
    """dV = P^T dO, and dK = dS^T Q * scale with dS = P * (dP - delta)."""
    explained(part, "10.5")
    why = "P = exp(score * scale - lse); dP = dO V^T; delta is the row's sum of dO * O."
    expect_gradients(part, one_key(), "10.5", "one query over two keys", why)
    expect_gradients(part, one_key(0.25), "10.5", "one query over two keys, scale 0.25", why)


@task("10.5")
def test_every_tile_has_a_program(part: ModuleType) -> None:
    """Each key tile has a program, and each program a key tile."""
    expect_programs(part, "10.5")


@task("10.5")
def test_every_query_adds_to_dk(part: ModuleType) -> None:
    """150 queries over 20 keys: dk and dv sum over all query tiles, the last one cut off."""
    why = (
        "A program holds a key tile and visits every query tile. Queries past the end have no "
        "probabilities: lse is +inf for them."
    )
    expect_gradients(part, problem(150, 20), "10.5", "150 queries over 20 keys", why)
    expect_gradients(part, problem(20, 150), "10.5", "20 queries over 150 keys", why)


@task("10.5")
def test_dk_sums_over_the_heads_of_its_group(part: ModuleType) -> None:
    """A key head's gradient is the sum over the query heads that read it: h // group."""
    why = "Key head i has heads i * group to i * group + group - 1: all of them, and no others."
    given_problem = problem(70, 40, heads=4, kv_heads=2, n=2)
    expect_gradients(part, given_problem, "10.5", "4 heads on 2", why)
    given_problem = problem(20, 20, heads=2, n=2)
    expect_gradients(part, given_problem, "10.5", "2 heads on 1, of 2 sequences", why)
    expect_gradients(part, problem(3, 4, heads=9), "10.5", "9 heads on 1", why)


@task("10.5")
def test_dk_of_a_causal_layer(part: ModuleType) -> None:
    """A key collects from the queries at and after its position, within the window."""
    expect_causal_gradients(part, "10.5")


@task("10.5")
def test_queries_that_see_nothing_give_nothing(part: ModuleType) -> None:
    """More queries than keys: the first ones see nothing, and add 0 to dk and dv."""
    expect_gradients(part, problem(50, 20, causal=True), "10.5", "50 queries over 20 keys", EMPTY)


@task("10.5")
def test_dk_under_a_block_mask(part: ModuleType) -> None:
    """Queries whose row of the mask drops a block give nothing to its keys, and nothing is computed."""
    expect_masked_gradients(part, "10.5")


@task("10.5")
def test_dk_is_summed_in_float32(part: ModuleType) -> None:
    """In float16, small terms after a large one: none is lost."""
    why = "The sum is in half precision: dk and dv are accumulated in float32, and rounded once."
    expect_sums(part, summed_in_half(1024, 1, 64), "", why)
    why = f"{why} The sum over the query heads of a group is one sum, over all of their queries."
    expect_sums(part, summed_in_half(16, 32, 16), " of 32 heads on one", why)
    why = (
        "Two tiles of 64 queries give 2,113 and -2,112, of which float16 has the second alone: what a "
        "tile gives is added in float32."
    )
    given_problem, grad_out = summed_in_half(128, 1, 0)
    for tensor, first in ((given_problem.q, 0), (grad_out, 1)):
        tensor[:, :64, :, first:], tensor[:, 64:, :, first:] = 66.0, -66.0
        tensor[:, 0, :, first:] = 68.0
    expect_sums(part, (given_problem, grad_out), " of tiles that cancel", why)


def expect_sums(part: ModuleType, given: tuple[Problem, torch.Tensor], of: str, why: str) -> None:
    given_problem, grad_out = given
    start_script()
    got, _ = backward(part, given_problem, grad_out, "10.5")
    exact = dict(zip(("dq", "dk", "dv"), given_problem.exact_gradients(grad_out), strict=True))
    for name in ("dv", "dk"):
        right = exact[name]
        error = ((got[name].double() - right).abs().max() / right.abs().max()).item()
        if error >= 2e-3:
            at = int((found := got[name].double()).sub(right).abs().argmax())
            one, other = (f"{x.flatten()[at].item():.6g}" for x in (right, found))
            told = f"{name} in float16{of}: a value is off by {error:.2%} of the largest"
            raise Mismatch(told, one, other, why)


def summed_in_half(queries: int, heads: int, large: int) -> tuple[Problem, torch.Tensor]:
    """Queries over two keys with equal scores, and the gradient of out.

    A query gives half of its gradient to each key's dv, and half of itself to dk: of the first `large`
    queries of head 0 both are large, of the others small. dP is 1 and -1, so that delta is 0.
    """
    q = torch.full((1, queries, heads, 16), 0.012, dtype=F16)
    q[:, :large, 0] = 32.0
    grad_out = q.clone()
    grad_out[..., 0] = 1.0
    v = torch.zeros(1, 2, 1, 16, dtype=F16)
    v[:, 0, :, 0], v[:, 1, :, 0] = 1.0, -1.0
    return Problem(q, torch.zeros(1, 2, 1, 16, dtype=F16), v), grad_out


@task("10.5")
def test_products_are_float32(part: ModuleType) -> None:
    """Two float32 tiles are multiplied as float32, not as TF32."""
    given_problem = problem(20, 40)
    backward(part, given_problem, torch.ones_like(given_problem.q), "10.5", exact=True)


@task("10.5")
def test_scores_are_not_rounded(part: ModuleType) -> None:
    """Scores near 100 in float16: the probabilities are those of scores in float32."""
    expect_exact_scores(part, "10.5")
    expect_exact_terms(part, "10.5")


@task("10.5")
def test_products_use_tensor_cores(part: ModuleType) -> None:
    """Tiles of float16 are multiplied as such, probabilities and their gradients too."""
    expect_tensor_cores(part, "10.5")


@task("10.5")
def test_heads_may_lie_far_apart(part: ModuleType) -> None:
    """Heads 2**30 elements apart: offsets are int64."""
    expect_far(part, "10.5")


@task("10.5")
def test_queries_before_the_key_tile_are_not_visited(part: ModuleType) -> None:
    """Of 200 causal queries over 200 keys, half of the products are left out; a window leaves more."""
    given_problem = problem(200, 200, dtype=F16, causal=True)
    work = expect_gradients(part, given_problem, "10.5", "200 causal queries")
    expect_whole_tiles(work, "10.5")
    expect_work(part, given_problem, work, "10.5", 0.8, "those at and below the diagonal are 50%")
    given_problem = problem(200, 600, dtype=F16, causal=True, window=20)
    what = "200 causal queries over 600 keys, window 20"
    work = expect_gradients(part, given_problem, "10.5", what)
    expect_work(part, given_problem, work, "10.5", 0.5, "the window's are 3%")


@task("10.5")
@examples(7)
@given(st.one_of(problems(), problems(causal=True, group=True), problems(mask=True)))
def test_dk_of_any_problem(part: ModuleType, problem: Problem) -> None:
    """Any shapes, masks and groups: dk and dv are those of float64."""
    expect_gradients(part, problem, "10.5")
