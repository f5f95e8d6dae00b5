"""Tasks 10.2 to 10.4: which keys a query sees, and which tiles are never looked at."""

import math
from dataclasses import replace
from types import ModuleType

import torch
from hypothesis import given

from grader.kit import Mismatch, examples, expect, start_script, task
from grader.kit.expect import claiming
from grader.kit.siblings import telling
from grader.suites.triton_flash_attention.checks import (
    expect_forward,
    expect_kept_only,
    expect_whole_tiles,
    unshown,
)
from grader.suites.triton_flash_attention.limits import expect_limits
from grader.suites.triton_flash_attention.problems import (
    F16,
    F32,
    Problem,
    Work,
    forward,
    problem,
    problems,
    without_masks,
)
from grader.suites.triton_flash_attention.spans import counting, expect_spans, spans

ANY_NUMBER = "A block mask may have any number of rows: that of a query is query // mask_block."
OFFSET = "Query j stands at position tk - tq + j: the queries are the last ones."


LIMITS = (
    ((0, 31), 96, None), ((64, 95), 96, None), ((70, 101), 102, None), ((-20, 11), 40, None),
    ((-40, -9), 40, None), ((7, 7), 8, None),
    ((64, 95), 96, 20), ((64, 95), 96, 64), ((64, 95), 96, 200), ((70, 101), 102, 50),
    ((-5, 26), 40, 10), ((15, 46), 47, 1), ((30, 61), 62, None),
    ((31, 62), 63, None), ((17, 48), 49, None), ((64, 95), 96, 33), ((31, 62), 63, 40),
    ((900, 931), 932, 700),
)  # fmt: skip
"""(positions of the first and the last query of a tile, tk, window)"""


@task("10.2")
def test_the_limits_of_the_walk(part: ModuleType) -> None:
    """`visible_keys` says which tiles a query tile visits, and which of them need no mask."""
    for tile, tk, window in LIMITS:
        expect_limits(part, "visible_keys", tile, tk - tile[0], tk, window, 16)


@task("10.2")
def test_a_query_sees_itself_and_what_came_before(part: ModuleType) -> None:
    """Six queries over six keys: query j sees keys 0 to j."""
    why = "A key at the query's own position is seen; one after it is not."
    expect_spans(part, counting(6, 6, causal=True), "10.2", why)


@task("10.2")
def test_causal_over_many_tiles(part: ModuleType) -> None:
    """150 queries over 150 keys: query j sees keys 0 to j, whatever the tiles are."""
    why = "Tiles before the diagonal are seen whole; those on it need a mask for every query."
    expect_spans(part, counting(150, 150, causal=True), "10.2", why)
    everything = torch.ones(3, 3, dtype=torch.bool)
    given_problem = counting(40, 40, causal=True, block_mask=everything, mask_block=16)
    expect_spans(part, given_problem, "10.2", why)


@task("10.2")
def test_the_queries_are_the_last_ones(part: ModuleType) -> None:
    """Three queries over ten keys stand at positions 7, 8 and 9."""
    expect_spans(part, counting(3, 10, causal=True), "10.2", OFFSET)
    why = f"{OFFSET} The walk ends with the last key that the tile's last query sees."
    expect_spans(part, counting(40, 170, causal=True), "10.2", why)


@task("10.2")
def test_a_query_that_sees_nothing(part: ModuleType) -> None:
    """Five queries over two keys: the first three stand before all keys; they give 0, and lse -inf."""
    why = (
        "A query that sees nothing has a peak of -inf, and -inf - (-inf) is NaN: subtract 0 there. Its "
        "total is 0: do not divide by it."
    )
    expect_spans(part, counting(5, 2, causal=True), "10.2", why)
    expect_forward(part, problem(40, 20, causal=True), "10.2", "40 queries over 20 keys", why)


@task("10.2")
def test_a_window_ends_with_the_query(part: ModuleType) -> None:
    """With a window of 3, a query sees its own key and the two before it."""
    why = "The window counts the query's own key: key > position - window. With >= it is one too long."
    expect_spans(part, counting(8, 8, causal=True, window=3), "10.2", why)
    expect_spans(part, counting(4, 12, causal=True, window=1), "10.2", why)


@task("10.2")
def test_a_window_over_many_tiles(part: ModuleType) -> None:
    """Windows that end within tiles, at their edges, and one that is larger than the sequence."""
    why = (
        "The first tile that a query tile visits holds the first key that its first query sees; a tile "
        "is seen whole only if its last query sees all of it."
    )
    for window in (16, 33, 63, 129, 400):
        expect_spans(part, counting(150, 150, causal=True, window=window), "10.2", why)
    expect_spans(part, counting(70, 200, causal=True, window=100), "10.2", f"{why} {OFFSET}")
    wide = problem(2, 1300, causal=True, window=1100)
    why = "A window may be of any length: key > position - window."
    expect_forward(part, wide, "10.2", "2 causal queries over 1,300 keys, window 1,100", why)


def share_of_forward(part: ModuleType, given_problem: Problem, work: Work) -> float:
    """Of the products that the part computes for these shapes without masks, those of this work."""
    return work.flops / max(forward(part, without_masks(given_problem), "10.2")[2].flops, 1)


@task("10.2")
def test_tiles_above_the_diagonal_are_not_visited(part: ModuleType) -> None:
    """Of 256 queries over 256 keys, the half above the diagonal is not computed, and not read."""
    square = problem(256, 256, dtype=F16, causal=True)
    work = forward(part, square, "10.2")[2]
    expect_whole_tiles(work, "10.2")
    share = share_of_forward(part, square, work)
    expect(
        share < 0.8,
        f"{share:.0%} of all products are computed; those at and below the diagonal are 50%",
        why="Tiles above the diagonal are visited, and masked: end the loop at the last key that the "
        "tile's last query sees.",
    )


@task("10.2")
def test_tiles_before_the_window_are_not_visited(part: ModuleType) -> None:
    """With a window of 20 of 400 keys, a query tile visits a few tiles, however long the sequence."""
    narrow = problem(400, 400, dtype=F16, causal=True, window=20)
    share = share_of_forward(part, narrow, forward(part, narrow, "10.2")[2])
    expect(
        share < 0.5,
        f"{share:.0%} of all products are computed; the window's are 5%",
        why="Tiles outside the window are visited, and masked: begin the loop at the first key that the "
        "tile's first query sees.",
    )  # fmt: skip


@task("10.2")
@examples(9)
@given(problems(causal=True))
def test_any_causal_problem(part: ModuleType, problem: Problem) -> None:
    """Any lengths, any window: out is that of float64."""
    expect_forward(part, problem, "10.2")


def heads_of(values: list[float], heads: int) -> Problem:
    """Two queries of `heads` heads over 16 equal keys; all values of key head i are values[i]."""
    v = torch.tensor(values)[None, None, :, None].expand(1, 16, -1, 16).contiguous()
    return Problem(torch.zeros(1, 2, heads, 16), torch.zeros_like(v), v)


@task("10.3")
def test_neighbouring_heads_share_a_key_head(part: ModuleType) -> None:
    """Head h reads key head h // group: with 6 heads on 2, heads 0 to 2 read the first."""
    out, _, _ = forward(part, heads_of([1.0, 2.0], 6), "10.3")
    got = [round(x, 3) for x in out[0, 0, :, 0].tolist()]
    if got != [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]:
        why = "h % kv_heads would give 1, 2, 1, 2, 1, 2, and h itself is beyond the key heads."
        what = "what 6 heads get from key heads whose values are 1 and 2"
        raise Mismatch(what, "[1, 1, 1, 2, 2, 2]", str(got), why)
    with claiming(
        "Head h reads key head h // group: with 30 heads on 3, heads 0 to 9 read the first."
    ):
        expect_thirty_heads(part)


def expect_thirty_heads(part: ModuleType) -> None:
    start_script()
    out, _, _ = forward(part, heads_of([1.0, 2.0, 3.0], 30), "10.3")
    why = "10 heads in a row share a key head: any number may, and there may be any number of key heads."
    for head, value in enumerate(out[0, 0, :, 0].tolist()):
        what = f"what head {head} of 30 gets from key heads whose values are 1, 2 and 3"
        if round(value, 3) != head // 10 + 1:
            raise Mismatch(what, str(head // 10 + 1), f"{value:.4g}", why)


@task("10.3")
@examples(6)
@given(problems(group=True))
def test_any_groups(part: ModuleType, problem: Problem) -> None:
    """Any number of heads over any number of key heads."""
    expect_forward(part, problem, "10.3")


def expect_entries(
    part: ModuleType, mask: list[list[int]], tq: int, tk: int, block: int, why: str
) -> None:
    """Queries of each row of a block mask see the blocks that it keeps, and no others."""
    kept = torch.tensor(mask, dtype=torch.bool)
    given_problem = counting(tq, tk, block_mask=kept, mask_block=block)
    given_problem.v = torch.zeros(1, tk, 1, 16)
    given_problem.v[0, torch.arange(tk), 0, torch.arange(tk) // block] = 1.0
    out, _, _ = forward(part, given_problem, "10.4")
    for query in range(0, tq, block):
        row = out[0, query, 0, : kept.shape[1]]
        got = "NaN" if row.isnan().any() else str((row > 0).nonzero().flatten().tolist())
        right = str(kept[query // block].nonzero().flatten().tolist())
        if got != right:
            what = f"the blocks of {block} keys that query {query} sees, with block_mask {mask}"
            raise Mismatch(what, right, got, why)


@task("10.4")
def test_a_block_that_is_not_kept_is_not_seen(part: ModuleType) -> None:
    """Row i of the mask is about queries i * mask_block and on, column j about keys j * mask_block."""
    why = "block_mask[query // mask_block, key // mask_block]: rows are queries, columns are keys."
    expect_entries(part, [[1, 0, 1], [0, 1, 1]], 32, 48, 16, why)
    expect_entries(part, [[0, 1], [1, 0], [1, 1]], 96, 64, 32, why)


@task("10.4")
def test_rows_are_counted_from_the_first_query(part: ModuleType) -> None:
    """Row 0 of the mask belongs to query 0, wherever that stands among the keys."""
    why = "Rows of the mask count queries, not positions: fewer queries than keys do not move them."
    expect_entries(part, [[1, 0, 0, 1]], 16, 64, 16, why)


@task("10.4")
def test_every_size_of_block(part: ModuleType) -> None:
    """Blocks of 16, of 64 and of 128, smaller and larger than the kernel's own tiles."""
    why = "Tiles and mask blocks may differ in size: the entry is found by dividing where a tile starts."
    expect_entries(part, [[0, 1, 0, 1], [1, 1, 0, 0]], 128, 250, 64, why)
    expect_entries(part, [[0, 1], [1, 0]], 150, 200, 128, why)
    expect_entries(part, [[1, 0] * 5, [0, 1] * 5], 20, 150, 16, why)
    start_script()
    why = "There may be any number of rows and columns."
    with claiming(ANY_NUMBER), telling(lambda: row_instead(part)):
        expect_entries(part, [[1, 0], [0, 1]] * 4, 128, 32, 16, why)


def row_instead(part: ModuleType) -> str:
    """Which row of a block mask is read for all queries from some row on; "" if it is not so."""
    given_problem = counting(128, 128, block_mask=torch.eye(8, dtype=torch.bool), mask_block=16)
    with unshown():
        found = spans(forward(part, given_problem, "10.4")[0])[::16]
    right = [f"{16 * row}..{16 * row + 15}" for row in range(8)]
    first = next(row for row in range(8) if found[row] != right[row])
    if found[first] not in right or set(found[first:]) != {found[first]} or first == 7:
        return ""
    instead = right.index(found[first])
    return (
        f"Of a mask of 8 rows, row {instead} is read for all queries from row {first} on. The row is "
        "query // mask_block, however many there are."
    )


@task("10.4")
def test_a_row_that_keeps_nothing(part: ModuleType) -> None:
    """Queries whose row of the mask is empty give 0, and -inf as their lse."""
    kept = torch.tensor([[False, False], [True, False]])
    given_problem = problem(64, 64, block_mask=kept)
    why = (
        "No tile was visited: peak is -inf and total 0, as for a query that stands before all keys."
    )
    expect_forward(part, given_problem, "10.4", "a block mask with an empty row", why)


@task("10.4")
def test_blocks_that_are_not_kept_are_not_computed(part: ModuleType) -> None:
    """4 of 16 blocks kept: a quarter of the products, and what lies in the other blocks may be NaN."""
    kept = torch.tensor([[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]], dtype=torch.bool)
    given_problem = problem(128, 128, block_mask=kept)
    work = expect_forward(part, given_problem, "10.4", "a block mask that keeps 4 of 16")
    everything = replace(given_problem, block_mask=torch.ones_like(kept))
    whole = forward(part, everything, "10.4")[2]
    expect_kept_only(given_problem, work, whole, "the mask keeps 25%")
    for x in (given_problem.k, given_problem.v):
        x[:, 32:64] = math.nan
    out, _, _ = forward(part, given_problem, "10.4")
    expect(
        bool(out.isfinite().all()),
        "NaN in keys that no row of the mask keeps reaches the output",
        why="What is masked after it was computed still multiplies 0 by NaN.",
    )


@task("10.4")
def test_a_block_mask_beside_a_causal_one(part: ModuleType) -> None:
    """A key must pass both: the causal mask with its window, and the block mask."""
    kept = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 1]], dtype=torch.bool)
    for window in (None, 20):
        given_problem = problem(40, 48, causal=True, window=window, dtype=F32)
        given_problem.block_mask, given_problem.mask_block = kept, 16
        why = "The block mask skips tiles; inside a tile that it keeps, the causal mask holds."
        expect_forward(part, given_problem, "10.4", "causal with a block mask", why)


@task("10.4")
@examples(7)
@given(problems(mask=True))
def test_any_block_mask(part: ModuleType, problem: Problem) -> None:
    """Any block mask over any lengths."""
    expect_forward(part, problem, "10.4")
