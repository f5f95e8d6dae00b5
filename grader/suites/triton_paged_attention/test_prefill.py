"""Task 11.5: chunks of several sequences, each query at its position, over block tables."""

from collections import Counter
from dataclasses import replace
from importlib import import_module
from math import prod
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, task
from grader.kit.far import FAR_WHY, far
from grader.kit.kernels import expect_near
from grader.kit.triton_watch import Seen
from grader.suites.triton_paged_attention.bench import (
    MASK_WHY,
    Case,
    attend,
    expect_attention,
    expect_rows,
    filled,
    loads_by_program,
    make_case,
    with_gaps,
)

POSITION_WHY = (
    "Query j of a chunk of c queries stands at position seq_len - c + j, and sees the keys up to there: "
    "all that came before the chunk, and of the chunk what is not ahead of it."
)

ONCE_WHY = (
    "A tile loads its rows of q once and stores its rows of out once: no other program has them."
)


def means(lens: list[int], queries: list[int], **spec: object) -> Case:
    """All scores are 0, the value of position p is p: a query gets the mean of what it sees."""
    case = make_case(lens, queries=queries, block_size=4, **spec)  # type: ignore[arg-type]
    return filled(case, keys=lambda i, p: 0.0, values=lambda i, p: float(p))


@task("11.5")
def test_a_query_sees_what_is_not_ahead(part: ModuleType) -> None:
    """In a chunk that begins its sequence, query j sees keys 0 to j."""
    what = "the means of positions 0 to j for 5 queries"
    expect_rows(part, means([5], [5]), [0.0, 0.5, 1.0, 1.5, 2.0], what, POSITION_WHY)


@task("11.5")
def test_a_later_chunk_sees_the_earlier_ones(part: ModuleType) -> None:
    """The queries of a chunk are the last positions of their sequence."""
    what = "the means of what the last 3 of 9 positions see"
    expect_rows(part, means([9], [3]), [3.0, 3.5, 4.0], what, POSITION_WHY)


@task("11.5")
def test_every_chunk_has_its_sequence(part: ModuleType) -> None:
    """Chunks of any length stand in one flat batch, empty ones and single queries among them."""
    why = (
        "query_start_loc says where each sequence's queries begin. A tile of queries belongs to one "
        "sequence: to the table and the length of that one."
    )
    for queries in ([2, 0, 1, 6], [0, 1], [1, 1, 1, 0, 0, 1]):
        lens = [6 + 3 * i for i in range(len(queries))]
        case = make_case(lens, queries=queries)
        expect_attention(part, case, what=f"chunks of {queries} queries", why=why)


@task("11.5")
def test_rows_behind_the_last_sequence_are_padding(part: ModuleType) -> None:
    """A step that is replayed is padded: sequences without queries, and rows of no sequence."""
    case = make_case([9, 6, 5, 4], queries=[5, 2, 0, 0])
    padded = with_gaps(replace(case, q=torch.cat((case.q, *[case.q] * 5))))
    out, _ = attend(part, padded)
    expect(len(out) == len(padded.q), f"{len(out)} rows come back for {len(padded.q)}")
    why = (
        "A sequence's queries end where the next one's begin, the last one's at query_start_loc[n]. "
        "That entry begins no sequence, though tiles of padding lie behind it."
    )
    what = "the 7 queries of [5, 2, 0, 0], with 35 rows of padding behind them"
    expect_near(out[:7], case.exact(), case.q.dtype, what, why=why)


@task("11.5")
def test_a_row_of_a_tile_is_a_query_and_its_head(part: ModuleType) -> None:
    """Of every query, head h reads key head h // group."""
    case = filled(
        make_case([2], queries=[2], kv_heads=2, group=2),
        values=lambda i, p: torch.tensor([[1.0], [2.0]]),
    )
    why = "The group's heads are neighbours: h // group. h % kv_heads would give 1, 2, 1, 2."
    what = "what 4 heads get from value heads that hold 1 and 2"
    expect_rows(part, case, [1.0, 1.0, 2.0, 2.0], what, why, first=1)


@task("11.5")
def test_no_tokens(part: ModuleType) -> None:
    """Without queries there is nothing to compute."""
    for lens, queries in (([], []), ([3, 4], [0, 0])):
        out, _ = attend(part, make_case(lens, queries=queries))
        expect_equal(list(out.shape), [0, 1, 16], f"the shape of the result of {queries} queries")


@task("11.5")
def test_a_chunk_of_many_tiles(part: ModuleType) -> None:
    """Chunks that are longer than a tile of queries, and no multiple of it."""
    why = "Every query is in one tile, the last tile of a chunk is cut at the chunk's end."
    for group, queries in ((1, [70, 33]), (3, [45, 7])):
        case = make_case([80, 33], queries=queries, group=group, block_size=16)
        what = f"chunks of {queries} queries in {group} heads, of 80 and 33 keys"
        expect_attention(part, case, what=what, why=why)


@task("11.5")
def test_what_lies_behind_the_end_has_no_say_in_prefill(part: ModuleType) -> None:
    """Slots behind a sequence's last key may hold anything, NaN too."""
    expect_attention(part, make_case([5, 9], queries=[5, 2], block_size=8), why=MASK_WHY)


@task("11.5")
def test_a_window_moves_with_the_query(part: ModuleType) -> None:
    """With a window each query of a chunk sees the last `window` keys up to its own."""
    why = "The query at position p sees p - window + 1 to p: 2 to 4, 3 to 5, 4 to 6, 5 to 7."
    expect_rows(
        part,
        means([8], [4], window=3),
        [3.0, 4.0, 5.0, 6.0],
        "means of the last 4 of 8 positions, window 3",
        why,
    )
    case = make_case([150], queries=[60], window=20, block_size=16)
    expect_attention(part, case, what="60 queries of 150 keys with a window of 20", why=why)


@task("11.5")
def test_a_window_may_begin_behind_the_first_tile(part: ModuleType) -> None:
    """A tile of 128 queries begins at its first one's window, of which its last ones see nothing."""
    case = make_case(
        [170], queries=[150], kv_heads=2, d=64, block_size=16, window=5, dtype=torch.bfloat16
    )
    why = (
        "A row whose window begins behind the first tile of keys has seen nothing yet: its largest "
        "score is -inf, and -inf - -inf is NaN. Subtract 0 there."
    )
    what = "150 queries of 170 keys with a window of 5"
    expect_attention(part, case, what=what, why=why)


@task("11.5")
def test_no_tile_is_launched_for_nothing(part: ModuleType) -> None:
    """Tiles are as many as queries fill, and one more for each sequence."""
    case = make_case([200, 9, 9], queries=[200, 3, 3])
    seen = expect_attention(part, case)
    most = 206 // 16 + 3
    why = (
        "If sequence i has the tiles from query_start_loc[i] // TOKENS + i on, num_tokens // TOKENS + n "
        "are enough. Each further one is a program that finds nothing to do."
    )
    expect(
        seen.programs <= most,
        f"{seen.programs} programs for 206 queries of 3 sequences: in tiles of 16 it takes {most}",
        why=why,
    )
    grid = getattr(import_module(f"{part.__name__}.paged_attention"), "prefill_grid", None)
    if grid is None:
        return  # a part of another make
    for num_tokens, n, kv_heads, tokens in ((206, 3, 1, 16), (64, 2, 2, 32), (5, 4, 2, 10)):
        found = prod(grid(num_tokens, n, kv_heads, tokens))
        note(f"prefill_grid({num_tokens}, {n}, {kv_heads}, {tokens})  # {found} programs")
        most = kv_heads * (num_tokens // tokens + n)
        expect(
            found <= most,
            f"{found} programs for {num_tokens} queries of {n} sequences in tiles of {tokens}, on "
            f"{kv_heads} key heads: it takes {most}",
            why=why,
        )


@task("11.5")
def test_what_is_ahead_is_not_read(part: ModuleType) -> None:
    """Tiles of keys that all queries of a tile are before, or far behind, are not read."""
    case = make_case([320], queries=[320], block_size=16)
    with loads_by_program(case.pool.key_blocks) as loads:
        expect_attention(part, case)
    busy = [count // 16 for count in loads.values() if count]
    expect(
        sum(busy) <= 0.75 * len(busy) * 320,
        f"{len(busy)} programs read {sum(busy)} of 320 keys for 320 queries, "
        f"{sum(busy) / len(busy):.0f} each",
        why="A tile of queries needs the keys up to its last query: about half of them.",
    )
    for window, allowed in ((33, 64), (49, 80 + 31)):
        case = make_case([320], queries=[32], block_size=16, window=window)
        with loads_by_program(case.pool.key_blocks) as loads:
            expect_attention(part, case)
        most = max(loads.values()) // 16
        expect(
            most <= allowed,
            f"a program reads {most} keys for 32 queries at 288 to 319, whose windows of {window} begin "
            f"at {289 - window}",
            why="Begin at the window of the tile's first query, window - 1 keys before its own, or at "
            "the tile of keys where that is.",
        )


@task("11.5")
def test_what_is_ahead_is_not_multiplied(part: ModuleType) -> None:
    """A tile of keys that no query of a tile sees costs no turn of the loop."""
    case = make_case([320], queries=[32], block_size=16)
    _, last = attend(part, case)  # 32 queries that see all tiles of keys
    spec = replace(case.spec, window=33)
    _, windowed = attend(part, replace(case, spec=spec), beside=True)
    _, every = attend(part, make_case([320], queries=[320], block_size=16), beside=True)
    why = (
        "A tile whose lanes are all masked reads nothing, but takes its turn: loop from the tile of the "
        "first query's window to that of the last query's position."
    )
    for seen, most, what in (
        (every, 7.5 * last.dots, "all 320 queries of 320 keys"),
        (windowed, 0.5 * last.dots, "the last 32 queries of 320 keys with a window of 33"),
    ):
        expect(
            seen.dots <= most,
            f"{what} call tl.dot {seen.dots} times; the last 32 without a window, {last.dots} times",
            why=why,
        )


@task("11.5")
def test_a_query_does_not_see_the_rest_of_its_tile(part: ModuleType) -> None:
    """Chunks that begin just before, at and behind the end of a tile of keys."""
    why = (
        "The first query of a tile, at position p, sees p + 1 keys. A tile of keys without a mask lies "
        f"among these as a whole. {POSITION_WHY}"
    )
    lens = [34, 35, 36]
    case = make_case(lens, queries=[4, 4, 4], block_size=16)
    what = "chunks of 4 queries at positions 30, 31 and 32"
    expect_attention(part, case, what=what, why=why)


@task("11.5")
def test_tiles_that_all_queries_see_need_no_mask(part: ModuleType) -> None:
    """Of 10 tiles of keys before and in a chunk of 32 queries, one is compared with positions."""
    tiles: Any = getattr(part, "tiles", None)
    if not hasattr(tiles, "sees"):
        return  # a part of another make
    count, before = [0], tiles.sees

    def counted(*args: Any) -> Any:
        count[0] += 1
        return before(*args)

    tiles.sees = counted
    try:
        expect_attention(part, make_case([319], queries=[32], block_size=16))
    finally:
        tiles.sees = before
    expect(
        count[0] <= 1,
        f"{count[0]} of 10 tiles of 32 keys choose by a mask for 32 queries at 287 to 318",
        why="All of these queries see keys 0 to 287, which are 9 tiles: the keys up to the first query, "
        "rounded down to whole tiles. Comparing positions there costs time and hides nothing.",
    )


@task("11.5")
def test_numbers_are_read_and_written_once(part: ModuleType) -> None:
    """A number of q is read once and one of the result written once; a tile reads a key once for all of
    its heads, and one without queries reads none."""
    case = make_case([60, 9, 4], queries=[40, 3, 0], kv_heads=2, group=3, d=24, block_size=16)
    out, seen = attend(part, case)
    expect_near(out, case.exact(), case.q.dtype, "the attention", why=POSITION_WHY)
    read = numbers_by_program(seen, case.q, "reads")
    written = numbers_by_program(seen, None, "writes")
    for done, name in ((read, "q are read"), (written, "results are written")):
        total = sum(sum(counts.values()) for counts in done.values())
        different = len(set().union(*done.values()))
        what = f"{total} numbers of {name} by all programs, for 43 queries in 6 heads of 24"
        expect(total <= different, f"{what}; {different} are promised", why=ONCE_WHY)
    busy = {program for program, counts in written.items() if counts}
    for name, blocks in (("keys", case.pool.key_blocks), ("values", case.pool.value_blocks)):
        for program, counts in numbers_by_program(seen, blocks, "reads").items():
            total = sum(counts.values())
            what = f"program {program} of prefill_kernel reads {total} numbers of the {name}"
            expect(
                total == len(counts),
                f"{what}, which are {len(counts)} different ones; {len(counts)} are promised",
                why="The heads of a group have the same keys: one tile of rows serves all of them.",
            )
            why = "A spare tile has no queries. Return before anything of its keys is read."
            expect(program in busy, f"{what}, and writes no result; 0 are promised", why=why)


def numbers_by_program(
    seen: Seen, tensor: torch.Tensor | None, deed: str
) -> dict[Any, Counter[tuple[int, int]]]:
    """Of each program how often it reads or writes each number of a tensor, None for any."""
    found: dict[Any, Counter[tuple[int, int]]] = {}
    for access in seen.accesses:
        begin = access.origin.begin
        is_its = tensor is None or begin == tensor.data_ptr()
        if is_its and access.deed == deed and access.elements.size:
            numbers = ((begin, at) for at in access.elements.tolist())
            found.setdefault(access.program, Counter()).update(numbers)
    return found


@task("11.5")
def test_sinks_and_softcap_are_those_of_decode(part: ModuleType) -> None:
    """A chunk of one query is a decode: softcap and sinks change it in the same way."""
    extras: list[dict[str, Any]] = [{"softcap": 0.5}, {"sinks": torch.tensor([2.0, -1.0])}]
    for extra in extras:
        case = make_case([70, 5], queries=[1, 1], kv_heads=2, **extra)
        name = next(iter(extra))
        why = f"The kernel is given `{name}`: the same row of scores gives the same weights."
        expect_attention(part, case, what=f"chunks of one query with {name}", why=why)
        right, _ = attend(part, replace(case, queries=None), splits=1)
        out, _ = attend(part, case, beside=True)
        what = f"chunks of one query with {name}, against `decode` of the same queries"
        expect_near(out, right.double(), case.q.dtype, what, why=why)


@task("11.5")
def test_every_tile_of_a_chunk_has_its_sinks(part: ModuleType) -> None:
    """Each query has the sink of its head, in every tile of its chunk and wherever its window begins."""
    sinks = torch.tensor([2.0, -1.0, 0.5, 3.0])
    why = (
        "A tile of queries has all of its keys to itself: each of its rows has seen the sink of its "
        "query head, whichever of the chunk's tiles it is, and whatever its first key is."
    )
    for window in (None, 20):
        case = make_case([70, 9], queries=[50, 3], kv_heads=2, group=2, window=window, sinks=sinks)
        told = "no window" if window is None else f"a window of {window}"
        what = f"chunks of 50 and 3 queries with four sinks and {told}"
        expect_attention(part, case, what=what, why=why)


@task("11.5")
def test_queries_may_be_strided(part: ModuleType) -> None:
    """Queries are a slice of a fused product."""
    case = make_case([9, 6], queries=[4, 6], kv_heads=2, d=24)
    fused = torch.full((10, 6, 24), 99.0)
    fused[:, 2:4] = case.q
    expect_attention(
        part, replace(case, q=fused[:, 2:4]), why="The step from token to token is a stride."
    )


@task("11.5")
def test_chunks_may_be_far_apart(part: ModuleType) -> None:
    """The offset of a block, of a query or of a table may be more than int32 holds."""
    case = make_case([6, 5, 3], queries=[3, 2, 2], dtype=torch.float16)
    pool = case.pool
    with far() as apart:
        keys, values = (apart(blocks) for blocks in (pool.key_blocks, pool.value_blocks))
        tables = apart(pool.block_tables)
        distant = replace(pool, key_blocks=keys, value_blocks=values, block_tables=tables)
        case = replace(case, pool=distant, q=apart(case.q))
        expect_attention(part, case, what="prefill over a large pool", why=FAR_WHY)


@task("11.5")
def test_a_batch_of_many_sequences(part: ModuleType) -> None:
    """260 sequences, most of which have no query in this step."""
    queries = [0] * 260
    queries[3] = queries[127] = queries[128] = queries[258] = 1
    case = make_case([2] * 260, queries=queries)
    why = (
        "The search for a tile's sequence goes through query_start_loc 128 entries at a time: what the "
        "later ones find is added to what the earlier ones have found."
    )
    expect_attention(part, case, what="a query each of sequences 3, 127, 128 and 258", why=why)


@task("11.5")
def test_prefill_in_half_precision(part: ModuleType) -> None:
    """In float16 and bfloat16 only the result is rounded."""
    for dtype in (torch.float16, torch.bfloat16):
        case = make_case([40, 90], queries=[40, 30], group=2, block_size=16, dtype=dtype)
        expect_attention(part, case, what=f"prefill in {dtype}")


@st.composite
def prefills(draw: st.DrawFn) -> Case:
    queries = draw(st.lists(st.integers(0, 20), min_size=1, max_size=3))
    lens = [max(1, count) + draw(st.integers(0, 20)) for count in queries]
    spec: dict[str, object] = {}
    if draw(st.booleans()):
        spec["window"] = draw(st.integers(1, 20))
    return make_case(
        lens,
        queries=queries,
        block_size=draw(st.sampled_from([1, 2, 8, 16])),
        kv_heads=draw(st.integers(1, 2)),
        group=draw(st.sampled_from([1, 2, 3])),
        d=draw(st.sampled_from([16, 24])),
        seed=draw(st.integers(0, 99)),
        **spec,  # type: ignore[arg-type]
    )


@task("11.5")
@examples(10)
@given(prefills())
def test_any_prefill(part: ModuleType, case: Case) -> None:
    """Any batch of chunks is its definition in float64."""
    expect_attention(part, case, why=POSITION_WHY)
