"""Task 11.1: scores far from zero, and sums in half precision."""

from types import ModuleType

import torch

from grader.kit import expect_equal, task
from grader.suites.triton_paged_attention.bench import (
    expect_attention,
    expect_rows,
    filled,
    make_case,
)


@task("11.1")
def test_all_scores_may_lie_far_below_zero(part: ModuleType) -> None:
    """Where every score is far below 0, what a tile holds behind the last key is not the largest."""
    for factor in (8.0, 32768.0):
        case = filled(
            make_case([5]), keys=lambda i, p, f=factor: -f, values=lambda i, p: p, q=factor
        )
        score = f"{-4 * factor * factor:g}"
        why = (
            "A lane without a key that scores 0, or any number that scores can reach, is the largest of "
            f"the tile, and exp({score} - 0) is 0: its score is -inf before the maximum is taken."
        )
        expect_rows(
            part,
            case,
            [2.0],
            f"the mean of 5 values 0 to 4 whose keys all score {score}",
            why,
            splits=1,
            siblings=False,
        )


@task("11.1")
def test_products_are_scaled_in_float32(part: ModuleType) -> None:
    """In bfloat16 the queries are multiplied as they are; the scale, no power of two, comes after."""
    case = make_case([300], block_size=16, d=128, dtype=torch.bfloat16, scale=128**-0.5)
    case = filled(case, q=6.0 * case.q)
    why = (
        "A query times the scale is rounded to bfloat16 again: scale the products, not the queries."
    )
    what = "decode of 300 keys in bfloat16, queries of 6, scale 128 ** -0.5"
    expect_attention(part, case, splits=1, what=what, why=why)


@task("11.1")
def test_sums_are_float32(part: ModuleType) -> None:
    """In bfloat16, scores, weights and sums are computed in float32; only the result is rounded."""
    case = make_case([1500], block_size=16, d=16, dtype=torch.bfloat16)
    case = filled(case, keys=lambda i, p: 0.0, values=lambda i, p: 32.0 if p < 128 else 15 / 64)
    why = (
        "bfloat16 has 8 bits: a sum of 4096, which 128 values of 32 are, does not grow by what is less "
        "than 16, and the other 1372 values are 15/64. Keep sums in float32."
    )
    mean = (128 * 32 + 1372 * 15 / 64) / 1500
    out, _ = expect_rows(part, case, [mean], "the mean of 1500 values in bfloat16", why, splits=1)
    expect_equal(out.dtype, torch.bfloat16, "the dtype of the result")
    case = make_case([1500], block_size=16, d=16, dtype=torch.bfloat16)
    case = filled(
        case,
        keys=lambda i, p: 0.0 if p < 128 else -1.5,
        values=lambda i, p: 32.0,
        q=1.0,
    )
    why = (
        "The weights of 128 keys are 1, those of the others exp(-6), 3.4 in all: as bfloat16, a total "
        "of 128 does not grow by what is less than 1. Keep sums in float32, that of the weights too."
    )
    expect_rows(part, case, [32.0], "the mean of 1500 equal values in bfloat16", why, splits=1)
    case = make_case([40, 3], block_size=16, d=16, dtype=torch.float16)
    expect_attention(part, case, splits=1, what="decode in float16", why="As in bfloat16.")
