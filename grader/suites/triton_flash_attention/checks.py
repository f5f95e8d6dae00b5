"""What must hold of a part's answer to a problem."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import ModuleType

import torch
from torch import Tensor

from grader.kit import Mismatch, expect
from grader.kit.far import far
from grader.kit.kernels import expect_near, random
from grader.kit.script import current_script, resume_script, start_script
from grader.kit.siblings import telling
from grader.suites.triton_flash_attention.problems import (
    F16,
    F32,
    Problem,
    Work,
    backward,
    both_masks,
    forward,
    problem,
    without_masks,
)
from grader.suites.triton_flash_attention.siblings import why_of_forward, why_of_gradient


def expect_forward(
    part: ModuleType,
    given: Problem,
    grades: str,
    what: str = "attention",
    why: str = "",
    why_lse: str = "",
) -> Work:
    """out within the dtype's error of float64, and lse -inf where nothing is seen. What lse is elsewhere
    is the affair of task 10.1. why_lse: if it is another one than that of out."""
    out, lse, work = forward(part, given, grades)
    exact_out, exact_lse = given.exact()
    with telling(lambda: why_of_forward(given, out, exact_out, work.products, 0)):
        expect_near(out, exact_out, given.dtype, f"out of {what}", why=why)
    if grades == "10.1":
        with telling(lambda: why_of_forward(given, lse, exact_lse, work.products, 1)):
            expect_lse(lse, exact_lse, what, why_lse or why)
        return work
    expect(lse.shape == exact_lse.shape, f"lse has shape {list(lse.shape)}, not [n, heads, tq]")
    wrong = (lse.isneginf() != exact_lse.isneginf()).nonzero()
    if len(wrong):
        place = tuple(wrong[0].tolist())
        right, got = (f"{x[place].item():.6g}" for x in (exact_lse, lse))
        raise Mismatch(f"lse of {what} at {list(place)}", right, got, why)
    return work


@contextmanager
def unshown() -> Iterator[None]:
    """What is called inside does not stand in the report's list of calls."""
    script = current_script()
    script.settle()
    start_script(is_example=True)
    try:
        yield
    finally:
        current_script().settle()
        resume_script(script)


def why_of_nothing(part: ModuleType, given: Problem, grades: str) -> str:
    """Why queries that see nothing, and they alone, come out as NaN: "" if they do not."""
    with unshown():
        lost = forward(part, given, grades)[0].isnan().all(dim=3)
        # Here each query sees a key, and many see none in the first tile.
        late = forward(part, problem(64, 64, causal=True, window=3), grades)[0]
    if not torch.equal(lost, ~given.seen().any(dim=1)[None, :, None].expand_as(lost)):
        return ""
    return NOTHING_YET if late.isnan().any() else DIVIDED


def expect_whole_tiles(work: Work, grades: str) -> None:
    """Some tiles are taken without a mask: those that every query sees whole."""
    found = work.products
    products = found.score_tiles // (1 if grades in ("10.1", "10.2") else 2)
    expect(
        found.masked_tiles < products,
        f"all {products} tiles that are visited choose by a mask",
        why="Most tiles are seen whole, by every query, and need no comparison of positions: they have "
        "a walk of their own, with EDGE False, from full_begin to full_end.",
    )


def expect_far(part: ModuleType, grades: str) -> None:
    """Three heads whose distance in memory is 2**30 elements: that of head 2 is no int32."""
    made = problem(2, 2, heads=3, kv_heads=3, dtype=F16)
    with far() as apart:
        q, k, v = (
            apart(x[0].transpose(0, 1)).transpose(0, 1)[None] for x in (made.q, made.k, made.v)
        )
        spread = replace(made, q=q, k=k, v=v)
        if grades == "10.1":
            expect_forward(part, spread, grades, "heads that lie far apart")
        else:
            expect_gradients(part, spread, grades, "heads that lie far apart")


def expect_lse(lse: Tensor, exact: Tensor, what: str = "attention", why: str = "") -> None:
    """Float32, and close; in other units it is said so."""
    finite = exact.isfinite()
    if (
        lse.shape == exact.shape
        and finite.any()
        and not torch.allclose(lse.double(), exact, 1e-3, 1e-3)
    ):
        for factor, cause in (
            (math.log2(math.e), "lse is a logarithm to base 2: multiply by ln 2 at the end"),
            (math.log(2), "lse was multiplied by ln 2 once too often"),
        ):
            if torch.allclose(lse[finite].double(), exact[finite] * factor, 1e-3, 1e-3):
                where = tuple(finite.nonzero()[0].tolist())
                raise Mismatch(
                    f"lse of {what} is in the wrong base", f"{exact[where].item():.6g}",
                    f"{lse[where].item():.6g}", f"{cause}. The contract wants natural logarithms.",
                )  # fmt: skip
    expect_near(lse, exact, F32, f"lse of {what}", why=why)


def expect_gradients(
    part: ModuleType,
    given: Problem,
    grades: str,
    what: str = "attention",
    why: str = "",
    *,
    grad_out: Tensor | None = None,
) -> Work:
    """The gradients of this task within the dtype's error of float64. grad_out: or random numbers."""
    if grad_out is None:
        grad_out = random(*given.q.shape, seed=77, dtype=given.dtype)
    got, work = backward(part, given, grad_out, grades)
    exact = dict(zip(("dq", "dk", "dv"), given.exact_gradients(grad_out), strict=True))
    for name, gradient in got.items():
        # Rounded terms are summed, and out and lse were rounded: an error of the largest term.
        size = max(1.0, exact[name].abs().max().item()) if exact[name].numel() else 1.0
        with telling(
            partial(why_of_gradient, given, grad_out, name, gradient, exact[name], work.products)
        ):
            expect_near(
                gradient / size, exact[name] / size, given.dtype, f"{name} of {what}", why=why,
                roundings=2,
            )  # fmt: skip
    return work


NOTHING_YET = (
    "A query that has seen nothing has a peak of -inf, and -inf - (-inf) is NaN: subtract 0 there."
)
DIVIDED = (
    "out is 0 / 0 there: total is 0 for a query that sees nothing, so do not divide by it. Queries that "
    "see keys in a later tile alone come out as numbers, so the peak of -inf is not what makes the NaN."
)
EMPTY = (
    "A query that sees nothing has an lse of -inf, and exp(score - (-inf)) is inf: its probabilities "
    "are 0."
)


CAUSAL = (
    (20, 20, None), (100, 100, None), (40, 130, None), (100, 100, 3), (70, 130, 70), (100, 100, 96),
)  # fmt: skip
"""(tq, tk, window)"""


def one_key(scale: float = 1.0) -> Problem:
    """One query over two keys, with scores that are not equal."""
    return problem(1, 2, scale=scale)


def expect_exact_scores(part: ModuleType, grades: str) -> None:
    """Scores of 102.48, 101.84 and 101.19 in float16, whose numbers lie 1/16 apart there."""
    given = problem(1, 3, dtype=F16, scale=1.0)
    for x in (given.q, given.k, given.v):
        x[:] = 0.0
    given.q[..., 0] = 10.3125
    given.k[0, :, 0, 0] = torch.tensor([9.9375, 9.875, 9.8125])
    given.v[0, :, 0, 0] = torch.tensor([1.0, -1.0, 0.0])
    why = (
        "A score that is off by 1/32 makes a probability that is off by 3%: scores stay in float32, as "
        "tl.dot gives them. Only what enters the next product is rounded."
    )
    expect_gradients(part, given, grades, "scores near 100 in float16", why)


def expect_exact_terms(part: ModuleType, grades: str) -> None:
    """Equal scores, and a dP of 102.48, 101.84 and 101.19 in float16, whose numbers lie 1/16 apart."""
    given = problem(1, 3, dtype=F16, scale=1.0)
    for x in (given.q, given.k, given.v):
        x[:] = 0.0
    given.q[..., 0] = 1.0
    given.k[0, 0, 0, 1] = 1.0
    given.v[0, :, 0, 0] = torch.tensor([9.9375, 9.875, 9.8125])
    grad_out = torch.zeros_like(given.q)
    grad_out[..., 0] = 10.3125
    why = (
        "dP and delta are nearly equal here, and their difference is wrong if one of them is rounded "
        "before: both are float32. dS alone is rounded, when it enters the next product."
    )
    expect_gradients(part, given, grades, "dP near 100 in float16", why, grad_out=grad_out)


def explained(part: ModuleType, grades: str) -> None:
    """The usual mistakes, each told by its factor, on a problem of two tiles."""
    given_problem = problem(20, 80, scale=0.5)
    grad_out = random(*given_problem.q.shape, seed=77)
    got, _ = backward(part, given_problem, grad_out, grades)
    exact = dict(zip(("dq", "dk", "dv"), given_problem.exact_gradients(grad_out), strict=True))
    causes = {
        2.0: "It is not multiplied by the scale: scores are q k * scale, so dq and dk have that factor.",
        0.5: "The scale is applied twice: the factor of dS is enough, once, at the end.",
        math.log2(
            math.e
        ): "It has a factor log2(e): the scale for exp2 is no factor of the gradient.",
        math.log(2): "It has a factor ln 2: derivatives are those of exp, whatever is computed.",
    }
    for name, gradient in got.items():
        for factor, cause in causes.items():
            right = exact[name] * factor
            if gradient.shape == right.shape and torch.allclose(
                gradient.double(), right, 1e-3, 1e-4
            ):
                expect(False, f"{name} is {factor:.4g} times what it must be", why=cause)


def expect_work(
    part: ModuleType, given_problem: Problem, work: Work, grades: str, most: float, told: str
) -> None:
    """work: of this problem; at most this share of what its shapes cost the part without masks."""
    zeros = torch.zeros_like(given_problem.q)
    whole = backward(part, without_masks(given_problem), zeros, grades)[1].flops
    share = work.flops / max(whole, 1)
    expect(
        share < most,
        f"{share:.0%} of all products are computed; {told}",
        why="Tiles in which no query sees a key are visited, and masked: leave them out of the loop.",
    )


def expect_kept_only(given: Problem, work: Work, whole: Work, told: str) -> None:
    """What is dropped is neither multiplied nor loaded. whole: under a mask that keeps everything.

    A program that holds queries walks over keys and values, one that holds keys over all the rest: one
    of the two is read less.
    """
    share = work.flops / max(whole.flops, 1)
    expect(
        share < 0.3,
        f"{share:.0%} of all products are computed; {told}",
        why="Look at the mask before the tile is loaded: a tile that is False costs nothing.",
    )
    reads = [(_loads_of_keys(given, w), w.seen.total().loads) for w in (work, whole)]
    (keys, total), (all_keys, everything) = reads
    share = min(keys / max(all_keys, 1), (total - keys) / max(everything - all_keys, 1))
    expect(
        share < 0.42,
        f"the walk reads {share:.0%} of what it reads where all blocks are kept; {told}",
        why="A tile that the mask drops is not multiplied, but it is loaded: ask is_kept first, and "
        "load inside of that `if`.",
    )


def _loads_of_keys(given: Problem, work: Work) -> int:
    return work.seen.loads(given.k) + work.seen.loads(given.v)


def expect_causal_gradients(part: ModuleType, grades: str) -> None:
    """Of causal layers, with windows and without."""
    why = "Query j sees key i if i <= tk - tq + j, and with a window if i > tk - tq + j - window."
    for tq, tk, window in CAUSAL:
        what = f"{tq} causal queries over {tk} keys, window {window}"
        expect_gradients(part, problem(tq, tk, causal=True, window=window), grades, what, why)


def expect_masked_gradients(part: ModuleType, grades: str) -> None:
    """Under a block mask, whose dropped blocks are not computed."""
    kept = torch.tensor([[0, 0, 0, 1], [0, 0, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0]], dtype=torch.bool)
    given = problem(120, 110, block_mask=kept)
    why = "block_mask[query // mask_block, key // mask_block], here as in the forward kernel."
    work = expect_gradients(part, given, grades, "a block mask that keeps 3 of 16", why)
    everything = replace(given, block_mask=torch.ones_like(kept))
    whole = backward(part, everything, torch.zeros_like(given.q), grades)[1]
    expect_kept_only(given, work, whole, "the mask keeps 19%")
    why = "The block mask drops tiles; inside of one that it keeps, EDGE and the causal mask hold."
    expect_gradients(part, both_masks(), grades, "causal queries under a block mask", why)
