"""Task 10.1: the forward kernel, one tile of keys after another. No mask, no groups."""

import math
from types import ModuleType

import torch
from hypothesis import given

from grader.kit import examples, expect, expect_equal, start_script, task
from grader.kit.expect import claiming
from grader.kit.kernels import random
from grader.kit.siblings import telling
from grader.suites.triton_flash_attention.checks import (
    expect_far,
    expect_forward,
    expect_lse,
    expect_whole_tiles,
    why_of_nothing,
)
from grader.suites.triton_flash_attention.problems import (
    BF16,
    F16,
    F32,
    Problem,
    both_masks,
    forward,
    problem,
    problems,
)
from grader.suites.triton_flash_attention.programs import expect_programs, expect_tensor_cores


def scored(scores: list[float], values: list[float], dtype: torch.dtype = F32) -> Problem:
    """One query whose key i has score scores[i] and value values[i]; scale 1."""
    q, k = torch.zeros(1, 1, 1, 16), torch.zeros(1, len(scores), 1, 16)
    q[..., 0], k[0, :, 0, 0] = 1.0, torch.tensor(scores)
    v = torch.tensor(values)[None, :, None, None].expand(1, -1, 1, 16)
    return Problem(q.to(dtype), k.to(dtype), v.to(dtype).contiguous(), scale=1.0)


@task("10.1")
def test_one_tile_is_a_softmax(part: ModuleType) -> None:
    """Eight keys with score 0 and eight with ln 3 weigh 1 to 3, and lse is ln 32."""
    given_problem = scored([0.0, math.log(3.0)] * 8, [4.0, 8.0] * 8)
    why = "Weights are exp(score * scale) over their sum. With exp2, the scale takes a factor log2(e)."
    lse = "out is right here, so the weights are: lse = peak + log(total), of scaled scores."
    what = "scores 0 and ln 3 in turn, values 4 and 8"
    expect_forward(part, given_problem, "10.1", what, why, lse)


@task("10.1")
def test_every_tile_has_a_program(part: ModuleType) -> None:
    """Each query tile has a program, and each program a query tile."""
    expect_programs(part, "10.1")


@task("10.1")
def test_the_tail_of_the_keys_is_masked(part: ModuleType) -> None:
    """Keys that are no multiple of the tile: what pads the last tile has no weight."""
    why = (
        "A lane past the end of the keys was loaded as 0: its score of 0 is larger than -20. The tail "
        "must be masked: its scores become -inf before the softmax, not only its loads 0."
    )
    for tk in (3, 19, 150):
        expect_forward(
            part, scored([-20.0] * tk, [1.0] * tk), "10.1", f"{tk} keys with score -20", why
        )


@task("10.1")
def test_the_scale_is_applied_once(part: ModuleType) -> None:
    """Scores are multiplied by `scale`, once, whatever the head's size."""
    for scale in (0.25, 2.0):
        given_problem = scored([0.0, 1.0], [0.0, 1.0])
        given_problem.scale = scale
        out, _, _ = forward(part, given_problem, "10.1")
        weight = float(out.flatten()[0])
        if math.isclose(weight, 1 / (1 + math.exp(-scale * scale)), rel_tol=1e-3):
            why = "The scale is applied twice: to the queries or the scores, and in the exponent."
            expect(False, f"with scale {scale} a score of 1 becomes {scale * scale}", why=why)
        what = f"scores 0 and 1 at scale {scale}, values 0 and 1"
        expect_forward(part, given_problem, "10.1", what, "The scale multiplies each score, once.")


@task("10.1")
def test_the_lse_is_a_natural_logarithm(part: ModuleType) -> None:
    """One key with score 3: lse is 3, the logarithm of exp(3)."""
    _, lse, _ = forward(part, scored([3.0], [1.0]), "10.1")
    exact = scored([3.0], [1.0]).exact()[1]
    expect_lse(lse, exact, "one key with score 3", "lse = peak + log(total), of scaled scores.")


@task("10.1")
def test_a_later_peak_rescales_what_was_summed(part: ModuleType) -> None:
    """Scores that rise from tile to tile: what was summed before a new peak shrinks with it."""
    scores = [float(i // 16) for i in range(300)]
    values = [float(i % 7) for i in range(300)]
    why = (
        "When a tile raises the peak, total and acc were summed against the old one: both must be "
        "rescaled by exp(old peak - new peak) before the tile is added."
    )
    expect_forward(part, scored(scores, values), "10.1", "300 keys with rising scores", why)


@task("10.1")
def test_large_scores_do_not_overflow(part: ModuleType) -> None:
    """Scores of 1,000 and -1,000: the peak is subtracted before anything is raised to a power."""
    why = (
        "exp(1000) is inf in float32: subtract the peak, in the same units as the exponent, first."
    )
    for scores in ([1000.0, 999.0], [-1000.0, -1001.0]):
        expect_forward(part, scored(scores, [1.0, 2.0]), "10.1", f"scores {scores}", why)
    why = (
        "Whatever number the peak begins at, some score is smaller, and then all of its weights are 0: "
        "only -inf is below them all."
    )
    start_script()
    with claiming("The peak begins below any score, and a score of -10,000,000 is one."):
        expect_forward(part, scored([-1e7], [3.0]), "10.1", "one key with score -10,000,000", why)


@task("10.1")
def test_a_far_later_peak_leaves_nothing(part: ModuleType) -> None:
    """A peak that rises by 100: what was summed before it weighs nothing."""
    far_apart = scored([0.0] * 128 + [100.0] * 128, [1e6] * 128 + [1.0] * 128)
    why = "total and acc are rescaled by exp(old peak - new peak), which is exp(-100) here."
    expect_forward(part, far_apart, "10.1", "128 keys with score 0 before 128 with 100", why)


@task("10.1")
def test_an_early_peak_stays(part: ModuleType) -> None:
    """The largest score in the first tile: later tiles are weighed against it."""
    scores = [200.0 if i == 3 else float(i % 5) for i in range(300)]
    why = (
        "The new peak is the larger one of the old peak and the tile's: with the tile's alone, the old "
        "sums would grow by exp(196)."
    )
    given_problem = scored(scores, [float(i) for i in range(300)])
    expect_forward(part, given_problem, "10.1", "300 keys, number 3 with a score of 200", why)


@task("10.1")
def test_sums_are_kept_in_float32(part: ModuleType) -> None:
    """In float16, a small value in every tile after a large first one: none is lost."""
    keys = 2048
    values = [16.0] * 128 + [0.006] * (keys - 128)
    why = (
        "The sum is in half precision: near 2,048 the next float16 is 2 away, and what a tile adds is "
        "rounded off. acc and total are float32, from the first tile to the last."
    )
    expect_forward(part, scored([0.0] * keys, values, F16), "10.1", f"{keys} keys in float16", why)
    why = (
        "Two tiles of 64 keys give 2,113 and -2,112, of which float16 has the second alone: what a tile "
        "gives is added to acc in float32."
    )
    what = "128 keys in float16 whose values sum to 1"
    cancelling = scored([0.0] * 128, [33.0] * 63 + [34.0] + [-33.0] * 64, F16)
    expect_forward(part, cancelling, "10.1", what, why)
    why = (
        "The values sum to 128,000, and float16 ends at 65,504: acc is rounded once it is divided."
    )
    large = scored([0.0] * 128, [1000.0] * 128, F16)
    expect_forward(part, large, "10.1", "128 keys in float16 with values of 1,000", why)


@task("10.1")
def test_every_dtype(part: ModuleType) -> None:
    """In float16 and bfloat16 as in float32: out has the dtype of q, lse is float32 and exact."""
    why = (
        "Only weights are rounded, for their product with the values, and out, at the end. total is the "
        "sum of the weights before that, scores stay in float32, and queries that were multiplied by "
        "the scale are not rounded again."
    )
    for dtype in (F32, F16, BF16):
        expect_forward(part, problem(20, 40, dtype=dtype), "10.1", f"{dtype}", why)


@task("10.1")
def test_every_batch_and_head_is_its_own(part: ModuleType) -> None:
    """Two sequences of three heads, 70 queries each, in tensors with strides of their own."""
    why = "Batch, head and query tile are three coordinates of the grid, each with its stride."
    expect_forward(part, problem(70, 40, n=2, heads=3, kv_heads=3), "10.1", "2 x 3 heads", why)


@task("10.1")
def test_the_walk_hides_what_a_query_does_not_see(part: ModuleType) -> None:
    """Tiles with an edge ask `is_visible` for every score, with the queries' positions, tk - tq on.

    The helpers of tasks 10.2 to 10.4 are the reference's here.
    """
    why = (
        "The query in row i of the tile stands at position tk - tq + start_m + i, not at start_m + i: "
        "the queries are the last ones. If the positions are right: what is_visible says no to must be "
        "-inf before the softmax, in every tile of a walk with EDGE."
    )
    for tq, tk, window in ((3, 10, None), (40, 70, None), (33, 100, None)):
        given_problem = problem(tq, tk, causal=True, window=window)
        what = f"{tq} causal queries over {tk} keys, window {window}"
        expect_forward(part, given_problem, "10.1", what, why)


@task("10.1")
def test_a_query_before_all_keys(part: ModuleType) -> None:
    """Five causal queries over two keys: the first three see nothing, give 0, and an lse of -inf.

    The helpers of tasks 10.2 to 10.4 are the reference's here.
    """
    why = (
        "A query that has seen nothing has a peak of -inf, and -inf - (-inf) is NaN: subtract 0 there. "
        "Its total is 0: do not divide by it, and its lse is -inf, the logarithm of that 0."
    )
    few = problem(5, 2, causal=True)
    with telling(lambda: why_of_nothing(part, few, "10.1")):
        expect_forward(part, few, "10.1", "5 causal queries over 2 keys", why)
    expect_forward(part, problem(40, 20, causal=True), "10.1", "40 causal queries over 20", why)
    late = problem(2, 40, causal=True, window=3)
    expect_forward(part, late, "10.1", "a tile in which one query sees nothing yet", why)


@task("10.1")
def test_three_walks_make_a_window(part: ModuleType) -> None:
    """A window's keys are taken in three walks, each of them once.

    The helpers of tasks 10.2 to 10.4 are the reference's here.
    """
    why = (
        "The walks go from begin to full_begin, from there to full_end, and from there to end. A tile "
        "that is in two of them counts twice."
    )
    late = problem(33, 100, causal=True, window=40)
    expect_forward(part, late, "10.1", "33 causal queries over 100 keys, window 40", why)


@task("10.1")
def test_a_block_mask_beside_the_causal_one(part: ModuleType) -> None:
    """Tiles that a block mask keeps hide what the causal mask hides.

    The helpers of tasks 10.2 to 10.4 are the reference's here.
    """
    why = (
        "A block mask does not take the place of the causal one. EDGE says of a tile that is kept too "
        "whether scores are hidden in it, and whether a query may have seen nothing so far (MAY_HIDE)."
    )
    expect_forward(part, both_masks(), "10.1", "causal queries under a block mask", why)


@task("10.1")
def test_products_of_float32_are_not_rounded(part: ModuleType) -> None:
    """Two float32 tiles are multiplied as float32, not as TF32."""
    forward(part, problem(20, 40), "10.1", exact=True)


@task("10.1")
def test_products_use_tensor_cores(part: ModuleType) -> None:
    """Tiles of float16 are multiplied as such, weights and values too."""
    expect_tensor_cores(part, "10.1")


@task("10.1")
def test_whole_tiles_have_no_mask(part: ModuleType) -> None:
    """70 queries over 150 keys without a mask: only the tiles in which the keys end choose by one."""
    _, _, work = forward(part, problem(70, 150), "10.1")
    expect_whole_tiles(work, "10.1")


@task("10.1")
def test_heads_may_lie_far_apart(part: ModuleType) -> None:
    """Heads 2**30 elements apart: offsets are int64."""
    expect_far(part, "10.1")


@task("10.1")
def test_head_sizes(part: ModuleType) -> None:
    """Heads of 64, 80, 96, 128 and 256: columns beyond the head are padding."""
    for dim in (64, 80, 96, 128, 256):
        why = "A tile has a power of two of columns; those from d on are 0, and are not written."
        expect_forward(part, problem(17, 33, dim=dim), "10.1", f"heads of {dim}", why)


@task("10.1")
def test_nothing_to_see(part: ModuleType) -> None:
    """Without any keys, out is 0 and lse is -inf; without queries, both are empty."""
    why = (
        "An empty sum is 0, its logarithm -inf, and 0 / 0 is NaN: divide only where a key was seen."
    )
    expect_forward(part, problem(3, 0), "10.1", "3 queries and no keys", why)
    out, _, _ = forward(part, problem(0, 3), "10.1")
    expect_equal([*out.shape], [1, 0, 1, 16], "the shape of out without queries")


@task("10.1")
def test_no_scores_are_written(part: ModuleType) -> None:
    """out and lse are all that is written, once, and each query is read once, in one launch."""
    given_problem = problem(70, 150)
    out, lse, work = forward(part, given_problem, "10.1")
    why = "Scores and weights live in registers: writing them is what FlashAttention avoids."
    written = work.seen.total().stores
    expect_equal(written, out.numel() + lse.numel(), "the numbers that are written", why=why)
    expect_equal(
        work.seen.loads(given_problem.q), given_problem.q.numel(), "the numbers of q that are read",
        why="A program holds its query tile while it walks over the keys: load it before the loop.",
    )  # fmt: skip


@task("10.1")
@examples(9)
@given(problems())
def test_any_problem(part: ModuleType, problem: Problem) -> None:
    """Any shapes, any scale: out and lse are those of float64."""
    expect_forward(part, problem, "10.1")


@task("10.1")
def test_long_rows_in_bfloat16(part: ModuleType) -> None:
    """A thousand keys in bfloat16 are as good as ten."""
    given_problem = problem(4, 1000, dtype=BF16, scale=1.0)
    given_problem.v = random(1, 1000, 1, 16, seed=5, dtype=BF16)
    expect_forward(part, given_problem, "10.1", "1,000 keys in bfloat16", "Sum in float32.")
