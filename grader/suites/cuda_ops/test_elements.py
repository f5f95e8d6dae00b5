"""Tasks 14.4 to 14.6: number by number, and pair by pair."""

from types import ModuleType

import torch
from hypothesis import given
from torch import Tensor

from grader.kit import examples, expect, expect_close, expect_equal, task
from grader.kit.cuda_work import blamed, expect_no_wrap, expect_whole_sectors, expect_wide, work_of
from grader.kit.kernels import expect_near, random, rope, rotary_tables, silu_mul, store_kv
from grader.suites.cuda_ops.exact import BF16, F32, ODD, heads, kernels_of, rows

QUARTER = (
    torch.tensor([[1.0, 1.0], [0.0, 1.0], [-1.0, 1.0]]),
    torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]),
)
"""cos and sin: pair 0 turns by 0, 90 and 180 degrees at positions 0, 1 and 2, pair 1 never."""
HALVES = (
    "A pair is (x[0], x[2]) here, not the neighbours (x[0], x[1]). By 90 degrees (1, 3) becomes "
    "(-3, 1): the minus goes to the first half, and both come from the old values."
)
ONCE = "Each pair is turned by one thread, once: turned again, it stands at twice its angle."


@task("14.4")
def test_the_first_half_is_the_gate(part: ModuleType) -> None:
    """The first half of a row goes through SiLU, and the second half multiplies it."""
    got = kernels_of(part).silu_mul(torch.tensor([[0.0, 20.0, 3.0, 5.0], [20.0, 0.0, 2.0, 9.0]]))
    right = torch.tensor([[0.0, 100.0], [40.0, 0.0]])
    why = (
        "A row is [gate | up]: up[i] lies d behind gate[i], in the same row. For packs to fit, d, too, "
        "must be a multiple of one."
    )
    expect_near(
        got, right, F32, "silu_mul of gates (0, 20), (20, 0) and ups (3, 5), (2, 9)", why=why
    )


@task("14.4")
def test_silu_far_out(part: ModuleType) -> None:
    """silu(x) is x * sigmoid(x), without overflow."""
    gate = [1.0, -1.0, -1000.0, 1000.0]
    got = kernels_of(part).silu_mul(torch.tensor([gate + [1.0] * 4]))
    right = torch.tensor([[0.7310586, -0.2689414, 0.0, 1000.0]])
    why = "exp(1000) is infinite, and infinity by infinity is NaN; x / (1 + exp(-x)) is 0 or x far out."
    expect_near(got, right, F32, f"silu of {gate}", why=why)


@task("14.4")
def test_rows_longer_than_a_block(part: ModuleType) -> None:
    """Rows longer than a block of threads, and rows that end within a pack, are done to their end."""
    kernels = kernels_of(part)
    for d in (1, 12, 260, 1030, 2100):
        x = random(2, 2 * d, seed=d)
        why = "The last block of a row has threads to spare, and they belong to no other row."
        expect_near(
            kernels.silu_mul(x), silu_mul(x), F32, f"silu_mul of 2 rows of 2 x {d}", why=why
        )


@task("14.4")
@examples(25)
@given(rows(multiple=2))
def test_any_silu_mul(part: ModuleType, x: Tensor) -> None:
    """Any shape, dtype, stride and alignment gives the definition in float64, rounded."""
    what = f"silu_mul of {list(x.shape)} {x.dtype}, strides {x.stride()}"
    with blamed("misaligned", ODD):
        got = kernels_of(part).silu_mul(x)
    expect_near(got, silu_mul(x), x.dtype, what, why=ODD)


@task("14.4")
def test_silu_mul_moves_packs(part: ModuleType) -> None:
    """16 bytes at a time, neighbours by neighbours."""
    kernels, x = kernels_of(part), random(4, 1024, dtype=BF16)
    work = work_of(lambda: kernels.silu_mul(x))
    expect_wide(work, 4 * 1024, "silu_mul of 4 rows of 2 x 512")
    expect_whole_sectors(work, "silu_mul of 4 rows of 2 x 512")


def turn(part: ModuleType, q: Tensor, k: Tensor, positions: list[int], *tables: Tensor) -> None:
    """Turns q and k where they lie."""
    pair = kernels_of(part).rope(q, k, torch.tensor(positions, dtype=torch.int64), *tables)
    same = isinstance(pair, tuple) and len(pair) == 2 and pair[0] is q and pair[1] is k
    expect(same, "rope does not return q and k, which it has turned in place")


def expect_turned(part: ModuleType, q: Tensor, k: Tensor, positions: list[int], what: str, why: str,
                  *tables: Tensor) -> None:  # fmt: skip
    where = torch.tensor(positions, dtype=torch.int64)
    right = [rope(x, where, *tables) for x in (q, k)]
    with blamed("misaligned", why), blamed("out_of_bounds", why):
        turn(part, q, k, positions, *tables)
    for name, got, exact in (("q", q, right[0]), ("k", k, right[1])):
        expect_near(got, exact, q.dtype, f"{name} of {what}", why=why)


@task("14.5")
def test_halves_are_paired(part: ModuleType) -> None:
    """Dimension i turns together with dimension i + half."""
    q = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]] * 2)
    what = "(1, 2, 3, 4), turned by 0 and by 90 degrees"
    expect_turned(part, q, torch.zeros(2, 1, 4), [0, 1], what, HALVES, *QUARTER)


@task("14.5")
def test_every_pair_is_turned_once(part: ModuleType) -> None:
    """Every head of q and of k is turned once, by the angles of its token's own position."""
    tables = rotary_tables(20, 8)
    for count, kv_heads in ((1, 1), (4, 2), (3, 3), (40, 8)):
        q, k = random(3, count, 16), random(3, kv_heads, 16, seed=1)
        what = f"3 tokens at positions 17, 2, 9, {count} heads and {kv_heads} key heads of 16"
        expect_turned(part, q, k, [17, 2, 9], what, ONCE, *tables)


@task("14.5")
def test_dimensions_beyond_the_rotary_ones_stay(part: ModuleType) -> None:
    """With half below d / 2 the rest of each head stays as it is."""
    q, k = random(2, 2, 64), random(2, 1, 64, seed=1)
    why = "The tables have 8 columns: dimensions 0 to 15 turn, 8 by 8, and 16 to 63 stay."
    expect_turned(part, q, k, [3, 5], "heads of 64 with half 8", why, *rotary_tables(6, 8))


@task("14.5")
def test_many_tokens_turn(part: ModuleType) -> None:
    """Any number of tokens, also if a block of threads takes several."""
    for tokens in (1, 7, 65):
        q, k = random(tokens, 1, 4), random(tokens, 1, 4, seed=1)
        positions = [i % 3 for i in range(tokens)]
        why = "The last block may have room for tokens that do not exist."
        expect_turned(part, q, k, positions, f"{tokens} tokens", why, *QUARTER)


@task("14.5")
@examples(25)
@given(heads())
def test_any_rope(part: ModuleType, case: tuple[Tensor, Tensor, Tensor, int]) -> None:
    """Any heads, sizes, strides, alignments and dtypes, as views of one product."""
    q, k, v, half = case
    values, what = v.clone(), f"{list(q.shape)} {q.dtype}, half {half}, strides {q.stride()}"
    positions = [(5 * i + 3) % 11 for i in range(len(q))]
    expect_turned(part, q, k, positions, what, ODD, *rotary_tables(11, half))
    expect_close(v, values, "v, which lies beside k", rtol=0, atol=0, why="v has no position.")


@task("14.5")
def test_rope_is_one_launch_of_packs(part: ModuleType) -> None:
    """q and k in one launch, 16 bytes at a time, each number read and written once."""
    kernels, positions = kernels_of(part), torch.tensor([4, 1, 7, 0])
    q, k = random(4, 6, 64, dtype=BF16), random(4, 2, 64, seed=1, dtype=BF16)
    tables = rotary_tables(8, 32)
    work = work_of(lambda: kernels.rope(q, k, positions, *tables))
    what = "rope of 4 tokens of 8 heads of 64"
    expect_equal(work.launches, 1, f"launches for {what}", why="A second launch costs what k does.")
    expect_wide(work, 4 * 8 * 64 * 2, what)
    expect_whole_sectors(work, what, loads=False)  # angles come from a cache


def stored(part: ModuleType, q: Tensor, k: Tensor, v: Tensor, half: int, slots: list[int],
           what: str, why: str) -> None:  # fmt: skip
    """rope_and_store of these tokens into blocks of 2; q, k, v and both pools are as they must be."""
    positions = torch.tensor([(5 * i + 3) % 11 for i in range(len(q))], dtype=torch.int64)
    mapping, tables = torch.tensor(slots, dtype=torch.int64), rotary_tables(11, half)
    shape = (max([0, *slots]) // 2 + 2, 2, *k.shape[1:])
    keys, values = (random(*shape, seed=s, dtype=k.dtype) for s in (8, 9))
    queries, turned = rope(q, positions, *tables), rope(k, positions, *tables)
    right = store_kv(turned, v, keys.double(), values.double(), mapping)
    untouched = k.clone(), v.clone()
    with blamed("misaligned", why), blamed("out_of_bounds", why):
        kernels_of(part).rope_and_store(q, k, v, positions, *tables, keys, values, mapping)
    expect_near(keys, right[0], k.dtype, f"the key blocks after {what}", why=why)
    expect_near(values, right[1], k.dtype, f"the value blocks after {what}", why=why)
    expect_near(q, queries, q.dtype, f"q after {what}", why=why)
    for name, got, before in (("k", k, untouched[0]), ("v", v, untouched[1])):
        kept = "It is turned on its way to the pool, and written nowhere else."
        expect_close(got, before, f"{name} itself after {what}", rtol=0, atol=0, why=kept)


@task("14.6")
def test_keys_are_turned_on_their_way(part: ModuleType) -> None:
    """Slot s holds the turned k and the v of its token; q is turned in place, and k is not."""
    q, k, v = random(3, 4, 16), random(3, 2, 16, seed=1), random(3, 2, 16, seed=2)
    why = "A thread of k reads at k and writes at the slot; a thread of q reads and writes at q."
    stored(part, q, k, v, 8, [5, 0, 2], "storing 3 tokens in slots 5, 0, 2", why)


@task("14.6")
def test_a_negative_slot_stores_nothing(part: ModuleType) -> None:
    """A token with a negative slot leaves no trace in the pool, but its q is turned."""
    q, k, v = random(3, 4, 16), random(3, 2, 16, seed=1), random(3, 2, 16, seed=2)
    why = "Padding of a captured batch has slot -1. Its query is computed as any other."
    stored(part, q, k, v, 8, [-1, 3, -1], "storing 3 tokens in slots -1, 3, -1", why)


@task("14.6")
def test_what_does_not_turn_is_stored(part: ModuleType) -> None:
    """With half below d / 2 the rest of k reaches its slot as it is."""
    q, k, v = random(2, 2, 64), random(2, 1, 64, seed=1), random(2, 1, 64, seed=2)
    why = "Dimensions 16 to 63 do not turn. In place that is no work; on the way to the pool it is."
    stored(part, q, k, v, 8, [1, 2], "storing heads of 64 with half 8", why)


@task("14.6")
@examples(20)
@given(heads())
def test_any_rope_and_store(part: ModuleType, case: tuple[Tensor, Tensor, Tensor, int]) -> None:
    """Any heads, sizes, strides, alignments and dtypes, as views of one product."""
    slots = [(3 * i + 1) % 13 if i != 2 else -1 for i in range(len(case[0]))]
    what = f"storing {list(case[1].shape)} {case[1].dtype}, half {case[3]}"
    stored(part, *case, slots, what, ODD)


@task("14.6")
def test_rope_and_store_is_one_launch_of_packs(part: ModuleType) -> None:
    """One launch, 16 bytes at a time: q, k and v are read once, q and the pool written once."""
    kernels, positions = kernels_of(part), torch.tensor([4, 1, 7, 0])
    q, k, v = (random(4, n, 64, seed=n, dtype=BF16) for n in (6, 2, 2))
    keys, values = torch.zeros(2, 4, 2, 64, dtype=BF16), torch.zeros(2, 4, 2, 64, dtype=BF16)
    tables, slots = rotary_tables(8, 32), torch.tensor([6, 0, 3, 1])
    work = work_of(lambda: kernels.rope_and_store(q, k, v, positions, *tables, keys, values, slots))
    what = "rope and store of 4 tokens of 6, 2 and 2 heads of 64"
    expect_equal(work.launches, 1, f"launches for {what}", why="One launch in place of three.")
    expect_wide(work, 4 * 10 * 64 * 2, what)
    expect_whole_sectors(work, what, loads=False)  # angles come from a cache


@task("14.6")
def test_slots_past_32_bits(part: ModuleType) -> None:
    """Where a slot begins is computed in 64 bits."""
    q, k, v = (random(1, 1, 64, seed=n, dtype=BF16) for n in (0, 1, 2))
    keys, values = torch.zeros(2, 2, 1, 64, dtype=BF16), torch.zeros(2, 2, 1, 64, dtype=BF16)
    kernels, tables = kernels_of(part), rotary_tables(8, 32)
    slots, at = torch.tensor([2**29]), torch.tensor([3])
    expect_no_wrap(
        lambda: kernels.rope_and_store(q, k, v, at, *tables, keys, values, slots),
        lambda: expect_equal(bool(keys.any()), False, "whether slot 2**29 is written to the pool"),
        "slot 2**29, with 64 numbers a slot",
    )
