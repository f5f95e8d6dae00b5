"""Tasks 11.1 and 11.2: one query a sequence over its block table, a group of heads in one tile."""

from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_equal, note, task
from grader.kit.far import FAR_WHY, far
from grader.kit.kernels import expect_near
from grader.kit.layout import Reading
from grader.suites.triton_paged_attention.bench import (
    MASK_WHY,
    Case,
    attend,
    expect_attention,
    expect_own_entries_read,
    expect_read_once,
    expect_rows,
    expect_the_value_itself,
    filled,
    make_case,
)


@task("11.1")
def test_a_position_is_found_through_the_table(part: ModuleType) -> None:
    """Position p lies in the block of table entry p // block_size, in its row p % block_size."""
    case = make_case([8] * 8, block_size=2, scale=1.0)
    # Sequence i asks for position i; the value of a position is its number.
    case = filled(
        case, keys=lambda i, p: 1.25 if p == i else 0.0, values=lambda i, p: float(p), q=1.0
    )
    why = (
        "The value of position p is p here, and sequence i asks for position i. A table has one entry "
        "for each block, not for each position, and the blocks of a sequence lie anywhere in the pool."
    )
    expect_rows(part, case, list(range(8)), "the positions that 8 sequences ask for", why, splits=1)


@task("11.1")
def test_what_lies_behind_the_end_has_no_say(part: ModuleType) -> None:
    """Slots behind a sequence's last key may hold anything, NaN too."""
    case = make_case([5, 1, 8], block_size=8, scale=1.0)
    expect_own_entries_read(case, expect_attention(part, case, splits=1, why=MASK_WHY))


@task("11.1")
def test_one_key_is_its_value(part: ModuleType) -> None:
    """A sequence of a single token returns that token's value."""
    case = make_case([1, 1], block_size=16)
    expect_attention(part, case, splits=1, why="One key has all the weight, whatever its score is.")


@task("11.1")
def test_no_sequences(part: ModuleType) -> None:
    """An empty batch gives an empty result."""
    out, _ = attend(part, make_case([]), splits=1)
    expect_equal(list(out.shape), [0, 1, 16], "the shape of the result without sequences")


@task("11.1")
def test_padding_without_keys_gives_zero(part: ModuleType) -> None:
    """Rows that only fill up a batch have sequences of no keys: 0 comes out, and nobody else changes."""
    case = filled(make_case([3, 0, 2, 0]), values=lambda i, p: float(i + 1))
    why = (
        "A CUDA graph replays a step of fixed size, whose spare rows are sequences of length 0. No key "
        "was seen, so the sum of weights is 0, and 0 / 0 is NaN."
    )
    expect_rows(part, case, [1.0, 0.0, 3.0, 0.0], "sequences of 3, 0, 2 and 0 keys", why, splits=1)


@task("11.1")
def test_the_scale_counts_once(part: ModuleType) -> None:
    """Scores are the products of query and key times spec.scale, whatever the size of the head is."""
    for scale in (0.25, 1.0):
        case = filled(
            make_case([2], scale=scale),
            keys=lambda i, p: float(p) / 4,
            values=lambda i, p: float(p),
            q=1.0,
        )
        why = (
            "The products are 0 and 4. The scale comes with the spec and is applied once, and a score "
            "is a power of e: exp2 needs it times log2(e)."
        )
        expect_attention(
            part, case, splits=1, what=f"the weight of the second key at scale {scale}", why=why
        )


@task("11.1")
def test_large_scores_stay_finite(part: ModuleType) -> None:
    """Scores far beyond what exp can hold give weights, not infinities."""
    case = filled(
        make_case([6], scale=1.0),
        keys=lambda i, p: 25.0 + p / 32,
        values=lambda i, p: float(p),
        q=1.0,
    )
    why = "exp(400) is infinite in float32: subtract the largest score before."
    expect_attention(part, case, splits=1, what="decode of scores from 400 to 402.5", why=why)


@task("11.1")
def test_later_tiles_rescale_the_earlier_ones(part: ModuleType) -> None:
    """However the scores rise and fall along a sequence, every key gets its share."""
    why = (
        "Sums were taken relative to the largest score so far. When a later tile has a larger one, the "
        "sum of weights and the sum of values must both shrink by exp(old largest - new largest). "
        "Relative to the first tile alone, exp of 89 is infinite in float32."
    )
    for step, height in (("rise by 1/16", 1.0), ("fall by 1/16", -1.0), ("rise by 1", 16.0)):
        case = make_case([300], block_size=16, d=16, scale=0.25)
        case = filled(
            case,
            keys=lambda i, p, h=height: h * p / 64,
            values=lambda i, p: p / 256,
            q=1.0,
        )
        what = f"decode of 300 keys whose scores {step} from key to key"
        expect_attention(part, case, splits=1, what=what, why=why)


@task("11.1")
def test_tensors_may_be_strided(part: ModuleType) -> None:
    """Queries are a slice of a fused product; blocks of keys and of values are differently far apart."""
    case = make_case([9, 6], kv_heads=2)
    fused = torch.full((2, 6, 16), 99.0)
    fused[:, 2:4] = case.q
    case = replace(case, q=fused[:, 2:4])
    pool = case.pool
    inputs = {"q": case.q, "key_blocks": pool.key_blocks, "value_blocks": pool.value_blocks}

    def compute(q: Tensor, key_blocks: Tensor, value_blocks: Tensor) -> Tensor:
        own = replace(pool, key_blocks=key_blocks, value_blocks=value_blocks)
        return replace(case, q=q, pool=own).exact()

    told = ", ".join(f"{list(x.stride())} of {name}" for name, x in inputs.items())
    why = (
        f"Strides: {told}. Only the last dimensions are packed: a block's step from its stride, while a "
        "slot always takes kv_heads * head size."
    )
    out, _ = attend(part, case, splits=1)
    reading = Reading(compute, inputs)
    expect_near(
        out, case.exact(), torch.float32, "decode of a pool with gaps", why=why, reading=reading
    )


@task("11.1")
def test_blocks_and_queries_may_be_far_apart(part: ModuleType) -> None:
    """In a large pool the offset of a block is more than int32 holds."""
    case = make_case([6, 5, 2], dtype=torch.float16)
    pool = case.pool
    with far() as apart:
        keys, values = (apart(blocks) for blocks in (pool.key_blocks, pool.value_blocks))
        distant = replace(pool, key_blocks=keys, value_blocks=values)
        case = replace(case, pool=distant, q=apart(case.q))
        expect_attention(part, case, splits=1, what="decode over a large pool", why=FAR_WHY)


@task("11.1")
def test_every_key_is_read_once(part: ModuleType) -> None:
    """Decode is bound by memory: each key and each value is read once, and nothing else of the pool."""
    case = make_case([300], block_size=16)
    why = "What is loaded of a tile serves its scores, its largest score and its weights."
    expect_read_once(case, expect_attention(part, case, splits=1), why)


@task("11.1")
def test_lanes_behind_a_head_are_masked(part: ModuleType) -> None:
    """A head of 24 numbers lies in a tile of 32: the 8 lanes behind it are neither read nor stored."""
    why = "A tile has 32 dimensions, a head 24: mask the others in every load and store."
    case = make_case([37, 5], kv_heads=2, d=24)
    expect_read_once(case, expect_attention(part, case, splits=1, why=why), why)


@task("11.1")
def test_products_of_float32_are_float32(part: ModuleType) -> None:
    """Where tl.dot multiplies float32, it does so in float32."""
    _, seen = attend(part, make_case([20]), splits=1)
    told = sorted({precision for precision in seen.precisions if precision})
    why = (
        'The default of input_precision is "tf32", which keeps 10 bits of each factor: on a GPU results '
        'are off in the fourth digit, and in the interpreter nothing shows it. Ask for "ieee".'
    )
    expect(
        told in ([], ["ieee"]), f"tl.dot multiplies float32 with input_precision {told}", why=why
    )


@task("11.1")
def test_half_precision_is_multiplied_as_it_is(part: ModuleType) -> None:
    """Where queries, keys and values are bfloat16, tl.dot multiplies bfloat16."""
    _, seen = attend(part, make_case([20], dtype=torch.bfloat16), splits=1)
    widened = sum(bool(precision) for precision in seen.precisions)
    expect(
        not widened,
        f"{widened} of {seen.dots} products multiply float32; queries, keys and values are bfloat16",
        why="Tensor cores multiply bfloat16, and a GPU multiplies float32 without them, many times "
        "slower. tl.dot sums in float32 whatever it multiplies: narrow the weights to the values' "
        "dtype, and widen neither keys nor values.",
    )


@task("11.1")
def test_a_tile_is_multiplied_twice(part: ModuleType) -> None:
    """A tile of keys takes two products: of queries and keys, of weights and values."""
    _, seen = attend(part, make_case([16]), splits=1)
    expect(
        seen.dots <= 2,
        f"tl.dot is called {seen.dots} times for 16 keys, which fit into one tile",
        why="The scores of a tile serve for its largest score and for its weights.",
    )


@task("11.1")
def test_a_sequence_may_be_long(part: ModuleType) -> None:
    """Every key of a long sequence counts."""
    why = "How many keys there are is known from seq_lens alone: there is no other bound."
    case = make_case([5000], block_size=16)
    expect_attention(part, case, splits=1, what="decode of 5000 keys", why=why)


@task("11.1")
def test_blocks_of_any_size(part: ModuleType) -> None:
    """A tile may begin in the middle of a block, and end in another one."""
    why = (
        "Position p lies in row p % block_size of its block. Where a tile's length is no multiple of "
        "the block's, its first position is not the first row of a block."
    )
    for block_size in (48, 3):
        case = make_case([200], block_size=block_size)
        what = f"decode of 200 keys in blocks of {block_size}"
        expect_attention(part, case, splits=1, what=what, why=why)


@st.composite
def decodes(draw: st.DrawFn, groups: tuple[int, ...]) -> Case:
    lens = draw(st.lists(st.integers(1, 20), min_size=1, max_size=3))
    if draw(st.integers(0, 5)) == 0:
        lens[-1] = draw(st.integers(120, 140))
    return make_case(
        lens,
        block_size=draw(st.sampled_from([1, 2, 8, 16])),
        kv_heads=draw(st.integers(1, 2)),
        group=draw(st.sampled_from(groups)),
        d=draw(st.sampled_from([16, 24, 40])),
        seed=draw(st.integers(0, 99)),
    )


@task("11.1")
@examples(10)
@given(decodes((1,)))
def test_any_decode(part: ModuleType, case: Case) -> None:
    """Any batch of decodes is its definition in float64."""
    expect_attention(part, case, splits=1, why=MASK_WHY)


@task("11.1")
def test_one_key_gives_its_value_exactly(part: ModuleType) -> None:
    """Nothing is added to the weight of a single key."""
    expect_the_value_itself(part, splits=1)


@task("11.2")
def test_neighbouring_heads_share_a_key_head(part: ModuleType) -> None:
    """Query head h reads key head h // group: with 6 heads on 2, heads 0 to 2 read the first."""
    case = filled(
        make_case([3], kv_heads=2, group=3),
        values=lambda i, p: torch.tensor([[1.0], [2.0]]),
    )
    why = "h % kv_heads would give 1, 2, 1, 2, 1, 2. The heads of a group are neighbours."
    what = "what 6 heads get from value heads that hold 1 and 2"
    out, seen = expect_rows(part, case, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0], what, why, splits=1)
    expect(
        seen.stores(out) <= out.numel(),
        f"{seen.stores(out)} numbers are written to a result of {out.numel()}",
        why="A head has one row. The rows behind the heads of the group only fill the tile.",
    )


@task("11.2")
def test_a_group_reads_its_keys_once(part: ModuleType) -> None:
    """The keys of a head are read once for all query heads of its group."""
    for group in (2, 5):
        case = make_case([21], kv_heads=2, group=group)
        seen = expect_attention(part, case, splits=1)
        read, size = seen.loads(case.pool.key_blocks), 21 * 2 * 16
        expect(
            read == size,
            f"{read} numbers of keys are read for {group} query heads a group; there are {size}",
            why="A program of its own for each query head reads the group's keys again for each of "
            "them. As rows of one tile, the group's queries share every tile of keys.",
        )


@task("11.2")
def test_a_large_group_fits(part: ModuleType) -> None:
    """Groups of any size: more heads than 16, and numbers that are no power of two."""
    why = (
        "A tile of rows is a power of two, and tl.dot wants 16: rows that are no heads must be masked, "
        "and a group of 20 needs 32 rows."
    )
    for group in (7, 20):
        case = make_case([6, 3], kv_heads=2, group=group, d=24)
        expect_attention(
            part, case, splits=1, what=f"{group} query heads on each key head", why=why
        )


@task("11.2")
def test_a_tile_has_the_rows_that_it_needs(part: ModuleType) -> None:
    """tile_rows counts all heads of all queries: the next power of two, or 16."""
    configs: Any = import_module(f"{part.__name__}.configs")
    for queries, group, rows in (
        (1, 4, 16),
        (1, 20, 32),
        (8, 1, 16),
        (9, 2, 32),
        (5, 8, 64),
        (64, 2, 128),
    ):
        found = configs.tile_rows(queries, group)
        note(f"tile_rows({queries}, {group})  # -> {found!r}")
        expect_equal(
            found,
            rows,
            f"rows of a tile for {queries} queries in {group} heads",
            why=_why_rows(found, queries * group, rows),
        )


def _why_rows(found: Any, needed: int, rows: int) -> str:
    """What is wrong with so many rows of a tile. needed: rows that hold a head of a query."""
    if type(found) is not int:
        return ""
    if found < min(needed, rows):
        return f"The group has {needed} rows: more programs read the same keys."
    if found < 16:
        return "tl.dot takes 16 rows at least."
    if found & (found - 1):
        return f"{found} is no power of two, and tl.arange takes nothing else."
    return f"The rows beyond {rows} are computed for nothing."


@task("11.2")
@examples(8)
@given(decodes((2, 3, 4, 7)))
def test_any_group(part: ModuleType, case: Case) -> None:
    """Any batch of decodes with grouped heads is its definition in float64."""
    expect_attention(
        part, case, splits=1, why="Row r of a group's tile is head kv_head * group + r."
    )
