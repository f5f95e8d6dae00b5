"""Task 11.3: the keys of a sequence divided among programs, and what they find joined."""

from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, task
from grader.suites.triton_paged_attention.bench import (
    Case,
    attend,
    expect_attention,
    expect_rows,
    expect_the_value_itself,
    filled,
    loads_by_program,
    make_case,
)
from grader.suites.triton_paged_attention.siblings import SHARE_WHY


def choose(part: ModuleType, n: int, kv_heads: int, max_keys: int, tile: int, places: int) -> int:
    splits: Any = import_module(f"{part.__name__}.splits")
    found = splits.choose_splits(n, kv_heads, max_keys, tile, places)
    note(f"choose_splits({n}, {kv_heads}, {max_keys}, {tile}, {places})  # -> {found!r}")
    expect(isinstance(found, int), f"choose_splits gives {found!r}, which is no int")
    limit = min(64, max(1, -(-max_keys // tile)))
    expect(
        1 <= found <= limit,
        f"{found} splits of {max_keys} keys in tiles of {tile}",
        why=f"A part has at least a tile, and there are at most 64: 1 to {limit} here.",
    )
    return found


@task("11.3")
def test_few_sequences_fill_the_machine(part: ModuleType) -> None:
    """Where sequences times key heads leave places empty, the keys are divided until they do not."""
    for n, kv_heads, places in ((1, 8, 396), (4, 8, 264), (1, 1, 40), (30, 4, 396)):
        found = choose(part, n, kv_heads, 32768, 64, places)
        programs = n * kv_heads * found
        expect(
            places / 2 < programs <= places or found == 64,
            f"{n} sequences of 32768 keys on {kv_heads} heads, {places} places: {found} splits are "
            f"{programs} programs",
            why="More than half of the places should work, and what does not fit into them at once runs "
            "alone at the end.",
        )


@task("11.3")
def test_many_sequences_are_not_split(part: ModuleType) -> None:
    """Where sequences and key heads alone fill the machine, there is nothing to gain."""
    for n in (50, 256):
        found = choose(part, n, 8, 4096, 64, 396)
        why = (
            "Each split writes a partial result that another kernel reads: it must bring something."
        )
        expect_equal(found, 1, f"splits of {n} sequences on 8 heads, with 396 places", why=why)


@task("11.3")
def test_no_split_is_smaller_than_a_tile(part: ModuleType) -> None:
    """Short keys are divided into as many tiles as they have, or fewer."""
    for max_keys in (1, 64, 65, 1024):
        choose(part, 1, 8, max_keys, 64, 396)


@task("11.3")
def test_parts_are_weighed(part: ModuleType) -> None:
    """Parts whose scores differ much are joined by the weight of each."""
    for height in (1.0, -1.0):
        case = filled(
            make_case([500], block_size=16),
            keys=lambda i, p, h=height: h * p / 256,
            values=lambda i, p: p / 256,
            q=1.0,
        )
        what = f"500 keys in 4 parts, scores that {'rise' if height > 0 else 'fall'} by 1/64 a key"
        expect_attention(part, case, splits=4, what=what, why=SHARE_WHY)


@task("11.3")
def test_equal_parts_of_unequal_length(part: ModuleType) -> None:
    """A part with more keys counts for more."""
    case = filled(
        make_case([300], block_size=16), keys=lambda i, p: 0.0, values=lambda i, p: float(p >= 256)
    )
    what = "the weight of the last 44 of 300 keys that score alike, in 3 parts"
    expect_attention(part, case, splits=3, what=what, why=SHARE_WHY)


@task("11.3")
def test_an_empty_part_leaves_no_trace(part: ModuleType) -> None:
    """A sequence shorter than the number of parts has empty ones, which count for nothing."""
    why = (
        "A part without keys has seen no score: its largest is -inf, and -inf - -inf is NaN. What it "
        "would have written is whatever lay in that memory: the combination must not read it, or must "
        "give it no weight and no NaN."
    )
    for lens in ([5, 300, 1], [256]):
        what = f"sequences of {lens} keys in 4 parts"
        expect_attention(part, make_case(lens, block_size=16), splits=4, what=what, why=why)
    case = make_case([0], block_size=16)
    why = "Without keys all parts are empty: every lse is -inf, and the sum of their weights is 0."
    expect_rows(part, case, [0.0], "a sequence of no keys in 2 parts", why, splits=2)


@task("11.3")
def test_every_head_has_its_own_parts(part: ModuleType) -> None:
    """What a part of a head of a sequence leaves behind is joined for that head and that sequence."""
    case = make_case([300, 2, 290], block_size=16, kv_heads=2, d=24)
    why = (
        "One kernel writes parts [n, heads, splits, d] and lses [n, heads, splits], another one reads "
        "them: both count sequence, head and split in that order."
    )
    what = "3 sequences with 2 heads of 24 each, in 3 parts"
    expect_attention(part, case, splits=3, what=what, why=why)


@task("11.3")
def test_parts_of_large_scores_stay_finite(part: ModuleType) -> None:
    """Parts whose lse is far beyond what exp2 can hold have weights, not infinities."""
    case = filled(make_case([200], scale=1.0), keys=lambda i, p: 25.0 + p / 1024, q=1.0)
    why = "exp2(577) is infinite in float32: subtract the largest lse from each before."
    expect_attention(
        part, case, splits=2, what="200 keys that score about 400, in 2 parts", why=why
    )


@task("11.3")
def test_parts_are_joined_in_float32(part: ModuleType) -> None:
    """In bfloat16, only the result of the join is rounded."""
    case = make_case([256], block_size=16, dtype=torch.bfloat16)
    case = filled(
        case,
        keys=lambda i, p: 0.0,
        values=lambda i, p: -256.0 if p >= 128 else 258.0 if p < 57 else 256.0,
    )
    why = (
        "The first 128 keys give 256.89, the others -256. As bfloat16 the first is 256: parts, weights "
        "and their sum are float32."
    )
    expect_rows(
        part, case, [57 / 128], "the mean of 256 values in bfloat16, in 2 parts", why, splits=2
    )


@task("11.3")
def test_one_long_sequence_is_shared(part: ModuleType) -> None:
    """Left alone, decode divides one long sequence among programs, evenly and without overlap."""
    case = make_case([1500], block_size=16)
    with loads_by_program(case.pool.key_blocks) as loads:
        attend(part, case)
    busy = [count // 16 for count in loads.values() if count]
    readers = "1 program reads" if len(busy) == 1 else f"{len(busy)} programs read"
    idle = len(loads) - len(busy)
    why = "One program for each key head leaves 131 of 132 multiprocessors idle."
    if len(busy) == 1 and idle:
        why = (
            f"{idle} more programs run, and find no keys: one part holds all tiles. A part is the tiles "
            "divided by the splits, rounded up."
        )
    expect(
        len(busy) >= 6,
        f"{readers} the 1500 keys of the only sequence",
        why=why,
    )
    expect_equal(sum(busy), 1500, "keys that all programs read together", why="Each key once.")
    expect(
        max(busy) <= 256,
        f"one program reads {max(busy)} of 1500 keys while there are {len(busy)}: {busy}",
        why="The slowest program decides: all take the same number of tiles, the last perhaps less.",
    )
    cut = [count for count in busy if count % 16]
    expect(
        len(cut) <= 1,
        f"{len(cut)} of {len(busy)} parts end within a tile: {busy}",
        why="A program takes as long for a piece of a tile as for the whole one: parts are whole tiles, "
        "only the last one of a sequence may be less.",
    )


@task("11.3")
def test_whole_tiles_are_dealt_out_evenly(part: ModuleType) -> None:
    """The longest part has the tiles of a sequence divided by the parts, rounded up."""
    for keys, splits, most in ((512, 4, 1), (896, 4, 2)):
        case = make_case([keys], block_size=16)
        with loads_by_program(case.pool.key_blocks) as loads:
            attend(part, case, splits=splits)
        busy = sorted(count // 16 for count in loads.values() if count)
        tiles = -(-keys // 128)
        expect(
            max(busy) <= most * 128,
            f"{keys} keys in tiles of 128 and {splits} parts: the programs that read any read {busy} "
            "keys",
            why=f"{keys} keys are {tiles} tiles: of {splits} parts, the longest has {most}. The slowest "
            "program decides: what is left over is no part's alone, and where nothing is left over, "
            "nothing is rounded up.",
        )


@task("11.3")
def test_all_parts_are_joined(part: ModuleType) -> None:
    """The join reads as many parts as there may be."""
    case = make_case([1024], block_size=16, d=256)
    why = (
        "choose_splits gives up to MAX_SPLITS parts, 64, and a sequence with that many tiles has keys "
        "in each of them."
    )
    what = "1024 keys with heads of 256, which are 64 tiles, in 64 parts"
    expect_attention(part, case, splits=64, what=what, why=why)


@task("11.3")
def test_a_part_computes_its_own_tiles(part: ModuleType) -> None:
    """All parts together multiply as many tiles as one program would."""
    case = make_case([512], block_size=16)
    _, whole = attend(part, case, splits=1)
    _, seen = attend(part, case, splits=4, beside=True)
    expect(
        seen.dots <= whole.dots,
        f"4 parts of 512 keys call tl.dot {seen.dots} times; in one part it takes {whole.dots}",
        why="A tile whose lanes are all masked reads nothing, but takes its turn: a program loops over "
        "the tiles from start to end, which part_of gave it, and over no others.",
    )


@task("11.3")
def test_a_key_belongs_to_one_part(part: ModuleType) -> None:
    """However often they are divided, all keys are read once."""
    for splits in (3, 7):
        case = make_case([390, 129], block_size=16, kv_heads=2)
        _, seen = attend(part, case, splits=splits)
        for name, blocks in (("keys", case.pool.key_blocks), ("values", case.pool.value_blocks)):
            expect_equal(
                seen.loads(blocks),
                (390 + 129) * 2 * 16,
                f"numbers read of the {name} of 390 + 129 positions, in {splits} parts",
                why="Parts neither overlap nor leave anything out, and nobody reads what is not there.",
            )


@task("11.3")
def test_the_bound_is_only_a_bound(part: ModuleType) -> None:
    """max_seq_len is for choosing splits: a bound far beyond the real lengths changes no result."""
    case = make_case([9, 30])
    pool, spec = case.pool, case.spec
    out = part.PagedAttention().decode(
        case.q,
        pool.key_blocks,
        pool.value_blocks,
        pool.block_tables,
        pool.seq_lens,
        spec,
        max_seq_len=5000,
    )
    attend_exact(out, case)


def attend_exact(out: Any, case: Case) -> None:
    from grader.kit.kernels import expect_near

    why = "A program learns from seq_lens, on the device, where its sequence ends."
    expect_near(out, case.exact(), case.q.dtype, "decode with max_seq_len=5000", why=why)


@st.composite
def split_decodes(draw: st.DrawFn) -> tuple[Case, int]:
    lens = draw(st.lists(st.integers(1, 12), min_size=1, max_size=2))
    lens.append(draw(st.integers(1, 400)))
    case = make_case(
        lens, block_size=16, kv_heads=draw(st.integers(1, 2)), seed=draw(st.integers(0, 99))
    )
    return case, draw(st.integers(1, 5))


@task("11.3")
@examples(8)
@given(split_decodes())
def test_any_number_of_parts(part: ModuleType, case: tuple[Case, int]) -> None:
    """Divided or not, the result is the same."""
    expect_attention(part, case[0], splits=case[1], why=SHARE_WHY)


@task("11.3")
def test_one_key_in_many_parts_gives_its_value_exactly(part: ModuleType) -> None:
    """Nothing is added to the weight of the only part that has a key."""
    expect_the_value_itself(part, splits=4)
