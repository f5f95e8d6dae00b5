"""Task 14.6: RoPE of q in place, and of k on its way to the pool, with v."""

from types import ModuleType

import torch
from hypothesis import given
from torch import Tensor

from grader.kit import Mismatch, examples, expect_close, expect_equal, start_script, task
from grader.kit.cuda_bounds import bounds_of
from grader.kit.cuda_work import (
    blamed,
    count_beyond_grid,
    expect_errors_returned,
    expect_grid_fits,
    expect_no_wrap,
    expect_whole_sectors,
    expect_within_bounds,
    launches_of,
    work_of,
)
from grader.kit.kernels import expect_near, random, rope, rotary_tables, store_kv
from grader.suites.cuda_ops.exact import (
    BF16,
    F32,
    ODD,
    expect_launched,
    expect_loads_in_packs,
    expect_packed,
    half_told,
    heads,
    heads_left,
    kernels_of,
    laid,
    only,
    shifted,
    stays,
    tokens_left,
    told_half,
)
from grader.suites.cuda_ops.mistakes import store_kinds, without_rest_in
from grader.suites.cuda_ops.roundings import fine


def stored(part: ModuleType, q: Tensor, k: Tensor, v: Tensor, half: int, slots: list[int],
           what: str, why: str, odd: str = "", at: list[int] | None = None) -> None:  # fmt: skip
    """rope_and_store of these tokens into blocks of 2; q, k, v and both pools are as they must be.

    odd: a table or a pool whose address is no multiple of 16. at: the positions."""
    positions = torch.tensor(
        [(5 * i + 3) % 11 for i in range(len(q))] if at is None else at, dtype=torch.int64
    )
    mapping = torch.tensor(slots, dtype=torch.int64)
    cos, sin = rotary_tables(max(at or [10]) + 1, half)
    tables = shifted(cos, 2 * (odd == "cos")), shifted(sin, 2 * (odd == "sin"))
    shape = (max([0, *slots]) // 2 + 2, 2, *k.shape[1:])
    keys, values = (
        shifted(random(*shape, seed=s, dtype=k.dtype), 4 * (odd == name))
        for s, name in ((8, "key_blocks"), (9, "value_blocks"))
    )
    queries, turned = rope(q, positions, *tables), rope(k, positions, *tables)
    right = store_kv(turned, v, keys.double(), values.double(), mapping)
    untouched, before = (k.clone(), v.clone()), [x.clone() for x in (q, keys, values)]
    kinds = store_kinds(q, k, v, positions, tables, keys, values, mapping, why)
    with blamed("misaligned", why), blamed("out_of_bounds", why):
        kernels_of(part).rope_and_store(q, k, v, positions, *tables, keys, values, mapping)
    what_keys, what_values = (f"the {name} blocks after {what}" for name in ("key", "value"))

    def again() -> object:
        return part.LayerKernels().rope_and_store(
            q, k, v, positions, *tables, keys, values, mapping
        )

    in_pools = [
        without_rest_in(told, got, exact, half, again)
        for told, got, exact in zip(kinds[:2], (keys, values), right, strict=True)
    ]
    try:
        expect_near(keys, right[0], k.dtype, what_keys, why=why, kinds=in_pools[0])
        expect_near(values, right[1], k.dtype, what_values, why=why, kinds=in_pools[1])
        expect_near(q, queries, q.dtype, f"q after {what}", why=why, kinds=kinds[2])
    except Mismatch as error:
        if min(slots, default=-1) >= 0:
            pools = [
                [x.flatten(0, 1)[mapping] for x in trio]
                for trio in zip((keys, values), before[1:], right, strict=True)
            ]
            trios = [(q, before[0], queries), *pools]
            left = torch.cat([stays(*trio) for trio in trios], dim=1)
            names = f"{q.shape[1]} of q, then {k.shape[1]} of k and {v.shape[1]} of v"
            error.why = tokens_left(left, again) or heads_left(left, names, again) or error.why
        raise
    for name, got, came in (("k", k, untouched[0]), ("v", v, untouched[1])):
        kept = "It is turned on its way to the pool, and written nowhere else."
        expect_close(got, came, f"{name} itself after {what}", rtol=0, atol=0, why=kept)


@task("14.6")
def test_keys_are_turned_on_their_way(part: ModuleType) -> None:
    """Slot s holds the turned k and the v of its token; q is turned in place, and k is not."""
    q, k, v = random(3, 4, 16), random(3, 2, 16, seed=1), random(3, 2, 16, seed=2)
    why = "A thread of k reads at k and writes at the slot; a thread of q reads and writes at q."
    stored(part, q, k, v, 8, [5, 1, 2], "storing 3 tokens in slots 5, 1, 2", why)


@task("14.6")
def test_a_negative_slot_stores_nothing(part: ModuleType) -> None:
    """A token with a negative slot leaves no trace in the pool, but its q is turned."""
    q, k, v = random(3, 4, 16), random(3, 2, 16, seed=1), random(3, 2, 16, seed=2)
    why = (
        "Padding of a captured batch has a negative slot, -1 or any other: nothing of it is stored. The "
        "query of padding is computed as any other."
    )
    stored(part, q, k, v, 8, [-1, 3, -3], "storing 3 tokens in slots -1, 3, -3", why)
    start_script()
    stored(part, q, k, v, 8, [-1, 0, -3], "storing 3 tokens in slots -1, 0, -3", why)


@task("14.6")
def test_what_does_not_turn_is_stored(part: ModuleType) -> None:
    """With half below d / 2 the rest of k reaches its slot as it is."""
    q, k, v = random(2, 2, 64), random(2, 1, 64, seed=1), random(2, 1, 64, seed=2)
    why = "Dimensions 16 to 63 do not turn. In place that is no work; on the way to the pool it is."
    stored(part, q, k, v, 8, [1, 2], "storing heads of 64 with half 8", why)


@task("14.6")
def test_many_tokens_are_stored(part: ModuleType) -> None:
    """Any number of tokens, also if a block of threads takes several."""
    kernels, tables = part.LayerKernels(), rotary_tables(11, 2)
    pool = torch.zeros(1, 2, 1, 4)

    def store_many(tokens: int) -> None:
        rows, none = torch.zeros(tokens, 1, 4), torch.zeros(tokens, dtype=torch.int64)
        kernels.rope_and_store(rows, rows, rows, none, *tables, pool, pool, none)

    for tokens in (1, 65, count_beyond_grid(store_many, 20_000)):
        q, k, v = (random(tokens, 1, 4, seed=seed) for seed in range(3))
        why = (
            "The last block may have room for tokens that do not exist, and every token has a turn."
        )
        slots = list(reversed(range(tokens)))
        start_script()

        def larger(tokens: int = tokens, slots: list[int] = slots) -> None:
            q, k, v = (random(tokens, 1, 16, seed=seed) for seed in range(3))
            stored(part, q, k, v, 8, slots, f"storing {tokens} tokens", "")

        with half_told(2, 4, F32, larger):
            stored(part, q, k, v, 2, slots, f"storing {tokens} tokens", why)


@task("14.6")
def test_more_than_a_block_has_threads(part: ModuleType) -> None:
    """There may be more heads than a block has room for, and more pairs, and more that does not turn."""
    why = (
        "A block has up to 256 threads. What is left goes to the next turns of a loop: over pairs, over "
        "heads, and over the dimensions that do not turn."
    )
    for d, half, count, kv_heads in ((2200, 1100, 1, 1), (140, 65, 12, 5)):
        q = random(2, count, d)
        k, v = random(2, kv_heads, d, seed=1), random(2, kv_heads, d, seed=2)
        what = f"storing {count} and {kv_heads} heads of {d}, of which {2 * half} dimensions turn"
        stored(part, q, k, v, half, [1, 2], what, why)


@task("14.6")
def test_tokens_apart(part: ModuleType) -> None:
    """Tokens of q, k and v are each at a stride of their own, with packs and without."""
    why = "q, k and v are views of something wider, each with a stride of its own: v has v_stride."
    cases = (32, 16, BF16, 0), (32, 8, BF16, 0), (16, 8, F32, 1)
    for d, half, dtype, start in cases:  # from 1 on no pack fits
        q, k, v = (
            laid(random(3, heads, d, seed=i, dtype=dtype), i, start=start)
            for i, heads in enumerate((2, 1, 1))
        )
        what = f"storing 3 tokens, q, k, v at strides {q.stride(0)}, {k.stride(0)}, {v.stride(0)}"
        stored(part, q, k, v, half, [3, 0, 5], what, why)


@task("14.6")
def test_each_number_limits_packs(part: ModuleType) -> None:
    """Seven addresses, three strides, d and half may forbid packs, alone."""
    tensors = "q", "k", "v"
    names = "cos", "sin", "key_blocks", "value_blocks", "d", "half"
    for name in (*tensors, *(f"{tensor}_stride" for tensor in tensors), *names):
        d, half = 44 if name == "d" else 48, 12 if name == "half" else 16
        q, k, v = (
            laid(random(3, 2, d, seed=i, dtype=BF16), i, start=4 * (name == tensor),
                 step=4 * (name == f"{tensor}_stride"))
            for i, tensor in enumerate(tensors)
        )  # fmt: skip
        what = f"storing heads of {d}, half {half}, where {name} does not suit packs"
        with only(name, told_half(name, half)) as why:
            stored(part, q, k, v, half, [3, 0, 5], what, why, odd=name)


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
    slots = torch.tensor([6, 0, 3, 1])

    def again() -> None:
        q, k, v = (random(4, n, 128, seed=n, dtype=BF16) for n in (3, 1, 1))
        pool = (torch.zeros(2, 4, 1, 128, dtype=BF16) for _ in range(2))
        kernels.rope_and_store(q, k, v, positions, *rotary_tables(8, 64), *pool, slots)

    for half in (56, 32):
        start_script()
        q, k, v = (random(4, n, 112, seed=n, dtype=BF16) for n in (3, 1, 1))
        pool = torch.zeros(2, 4, 1, 112, dtype=BF16), torch.zeros(2, 4, 1, 112, dtype=BF16)
        given = q, k, v, positions, *rotary_tables(8, half), *pool, slots
        work = work_of(lambda given=given: kernels.rope_and_store(*given))  # type: ignore[misc]
        what = (
            "rope and store of 4 tokens of 3, 1 and 1 heads of 112, of which "
            f"{2 * half} dimensions turn"
        )
        one = "One launch in place of three."
        expect_equal(work.launches, 1, f"launches for {what}", why=one)
        expect_packed(
            work, 4 * (3 * 2 * half + 2 * 112) * 2, what, again, "heads of 128 and a half of 64"
        )
        expect_whole_sectors(work, what, loads=False)  # angles come from a cache
        expect_loads_in_packs(work, what)


@task("14.6")
def test_blocks_suit_their_heads(part: ModuleType) -> None:
    """Few heads leave room for other tokens, and no block is larger than __launch_bounds__ says."""
    kernels, numbers = kernels_of(part), torch.zeros(256, dtype=torch.int64)
    for d, begin in ((64, 0), (1200, 1)):  # from 1 on no pack fits
        q, k, v, *pool = (shifted(torch.zeros(256, 2, d, dtype=BF16), begin) for _ in range(5))
        given = q, k, v, numbers, *rotary_tables(2, d // 2), *pool, numbers
        launches = launches_of(lambda given=given: kernels.rope_and_store(*given))  # type: ignore[misc]
        what = f"rope and store of 256 tokens of 2, 2 and 2 heads of {d}"
        expect_within_bounds(launches, bounds_of(part), what)
        if not begin:  # 4 packs of pairs a head
            expect_grid_fits(launches, 256 * 6 * 4, what, most=6)


@task("14.6")
def test_slots_past_32_bits(part: ModuleType) -> None:
    """Where a slot begins is computed in 64 bits."""
    q, k, v = (random(1, 1, 64, seed=n, dtype=BF16) for n in (0, 1, 2))
    keys, values = torch.zeros(2, 2, 1, 64, dtype=BF16), torch.zeros(2, 2, 1, 64, dtype=BF16)
    kernels, tables, at = kernels_of(part), rotary_tables(8, 32), torch.tensor([3])

    def store(slot: int) -> None:
        kernels.rope_and_store(q, k, v, at, *tables, keys, values, torch.tensor([slot]))

    def unchanged() -> None:
        if bool(keys.any() or values.any()):
            raise Mismatch("slot 0 of the pool was written", "nothing written", "the token's row")

    expect_no_wrap(
        lambda: store(2**32),
        unchanged,
        "slot 2**32, with 64 numbers a slot",
        fitting=("slot 2**28", lambda: store(2**28)),
    )


@task("14.6")
def test_copies_keep_every_bit(part: ModuleType) -> None:
    """v, and what does not turn of k, go to their slots bit for bit."""
    q, k, v = (1e5 * fine(1, 1, 64, seed=seed, dtype=F32) for seed in range(3))
    keys, values, zero = torch.zeros(1, 1, 1, 64), torch.zeros(1, 1, 1, 64), torch.tensor([0])
    tables = rotary_tables(1, 8)
    kernels_of(part).rope_and_store(q, k, v, zero, *tables, keys, values, zero)
    why = "These numbers have 24 digits, and are too large for 16 bits: they are copied, not computed."
    what = "the value block after storing a head of 64 in float32"
    expect_close(values[0, 0], v[0], what, rtol=0, atol=0, why=why)
    what = "dimensions 16 to 63 of the key block"
    expect_close(keys[0, 0, :, 16:], k[0, :, 16:], what, rtol=0, atol=0, why=why)


@task("14.6")
def test_angles_stay_in_float32(part: ModuleType) -> None:
    """Cosines and sines are float32 on the way to the pool, too."""
    tables = torch.full((1, 8), 1.001953125), torch.ones(1, 8)
    q, keys, zero = (
        torch.full((1, 1, 16), 256.0, dtype=BF16),
        torch.zeros(1, 1, 1, 16),
        torch.tensor([0]),
    )
    k, pool = q.clone(), keys.to(BF16)
    kernels_of(part).rope_and_store(q, k, q.clone(), zero, *tables, pool, pool.clone(), zero)
    right = rope(k, zero, *tables)
    why = (
        "256 * 1.001953125 - 256 is 0.5. bfloat16 has no number between 1 and 1.0078: with a cosine of "
        "bfloat16 the difference would be 0."
    )
    expect_near(pool[0], right, BF16, "the key block after storing 16 times 256", why=why)
    expect_near(q, right, BF16, "q after it", why=why)


@task("14.6")
def test_positions_of_a_long_context(part: ModuleType) -> None:
    """A position may be past 2**15 and past 2**16."""
    q, k, v = (random(2, 1, 8, seed=seed) for seed in range(3))
    places = [40_003, 70_001]
    why = "Positions are int64, and a context may have more tokens than 16 bits count."
    stored(part, q, k, v, 4, [1, 2], f"storing tokens at {places}", why, at=places)


@task("14.6")
def test_many_tokens_fit_a_grid(part: ModuleType) -> None:
    """However many tokens there are, their launch is one that CUDA takes."""
    dry, tables, pool = part.LayerKernels(), rotary_tables(1, 2), torch.zeros(1, 2, 1, 4)

    def launch(tokens: int) -> None:
        rows, none = torch.zeros(tokens, 1, 4), torch.zeros(tokens, dtype=torch.int64)
        dry.rope_and_store(rows, rows, rows, none, *tables, pool, pool, none)

    expect_launched(launch, 100_000)


@task("14.6")
def test_errors_of_a_launch_are_returned(part: ModuleType) -> None:
    """What launch() returned is returned, with packs and without."""
    kernels, zero = kernels_of(part), torch.tensor([0])
    for half in (8, 7):
        q, k, v, *pool = (torch.ones(1, 1, 2 * half) for _ in range(5))
        given = q, k, v, zero, *rotary_tables(1, half), *(x[None] for x in pool), zero
        expect_errors_returned(
            lambda given=given: kernels.rope_and_store(*given),  # type: ignore[misc]
            f"rope and store of a token of 3 heads of {2 * half}",
        )
