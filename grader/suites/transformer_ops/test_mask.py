"""Task 2.5: which query sees which keys."""

from types import ModuleType

import torch
from hypothesis import given

from grader.kit import examples, expect, expect_equal, task
from grader.kit.layout import padded
from grader.kit.mistakes import told_by
from grader.suites.transformer_ops.exact import INF, expect_tensor, masks, ops_of, seen_by

F32, BF16 = torch.float32, torch.bfloat16


def expect_mask(
    part: ModuleType,
    kv_lens: list[int],
    tq: int,
    tk: int,
    window: int | None = None,
    dtype: torch.dtype = F32,
) -> None:
    """The mask under test is 0 where `seen_by` says so, and -inf elsewhere."""
    got = ops_of(part).causal_mask(torch.tensor(kv_lens), tq, tk, window, dtype)
    expect_tensor(got, dtype, "the mask")
    expect_equal(list(got.shape), [len(kv_lens), tq, tk], "the shape of the mask, [n, tq, tk]")
    values = sorted(set(got.flatten().tolist()) - {0.0, -INF})
    added = (
        "The mask is added to the scores: 0 changes nothing, and only -inf gives a weight of zero."
    )
    expect(not values, f"the mask holds {values[:3]}, not only 0 and -inf", why=added)
    for row, kv_len in enumerate(kv_lens):
        seen = [(keys == 0).nonzero().flatten().tolist() for keys in got[row]]
        what = f"the keys that each of {tq} queries sees, where {kv_len} of {tk} keys are real"
        right = seen_by(kv_len, tq, tk, window)
        why = told_by(seen, mistaken(kv_len, tq, tk, window), right)
        expect_equal(seen, right, what, why=why)


def mistaken(kv_len: int, tq: int, tk: int, window: int | None) -> dict[str, list[list[int]]]:
    """What each query sees by a mistake, by what is to say of it."""
    wide = window or tk

    def seen(first: int, last: int = 0, width: int = wide) -> list[list[int]]:
        """Queries at the positions from `first` on; the last key that each sees, from its own."""
        return [
            [key for key in range(tk) if place - width < key <= place + last]
            for place in range(first, first + tq)
        ]

    own = kv_len - tq
    gives = {
        "A triangle aligned to the upper left corner lets a decode see the first key alone. The keys "
        "before the queries come from the cache.": seen(0),
        "Rows have different lengths: the last query of row i is at kv_lens[i] - 1, not at tk - 1, and "
        "no query sees the padding.": seen(tk - tq),
        "A query sees the keys up to its own position, its own among them.": seen(own, -1),
        "A query sees no key after its own position.": seen(own, tk),
    }
    if window is not None:
        gives |= {
            "The window ends with the query's own position: w keys in all, not w before it and one "
            "more.":
            seen(own, width=window + 1),
            "A window of w has w keys, the query's own among them: here are w - 1.":
            seen(own, width=window - 1),
            "The window was left out here.": seen(own, width=tk),
        }  # fmt: skip
    return gives


@task("2.5")
def test_a_query_sees_itself_and_what_is_before_it(part: ModuleType) -> None:
    """A query sees its own key and all before it, and none after it."""
    expect_mask(part, [3], 3, 3)


@task("2.5")
def test_the_last_query_stands_at_the_last_key(part: ModuleType) -> None:
    """With fewer queries than keys the queries are the last positions: a decode sees everything."""
    expect_mask(part, [5], 1, 5)
    expect_mask(part, [5], 2, 5)


@task("2.5")
def test_padding_is_hidden(part: ModuleType) -> None:
    """Keys from kv_lens[i] on are padding of row i; its queries are before them."""
    expect_mask(part, [2, 5, 3], 2, 6)


@task("2.5")
def test_a_window_counts_the_query_itself(part: ModuleType) -> None:
    """With a window of w a query sees w keys, the last of them its own."""
    for window in (1, 2, 3, 9):
        expect_mask(part, [5], 3, 5, window)


@task("2.5")
def test_the_mask_has_the_dtype_asked_for(part: ModuleType) -> None:
    """The mask is of the dtype that was asked for."""
    for dtype in (F32, BF16, torch.float16):
        expect_mask(part, [2, 4], 2, 5, 2, dtype)


@task("2.5")
def test_lengths_of_any_kind(part: ModuleType) -> None:
    """kv_lens may be int32 or int64, and a slice with gaps; they are as before afterwards."""
    for dtype in (torch.int32, torch.int64):
        lens = padded(torch.tensor([3, 300], dtype=dtype), dims=(0,))
        got = ops_of(part).causal_mask(lens, 2, 300, None, F32)
        seen = [[int((keys == 0).sum()) for keys in row] for row in got]
        expect_equal(seen, [[2, 3], [299, 300]], "how many keys each query sees, of 3 and of 300")
        why = "They are the batch's own lengths: the next layer's mask is made from them."
        expect_equal(lens.tolist(), [3, 300], "kv_lens after the call", why=why)


@task("2.5")
def test_positions_are_whole_numbers(part: ModuleType) -> None:
    """Long sequences have exact positions, whatever the dtype of the mask."""
    got = ops_of(part).causal_mask(torch.tensor([600]), 2, 600, 3, BF16)
    expect_tensor(got, BF16, "the mask")
    seen = [(keys == 0).nonzero().flatten().tolist() for keys in got[0]]
    why = (
        "The dtype is that of the mask's zeros and -inf. bfloat16 has no odd numbers beyond 256: "
        "compare positions as integers."
    )
    right = [[596, 597, 598], [597, 598, 599]]
    expect_equal(seen, right, "what the last 2 of 600 positions see in a window of 3", why=why)


@task("2.5")
@examples(80)
@given(masks())
def test_any_mask(part: ModuleType, case: tuple[list[int], int, int, int | None]) -> None:
    """Any mask shows and hides what position by position must be seen and hidden."""
    kv_lens, tq, tk, window = case
    expect_mask(part, kv_lens, tq, tk, window)
