"""Tasks 15.3 and 15.4: the loop over tiles of keys, and what the mask leaves of it."""

import math
from contextlib import suppress
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import Mismatch, examples, expect_equal, note, start_script, task
from grader.kit.cuda_work import blamed
from grader.kit.kernels import attention, seen
from grader.kit.script import off_the_record
from grader.suites.cuda_flash_attention.bench import (
    F32,
    PAST_THE_LAST,
    drawn,
    expect_forward,
    expect_rounded_once,
    fine_inputs,
    inputs,
    one_past,
    probe_mask,
    said,
)
from grader.suites.cuda_flash_attention.mistakes import rounded_kinds
from yaie.core.batch import AttentionSpec

PLACES = (
    "Element [r][c] of thread (y, x) belongs to query first_query + r * 8 + y and to key first_key + "
    "c * 16 + x."
)


@task("15.3")
def test_one_tile_of_keys(part: ModuleType) -> None:
    """Without a mask, and with keys that fill one tile, out is softmax(scale q k^T) v."""
    why = (
        "In a tile: scores, times the scale; update makes weights of them; weights times values; and at "
        "the end each row is divided by its sum."
    )
    qkv = inputs(1, 64, 64, 1, 1, 16)
    expect_forward(part, qkv, "64 queries, 64 keys", why, causal=False)
    why = (
        "With 64 queries this is right. A tile of keys has as many rows as there are keys left (there), "
        f"not as many as queries (count). {PLACES}"
    )
    qkv = inputs(1, 3, 64, 1, 1, 16)
    expect_forward(part, qkv, "3 queries, 64 keys", why, causal=False)


@task("15.3")
def test_the_scale_is_the_callers(part: ModuleType) -> None:
    """Scores are scale * q . k, once, whatever the head size is."""
    # Not 0.5: its square is 1 / sqrt(16), and two mistakes would give the same numbers.
    why = "The scale here is 0.3, and 1 / sqrt(16) is 0.25: it is the argument that counts, once."
    qkv = inputs(1, 2, 64, 1, 1, 16)
    expect_forward(part, qkv, "2 queries, 64 keys", why, scale=0.3, causal=False)


@task("15.3")
def test_several_tiles_of_keys(part: ModuleType) -> None:
    """Keys of several tiles are all taken in; the last tile may be partly empty."""
    why = (
        "With one tile this is right. The keys of the second begin at first_key, and so do its values. "
        "acc gains what each tile adds."
    )
    expect_forward(part, inputs(1, 5, 128, 1, 1, 16), "5 queries, 128 keys", why, causal=False)
    why = (
        "With two full tiles this is right. Keys past the last one are no keys: their score is "
        f"-infinity, not 0. Compare the number of the key with tk. {PLACES}"
    )
    expect_forward(part, inputs(1, 5, 131, 1, 1, 16), "5 queries, 131 keys", why, causal=False)


@task("15.3")
def test_keys_past_the_end_have_no_score(part: ModuleType) -> None:
    """19 keys with a score of -20,000 each: what fills the tile weighs nothing beside them."""
    q, k, v = inputs(1, 2, 19, 1, 1, 16)
    q[:], k[:] = 1.0, -5000.0  # at a scale of 1/4
    try:
        expect_forward(part, (q, k, v), "19 keys with score -20000", "", scale=0.25, causal=False)
    except Mismatch as error:
        error.why = error.why or hidden_by(part, v)
        raise


def hidden_by(part: ModuleType, v: Tensor) -> str:
    """The finite score that keys past the last one are given, by the share of weight that they take."""
    told = "The tile's other keys do not exist: their score is -infinity, which no sum notices."
    low, high, count, tile = -20000.0, 10.0, v.shape[1], 64
    right = v.double().mean(dim=1).flatten()
    with off_the_record(), suppress(Exception):
        for _ in range(20):  # until the keys' scores are close to that one
            score = (low + high) / 2
            q, k = torch.ones(1, 1, 1, 16), torch.full((1, count, 1, 16), score / 4)
            out, _ = part.FlashAttention().forward(q, k, v, scale=0.25, causal=False)
            share = float((out.double().flatten() @ right) / (right @ right))
            if 0.01 < share < 0.99:
                # exp(score) * count and exp(hidden) * others share the weight.
                odds = (1 - share) / share * count / (tile - count)
                hidden = round(score + math.log(odds))
                return f"{told} Here it is {hidden:,}, above -20,000, and takes all of the weight."
            low, high = (low, score) if share >= 0.99 else (score, high)
    return told


@task("15.3")
def test_several_tiles_of_queries(part: ModuleType) -> None:
    """Every thread block has its own queries, sequence and head."""
    why = "Keys and values are those of the block's own sequence and of its kv_head, both in at()."
    expect_forward(part, inputs(2, 70, 5, 2, 2, 16), "2 x 70 queries, 5 keys", why, causal=False)


@task("15.3")
def test_query_heads_share_key_heads(part: ModuleType) -> None:
    """Head h reads key and value head h // (heads / kv_heads)."""
    q, k, v = inputs(1, 2, 4, 6, 2, 16)
    v[:, :, 0], v[:, :, 1] = 1.0, 2.0
    why = (
        "Heads 0 to 2 read key head 0, whose values are 1; heads 3 to 5 read key head 1, values 2."
    )
    expect_forward(part, (q, k, v), "6 heads on 2", why, causal=False)


@task("15.3")
def test_half_types_are_summed_in_float32(part: ModuleType) -> None:
    """bfloat16 and float16 inputs: tiles, scores and sums are float32, only out is rounded."""
    for dtype in (torch.bfloat16, torch.float16):
        q, k, v = inputs(1, 2, 100, 1, 1, 16, dtype)
        why = "Weights or sums in half precision would be off in the third digit."
        expect_forward(part, (q, k, v), f"100 keys in {dtype}", why, causal=False)


@task("15.3")
def test_sums_of_many_tiles(part: ModuleType) -> None:
    """Over many tiles the error in bfloat16 is that of rounding the result, not of every step."""
    q, k, v = inputs(1, 4, 400, 1, 1, 64, torch.bfloat16)
    note("forward: 4 queries, 400 keys in bfloat16, causal=False")
    out, _ = part.FlashAttention().forward(q, k, v + 1, scale=0.05, causal=False)
    exact, _ = attention(q, k, v + 1, AttentionSpec(0.05), causal=False)

    def error_of(x: Tensor, right: Tensor = exact) -> float:
        return float((x.double() - right.double()).norm() / exact.norm())

    error, rounding = error_of(out), error_of(exact.bfloat16())
    if error < 1.5 * rounding:
        return
    near = [
        told
        for told, rounded in rounded_kinds(q, k, v + 1, 0.05).items()
        if error_of(out, rounded) < rounding / 2
    ]
    raise Mismatch(
        "the relative error of out is more than that of one rounding",
        f"{rounding:.5f}, that of the exact result rounded to bfloat16",
        f"{error:.5f}",
        near[0] if len(near) == 1 else "Tiles, scores, weights and sums are float32.",
    )


@task("15.3")
def test_views_of_one_product(part: ModuleType) -> None:
    """q, k and v may be views of one tensor [n, t, (heads + 2 kv_heads) * d]: strides count."""
    fused = inputs(1, 6, 6, 4, 4, 16)[0].flatten(2)
    q, k, v = (piece.unflatten(2, (-1, 16)) for piece in fused.split([32, 16, 16], dim=2))
    why = "The next token of q lies 64 elements on, not 32: use token_stride."
    expect_forward(part, (q, k, v), "views of a fused product", why, causal=False)


@task("15.3")
@examples(6)
@given(
    tq=st.integers(1, 10),
    tk=st.integers(1, 70),
    heads=st.sampled_from([(1, 1), (2, 1)]),
    dim=st.sampled_from([16, 24, 80, 96, 128]),
    dtype=st.sampled_from([F32, torch.float16]),
)
def test_any_full_attention(
    part: ModuleType, tq: int, tk: int, heads: tuple[int, int], dim: int, dtype: torch.dtype
) -> None:
    """Any lengths, heads, head sizes and dtypes, without a mask."""
    what = f"{tq} queries, {tk} keys, {heads[0]} heads of {dim} on {heads[1]}"
    expect_forward(part, inputs(1, tq, tk, *heads, dim, dtype), what, PLACES, causal=False)


@task("15.3")
def test_a_head_of_256(part: ModuleType) -> None:
    """The largest head size has tiles of 256 columns, all of which are loaded and multiplied."""
    why = "A tile of 256 columns has 64 pieces of four elements a row: more than a warp has lanes."
    with blamed("uninitialized", why):
        expect_forward(part, inputs(1, 3, 5, 1, 1, 256), "a head of 256", why, causal=False)


@task("15.3")
def test_a_score_of_0_is_a_score(part: ModuleType) -> None:
    """A query of zeros has the score 0 with every key, and sees all of them."""
    q, k, v = inputs(1, 2, 70, 1, 1, 16)
    q[:, 0] = 0.0
    why = "All scores of query 0 are 0, and its output is the mean of 70 values. What does not exist is "
    why += "known by its number, and not by its score."
    expect_forward(part, (q, k, v), "70 keys, one query of zeros", why, causal=False)


@task("15.3")
def test_only_the_output_is_rounded(part: ModuleType) -> None:
    """With 16-bit inputs scores, weights and sums are float32, to the last bit of the output."""
    for dtype in (torch.bfloat16, torch.float16):
        q, k, v = fine_inputs(1, 5, 130, 1, 1, 16, dtype)
        note(f"forward: 5 queries, 130 keys, 1 head of 16, {dtype}, causal=False")
        out, _ = part.FlashAttention().forward(q, k, v, scale=0.3, causal=False)
        exact, _ = attention(q, k, v, AttentionSpec(0.3), causal=False)
        kinds = {told: lambda x=x: x for told, x in rounded_kinds(q, k, v, 0.3).items()}
        expect_rounded_once(out, exact, f"out of 130 keys in {dtype}", kinds)


INSIDE = (
    "Of the {0} that exist these are right, but the span {1}. It must stay within 0 and {2}: the tiles "
    "begin where it begins, and end where it ends."
)
LONGER = (
    "This span holds all that its tile sees, and more: tiles are computed for nothing. Both ends follow "
    "from the tile's first and last query (or key)."
)
SHORTER = "This span leaves out some of what its tile sees: {0}."
EXCLUSIVE = "Ends are exclusive: one behind the last {0} that any row of the tile sees."
SOME_BLOCK = (
    "A tile may touch several blocks, in both directions: one True among all of them is enough."
)


def reason_of(got: list[int], right: list[int], size: int, which: str, why: str) -> str:
    """Why a span is not the right one, as far as the two tell. right: [0, 0] if it is empty. which: it
    counts, "key" or "query"."""
    begin, end = max(got[0], 0), min(got[1], size)
    if [begin, end] == right or (begin >= end and right == [0, 0]):
        wide = [f"begins at {got[0]}"] * (got[0] < 0) + [f"ends at {got[1]}"] * (got[1] > size)
        plural, count = {"key": ("keys", "tk"), "query": ("queries", "tq")}[which]
        return INSIDE.format(plural, " and ".join(wide), f"{count}, {size}")
    if begin <= right[0] and right[1] <= end:
        return LONGER
    if not (right[0] <= begin and end <= right[1]):
        return why
    pieces = [(right[0], min(begin, right[1])), (max(end, right[0]), right[1])]
    left = [f"{which} {a}" + f" to {b - 1}" * (b - a > 1) for a, b in pieces if b > a]
    if got == [right[0], right[1] - 1]:
        why = EXCLUSIVE.format(which)
    return f"{SHORTER.format(' and '.join(left))} {why}".rstrip()


def by_blocks(sees: Tensor, query: int, key: int, rules: dict[str, Any]) -> str:
    """Which entry of a block mask decides about a wrong pair, and which one was read, if no other rule
    is in force; else ""."""
    blocks: Tensor | None = rules.get("block_mask")
    if blocks is None or rules["causal"] or rules.get("window"):
        return ""
    size, columns = rules["mask_block"], blocks.shape[1]
    rows, places = (torch.arange(count) // size for count in sees.shape)
    held = blocks.flatten()
    at = places[None] * columns + rows[:, None]
    row, column = query // size, key // size
    right = f"block_mask[{row}][{column}], {bool(blocks[row, column])}"
    if int(at.max()) < len(held) and torch.equal(held[at], sees):
        return (
            f"block_mask[{column}][{row}] came out, the key's block first. Rows are those of queries: "
            f"it is {right}."
        )
    return f"With blocks of {size} it is {right}."


def expect_mask(part: ModuleType, tq: int, tk: int, size: int, why: str, **rules: Any) -> None:
    """All methods of Mask agree with which keys each query sees."""
    sees, key_spans, query_spans, any_block = probe_mask(part, tq, tk, size, **rules)
    right = seen(tq, tk, **rules)
    if not torch.equal(sees, right):
        query, key = (int(i) for i in (sees != right).nonzero()[0])
        raise Mismatch(
            f"sees(query {query}, key {key}) with {tq} queries and {tk} keys, {said(rules)}",
            str(bool(right[query, key])),
            str(bool(sees[query, key])),
            by_blocks(sees, query, key, rules)
            or f"Query {query} stands at position {tk - tq + query}. {why}",
        )
    in_order = {name: rule for name, rule in rules.items() if "block" not in name}
    ranges = seen(tq, tk, **in_order)
    for name, which, spans, table in (
        ("keys_of", "key", key_spans, ranges),
        ("queries_of", "query", query_spans, ranges.T),
    ):
        for tile, span in enumerate(spans):
            rows = table[tile * size : (tile + 1) * size].any(0).nonzero().flatten().tolist()
            first, end = tile * size, min((tile + 1) * size, len(table))
            wanted = [rows[0], rows[-1] + 1] if rows else [0, 0]
            expect_equal(
                list(span) if span[0] < span[1] else "none",
                wanted if rows else "none",
                f"{name}({first}, {end}) of {tq} queries and {tk} keys, {said(rules)}",
                why=reason_of(span, wanted, table.shape[1], which, why),
            )
    blocks: Tensor | None = rules.get("block_mask")
    if blocks is not None:
        start_script()
        note(f"Mask: {tq} queries, {tk} keys, {said(rules)}")
        wide = seen(tq, tk, causal=False, block_mask=blocks, mask_block=rules["mask_block"])
        for row in range(-(-tq // size)):
            for column in range(-(-tk // size)):
                first, other = row * size, column * size
                touched = bool(wide[first : first + size, other : other + size].any())
                beyond = first + size > tq or other + size > tk
                reason = PAST_THE_LAST if beyond else why
                last_row, last_column = min(first + size, tq) - 1, min(other + size, tk) - 1
                shift = rules["mask_block"]
                if touched and not any_block[row, column]:
                    reason = blocks_missed(part, tq, tk, size, row, column, rules)
                reason = (
                    f"The tile has queries {first} to {last_row} and keys {other} to {last_column}: "
                    f"block rows {first // shift} to {last_row // shift}, columns {other // shift} to "
                    f"{last_column // shift}, of the blocks {drawn(blocks)}. {reason}"
                )
                expect_equal(
                    bool(any_block[row, column]),
                    touched,
                    f"any_block({{{first}, {first + size}}}, {{{other}, {other + size}}}) of {tq} "
                    f"queries and {tk} keys, blocks of {rules['mask_block']}",
                    why=reason,
                )


def blocks_missed(
    part: ModuleType, tq: int, tk: int, size: int, row: int, column: int, rules: dict[str, Any]
) -> str:
    """For which blocks that a tile touches `any_block` is False although they are True, each tried as
    the only one."""
    shift = rules["mask_block"]
    blocks = torch.zeros_like(rules["block_mask"])
    touched, missed = [], []
    for i in range(row * size // shift, (min((row + 1) * size, tq) - 1) // shift + 1):
        for j in range(column * size // shift, (min((column + 1) * size, tk) - 1) // shift + 1):
            one = blocks.clone()
            one[i, j] = True
            with off_the_record():
                got = probe_mask(part, tq, tk, size, **{**rules, "block_mask": one})[3]
            touched.append((i, j))
            missed += [] if got[row, column] else [(i, j)]
    if not missed or len(missed) == len(touched):
        return SOME_BLOCK
    for axis, name in ((0, "row"), (1, "column")):
        numbers = sorted({place[axis] for place in missed})
        if missed == [place for place in touched if place[axis] in numbers]:
            return (
                f"Blocks of {name} {', '.join(map(str, numbers))} are not looked at. {SOME_BLOCK}"
            )
    seen = [place for place in touched if place not in missed]
    if len(seen) < len(missed):
        return f"Only {_named(seen)} are looked at. {SOME_BLOCK}"
    return f"Of these {_named(missed)} are not looked at. {SOME_BLOCK}"


def _named(places: list[tuple[int, int]]) -> str:
    return f"blocks {' '.join(f'[{i}][{j}]' for i, j in places)}"


@task("15.4")
def test_the_causal_mask(part: ModuleType) -> None:
    """A query sees the keys up to its position, tk - tq + j; tiles end where their last query stands."""
    expect_mask(part, 6, 6, 4, "", causal=True)
    why = "The triangle is aligned to the last key: a prompt's second half sees its first."
    for tq, tk in ((3, 9), (9, 4)):
        expect_mask(part, tq, tk, 4, why, causal=True)
    expect_mask(part, 3, 5, 4, "Without causality all keys are seen.", causal=False)


@task("15.4")
def test_the_window(part: ModuleType) -> None:
    """Under a window of w a query sees the last w keys up to its position, its own included."""
    why = "A window of 3 at position 7 is keys 5, 6 and 7: neither two nor four of them."
    for tq, tk, window in ((8, 8, 3), (4, 12, 1), (10, 6, 4)):
        expect_mask(part, tq, tk, 4, why, causal=True, window=window)


def blocks_of(*rows: str) -> Tensor:
    return torch.tensor([[mark == "x" for mark in row] for row in rows])


@task("15.4")
def test_the_block_mask(part: ModuleType) -> None:
    """Query i and key j meet where block_mask[i // size][j // size] is True; tiles may touch several."""
    why = (
        "Both numbers are divided by the size of the mask's blocks, and rows are those of queries."
    )
    square = blocks_of(".x.", "x..", "xx.")
    expect_mask(part, 40, 40, 16, why, causal=False, block_mask=square, mask_block=16)
    mask = blocks_of(".x.", "x..")
    for tile in (8, 16, 32):
        expect_mask(part, 20, 40, tile, why, causal=False, block_mask=mask, mask_block=16)
    expect_mask(part, 20, 40, 16, why, causal=True, block_mask=mask, mask_block=16)
    # Four tiles of 2 x 2 blocks, each with its only True one in another corner; one tile of 4 x 4.
    corners, between = (
        blocks_of("x..x", "....", "....", "x..x"),
        blocks_of("....", ".x..", "....", "...."),
    )
    expect_mask(part, 64, 64, 32, why, causal=False, block_mask=corners, mask_block=16)
    expect_mask(part, 64, 64, 64, why, causal=False, block_mask=between, mask_block=16)
    # The only True block is that of the last query and the last key alone.
    last = blocks_of("..", ".x")
    expect_mask(part, 17, 17, 32, why, causal=False, block_mask=last, mask_block=16)


@task("15.4")
def test_rules_that_meet(part: ModuleType) -> None:
    """A key is seen if causality, window and block mask all allow it, whatever a block's size."""
    why = "Each of the three rules may hide a key, and none of them lifts another."
    for tq, tk, window, size in (
        (40, 40, 20, 16),
        (20, 45, 9, 16),
        (45, 33, 7, 32),
        (70, 70, 40, 32),
    ):
        rows, columns = -(-tq // size), -(-tk // size)
        mask = (torch.arange(rows)[:, None] + torch.arange(columns)) % 3 != 1
        for rule in (window, None):
            expect_mask(
                part, tq, tk, 16, why, causal=True, window=rule, block_mask=mask, mask_block=size
            )


@task("15.4")
@examples(30)
@given(
    tq=st.integers(1, 40),
    tk=st.integers(1, 40),
    window=st.none() | st.integers(1, 12),
    size=st.sampled_from([4, 16, 32]),
)
def test_any_mask(part: ModuleType, tq: int, tk: int, window: int | None, size: int) -> None:
    """Any lengths and windows: spans hold every visible pair, and end at the last one."""
    why = "A span that is too short loses keys."
    expect_mask(part, tq, tk, size, why, causal=True, window=window)


@task("15.4")
def test_masks_in_the_forward_pass(part: ModuleType) -> None:
    """forward applies the mask: causal, window, block mask, and queries that see nothing."""
    hidden = "If has_rules(), sees decides: hidden scores are -infinity before the softmax."
    why = f"{hidden} {PLACES}"
    expect_forward(part, inputs(1, 70, 70, 1, 1, 16), "70 causal", why)
    alone = (
        "A query without keys has only scores of -infinity: it gives 0, and -infinity as its lse."
    )
    expect_forward(part, inputs(1, 9, 4, 1, 1, 16), "9 queries on 4 keys", alone)
    expect_forward(part, inputs(1, 8, 140, 1, 1, 16), "a window of 5", why, window=5)
    why = f"{hidden} Every rule counts in every tile, also where all of its keys stand before a query."
    expect_forward(part, inputs(1, 40, 200, 1, 1, 16), "a window of 110", why, window=110)
    mask = blocks_of(".xx.x.x", "x.x.xx.")
    for window in (None, 110):
        expect_forward(
            part, inputs(1, 40, 200, 1, 1, 16), f"a block mask and window {window}", why,
            window=window, block_mask=mask, mask_block=32,
        )  # fmt: skip
    why = f"{hidden} A block mask is a rule without causality, too."
    mask = blocks_of(".x.x.")

    def check(tq: int, tk: int) -> None:
        expect_forward(
            part, inputs(1, tq, tk, 1, 1, 16), "a block mask", why, causal=False, block_mask=mask,
            mask_block=16,
        )  # fmt: skip

    start_script()
    check(8, 75)
    start_script()
    with one_past(check, 16, 80):  # these fill their blocks
        check(16, 80)
