"""Task 13.1: each token's keys and values go to their slot."""

from types import ModuleType

import torch
from hypothesis import given
from torch import Tensor

from grader.kit import examples, expect, note, start_script, task
from grader.kit.cuda_work import (
    blamed,
    count_beyond_grid,
    expect_errors_returned,
    expect_grid_fits,
    expect_many_threads,
    expect_no_wrap,
    expect_whole_sectors,
    expect_whole_warps,
    expect_wide,
    launches_of,
    told_grid,
    work_of,
)
from grader.kit.kernels import random, store_kv
from grader.suites.cuda_memory_ops.exact import (
    BF16,
    at_offset,
    blocks_of,
    expect_same,
    memory_of,
    stores,
)
from yaie.cuda.on_cpu import KernelFault

OFFSETS = (
    "16 bytes at once need an address that is a multiple of 16, and so for 8 and 4: both tensors of a "
    "copy, the row's size and both strides have a say in how wide a copy may be."
)
EVERY_TOKEN = (
    "Each token has threads, or a loop that comes to it: a grid that is limited needs one."
)
OUT_THERE = (
    "The last block of threads has more of them than there are tokens, and the last step along a row "
    "more than the row has numbers: threads out there have nothing to read and nothing to write."
)


def expect_stored(
    part: ModuleType,
    k: Tensor,
    v: Tensor,
    slots: list[int] | Tensor,
    what: str,
    why: str,
    *,
    outside: tuple[str, str] = ("past the end of", OUT_THERE),
) -> None:
    """k and v reach their slots of blocks of 2, and nothing else changes."""
    mapping = torch.as_tensor(slots, dtype=torch.int64)
    num_blocks = (int(mapping.max()) + 4) // 2
    keys, values = (blocks_of(num_blocks, 2, *k.shape[1:], seed=s, dtype=k.dtype) for s in (8, 9))
    right, before = store_kv(k, v, keys, values, mapping), (keys.clone(), values.clone())
    where, advice = outside
    odd = why if OFFSETS in why else OFFSETS
    with blamed("out_of_bounds", advice, where=where), blamed("misaligned", odd):
        memory_of(part).store_kv(k, v, keys, values, mapping)
    for name, got, exact, old, rows in (
        ("key", keys, right[0], before[0], k),
        ("value", values, right[1], before[1], v),
    ):
        if not torch.equal(got, exact):
            if only_slot_0(got, exact, old):
                why = "All but slot 0 is right. Slot 0 is a slot; only negative slots mark padding."
            told = what_became(got, exact, old, rows, mapping)
            expect_same(got, exact, f"the {name} blocks after {what}{told}", why=why, place=False)


def only_slot_0(got: Tensor, right: Tensor, before: Tensor) -> bool:
    """Whether slot 0 alone is wrong, and as it was."""
    held, exact, old = (blocks.flatten(0, 1) for blocks in (got, right, before))
    return torch.equal(held[1:], exact[1:]) and torch.equal(held[0], old[0])


def what_became(got: Tensor, right: Tensor, before: Tensor, rows: Tensor, slots: Tensor) -> str:
    """What the slot of the first wrong token holds, in words; of no token if none is wrong."""
    held, exact, old = (blocks.flatten(0, 1).flatten(1) for blocks in (got, right, before))
    wrong = (held != exact).any(dim=1)
    of_tokens = [slot for slot in slots.tolist() if slot >= 0 and bool(wrong[slot])]
    slot = of_tokens[0] if of_tokens else int(wrong.nonzero()[0])
    first = int((held[slot] != exact[slot]).nonzero()[0])
    tokens = (slots == slot).nonzero().flatten().tolist()
    whose = f"slot {slot}, of token {tokens[0]}," if tokens else f"slot {slot}, of no token,"
    if torch.equal(held[slot], old[slot]):
        return f": {whose} is as it was before"
    if tokens and torch.equal(held[slot][first:], old[slot][first:]):
        return f": {whose} is as it was before from element {first:,} of {held.shape[1]:,} on"
    alike = [t for t, row in enumerate(rows.flatten(1)) if torch.equal(held[slot], row)]
    return f": {whose} holds the row of token {alike[0]}" if alike else f": {whose} is wrong"


@task("13.1")
def test_rows_go_to_their_slots(part: ModuleType) -> None:
    """Token t's row goes to slot slot_mapping[t]: row slot % block_size of block slot // block_size."""
    why = (
        "Slots are rows of the pool, whose blocks lie one after the other: slot s begins at s rows."
    )
    k, v = random(3, 1, 4), random(3, 1, 4, seed=1)
    expect_stored(part, k, v, [5, 2, 3], "storing 3 tokens in slots 5, 2, 3", why)


@task("13.1")
def test_a_negative_slot_stores_nothing(part: ModuleType) -> None:
    """A token is passed over if its slot is negative, and only then: slot 0 is a slot."""
    why = (
        "A negative slot, -1 or any other, marks padding of a batch. Its row would lie before the pool, "
        "in another's memory."
    )
    k, v = random(4, 1, 4), random(4, 1, 4, seed=1)
    what = "storing 4 tokens in slots 2, -1, 0, -3"
    expect_stored(part, k, v, [2, -1, 0, -3], what, why, outside=("before the start of", why))


@task("13.1")
def test_every_number_of_a_row_is_stored(part: ModuleType) -> None:
    """Rows may be of any length, longer than a block of threads or no multiple of it."""
    why = (
        "A thread goes on in steps of all threads that share the row, up to its end and no further."
    )
    for heads, d in ((3, 100), (2, 700), (1, 7)):
        k, v = random(2, heads, d), random(2, heads, d, seed=1)
        start_script()
        expect_stored(part, k, v, [1, 2], f"storing rows of {heads} x {d}", why)


@task("13.1")
def test_more_tokens_than_a_block_of_threads(part: ModuleType) -> None:
    """Any number of tokens is stored, also where the grid has threads to spare."""
    memory, blocks = part.MemoryKernels(), torch.zeros(1, 2, 1, 2)

    def store(tokens: int) -> None:
        rows = torch.zeros(tokens, 1, 2)
        memory.store_kv(rows, rows, blocks, blocks, torch.zeros(tokens, dtype=torch.int64))

    for tokens in (1, 33, count_beyond_grid(store, 40_000)):
        k, v = random(tokens, 1, 2), random(tokens, 1, 2, seed=1)
        slots = torch.arange(tokens).flip(0)
        launches = launches_of(lambda tokens=tokens: store(tokens))  # type: ignore[misc]
        why = f"Here {told_grid(launches)} is launched for {tokens:,} tokens. {EVERY_TOKEN}"
        start_script()
        expect_stored(part, k, v, slots, f"storing {tokens} tokens", why)


@task("13.1")
def test_more_tokens_than_a_grid_has_in_y(part: ModuleType) -> None:
    """A launch for 70,000 tokens with long rows is one that CUDA takes."""
    memory = part.MemoryKernels()
    rows = torch.zeros(1, 1, 2048, dtype=BF16).expand(70_000, -1, -1)
    blocks, slots = torch.zeros(1, 2, 1, 2048, dtype=BF16), torch.zeros(70_000, dtype=torch.int64)
    why = "A grid has at most 65,535 blocks in y and in z, and 2**31 - 1 in x: there tokens have room."
    with blamed("launch", why):
        launches_of(lambda: memory.store_kv(rows, rows, blocks, blocks.clone(), slots))


def stride_told(part: ModuleType, said: str, k: Tensor, v: Tensor) -> str:
    """At which stride the tensor is read that a fault names, if it is not its own: the same store is
    right once the other one has its stride, or it has no gaps. k, v: [3, 2, 4]."""

    def is_right(k: Tensor, v: Tensor) -> bool:
        keys, values = torch.zeros(3, 2, 2, 4), torch.zeros(3, 2, 2, 4)
        right = store_kv(k, v, keys, values, slots)
        try:
            part.MemoryKernels().store_kv(k, v, keys, values, slots)
        except KernelFault:
            return False
        return torch.equal(keys, right[0]) and torch.equal(values, right[1])

    def apart(stride: int) -> Tensor:
        return random(3, stride)[:, :8].view(3, 2, 4)

    slots = torch.tensor([3, 0, 1])
    if " of k:" in said:
        name, own, other, both = "k", k, v, is_right(k, apart(k.stride(0)))
        packed = is_right(k.contiguous(), v)
    elif " of v:" in said:
        name, own, other, both = "v", v, k, is_right(apart(v.stride(0)), v)
        packed = is_right(k, v.contiguous())
    else:
        return ""
    if both:
        others = "v" if name == "k" else "k"
        return (
            f"Tokens of {name} lie {own.stride(0)} numbers apart, and are read at {others}_stride, "
            f"{other.stride(0)}: where {others} has a stride of {own.stride(0)} too, all is right."
        )
    if packed or is_right(k.contiguous(), v.contiguous()):
        return (
            f"Tokens of {name} lie {own.stride(0)} numbers apart, and are read a row's length apart, 8: "
            "without gaps the same store is right."
        )
    return ""


@task("13.1")
def test_k_and_v_are_views_of_one_product(part: ModuleType) -> None:
    """A token of k may be any number of numbers after the one before; k and v each have their stride."""
    product, other = random(3, 20), random(3, 24, seed=1)
    k, v = product[:, 8:16].view(3, 2, 4), other[:, 4:12].view(3, 2, 4)
    why = "k_stride and v_stride say how far the next token is."
    try:
        expect_stored(part, k, v, [3, 0, 1], "storing slices of wider rows", why, outside=("", why))
    except KernelFault as fault:
        vars(fault)["blame"] = stride_told(part, fault.message, k, v) or why
        raise


@task("13.1")
def test_addresses_that_suit_no_wide_copy(part: ModuleType) -> None:
    """Views at odd addresses are stored as well, with narrower copies."""
    k, v = random(2, 2, 4, dtype=BF16), random(2, 2, 4, seed=1, dtype=BF16)
    for first, second in ((1, 0), (0, 2), (4, 4)):
        shifted = at_offset(k, first), at_offset(v, second)
        where = f"k at {2 * first} and v at {2 * second} bytes past an aligned address"
        start_script()
        note(f"# {where}")
        why = f"Here lie {where}; all else allows 16 bytes at once. {OFFSETS}"
        expect_stored(part, *shifted, [2, 0], f"storing {where}", why, outside=("", why))
    wide = random(2, 17, dtype=BF16)
    k, v = wide[:, :8].view(2, 2, 4), wide[:, 8:16].view(2, 2, 4)
    start_script()
    note("# rows of k and of v that are 34 bytes apart")
    why = (
        "Here rows of 16 bytes are 34 bytes apart: the strides of k and v are no multiples of 16, and "
        f"all else is. {OFFSETS}"
    )
    expect_stored(part, k, v, [2, 0], "storing rows 34 bytes apart", why, outside=("", why))


def aligned(**odd: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(k, v, key blocks, value blocks) with rows of 32 bytes, 64 apart, all of which allows 16 bytes at
    once, but for what `odd` adds, in numbers of 2 bytes."""
    row = 16 + odd.get("row_bytes", 0)

    def tokens(name: str, seed: int) -> Tensor:
        step, begin = 32 + odd.get(f"{name}_stride", 0), odd.get(name, 0)
        room = torch.full((begin + 3 * step,), 99.0, dtype=BF16)
        view = room.as_strided((3, 1, row), (step, row, 1), begin)
        return view.copy_(random(3, 1, row, seed=seed, dtype=BF16))

    keys, values = (blocks_of(2, 2, 1, row, seed=seed, dtype=BF16) for seed in (8, 9))
    keys, values = (
        at_offset(blocks, odd.get(name, 0))
        for name, blocks in (("key_blocks", keys), ("value_blocks", values))
    )
    return tokens("k", 0), tokens("v", 1), keys, values


@task("13.1")
def test_each_number_limits_the_width(part: ModuleType) -> None:
    """Four addresses, the row's size and two strides each may forbid a wide copy, alone."""
    names = "k", "v", "key_blocks", "value_blocks", "row_bytes", "k_stride", "v_stride"
    for name in names:
        k, v, keys, values = aligned(**{name: 4})
        start_script()
        told = f"row_bytes, {keys.shape[-1] * 2}," if name == "row_bytes" else name
        note(f"# {told} alone is no multiple of 16")
        slots = torch.tensor([2, 0, 3])
        right = store_kv(k, v, keys, values, slots)
        why = (
            f"Of the seven numbers that limit the width only {told} is no multiple of 16 here but one "
            "of 8: so 8 bytes are the widest copy. Each of the seven has a say."
        )
        with blamed("misaligned", why), blamed("out_of_bounds", why):
            memory_of(part).store_kv(k, v, keys, values, slots)
        what = f"storing 3 rows where only {name} is no multiple of 16"
        expect_same(keys, right[0], f"the key blocks after {what}", why=why)
        expect_same(values, right[1], f"the value blocks after {what}", why=why)


@task("13.1")
@examples(30)
@given(stores())
def test_any_store(part: ModuleType, case: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]) -> None:
    """Any store leaves what indexing leaves."""
    k, v, keys, values, slots = case
    right = store_kv(k, v, keys, values, slots)
    memory_of(part).store_kv(k, v, keys, values, slots)
    what = f"storing {len(k)} rows of {list(k.shape[1:])} {k.dtype}"
    expect_same(keys, right[0], f"the key blocks after {what}", why=OFFSETS)
    expect_same(values, right[1], f"the value blocks after {what}", why=OFFSETS)


def a_batch() -> tuple[Tensor, ...]:
    """16 tokens of 2 heads of 64 in bfloat16, out of a product: rows of 256 bytes, aligned."""
    k, v = random(16, 6, 64, dtype=BF16)[:, 2:].unflatten(1, (2, 2)).unbind(1)
    keys, values = (blocks_of(5, 4, 2, 64, seed=s, dtype=BF16) for s in (1, 2))
    return k, v, keys, values, torch.arange(20).flip(0)[:16]


@task("13.1")
def test_a_warp_touches_whole_sectors(part: ModuleType) -> None:
    """Neighbouring threads move neighbouring addresses: what a warp touches fills its sectors."""
    memory, batch = memory_of(part), a_batch()
    row = 2 * batch[0].stride(0)
    work = work_of(lambda: memory.store_kv(*batch))
    expect_whole_sectors(work, "storing 16 rows of 256 bytes", row=row)
    k, v = random(4, 1, 2048, dtype=BF16), random(4, 1, 2048, seed=1, dtype=BF16)
    keys, values = (blocks_of(1, 4, 1, 2048, seed=s, dtype=BF16) for s in (2, 3))
    start_script()
    work = work_of(lambda: memory.store_kv(k, v, keys, values, torch.arange(4)))
    expect_whole_sectors(work, "storing 4 rows of 4,096 bytes", row=4096)


@task("13.1")
def test_a_thread_moves_16_bytes(part: ModuleType) -> None:
    """Where addresses allow it, a thread moves 16 bytes with one load and one store."""
    memory, batch = memory_of(part), a_batch()
    expect_wide(
        work_of(lambda: memory.store_kv(*batch)), 2 * 16 * 256, "storing 16 rows of 256 bytes"
    )


@task("13.1")
def test_many_threads_store(part: ModuleType) -> None:
    """The work is spread over the device: threads for all of it, in more than one block."""
    memory = memory_of(part)
    k, v = random(64, 4, 64, dtype=BF16).unflatten(1, (2, 2)).unbind(1)
    keys, values = (blocks_of(16, 4, 2, 64, seed=s, dtype=BF16) for s in (1, 2))
    slots = torch.arange(64)
    work = work_of(lambda: memory.store_kv(k, v, keys, values, slots))
    expect_many_threads(work, 2 * 64 * 256, "storing 64 rows of 256 bytes")


@task("13.1")
def test_blocks_are_whole_warps(part: ModuleType) -> None:
    """Blocks of threads are whole warps, be a row shorter than a warp or longer than a block."""
    memory, slots = memory_of(part), torch.arange(16)
    for d in (128, 160, 4096):  # 16 units of 16 bytes, 20, and 512
        k, blocks = torch.zeros(16, 1, d, dtype=BF16), torch.zeros(16, 1, 1, d, dtype=BF16)
        launches = launches_of(lambda k=k, b=blocks: memory.store_kv(k, k, b, b.clone(), slots))  # type: ignore[misc]
        expect_whole_warps(launches, f"storing 16 rows of {2 * d:,} bytes")


@task("13.1")
def test_most_threads_store_something(part: ModuleType) -> None:
    """The grid is no larger than what there is to store: threads for short rows, too."""
    memory, slots = memory_of(part), torch.arange(64)
    k, blocks = torch.zeros(64, 1, 160, dtype=BF16), torch.zeros(64, 1, 1, 160, dtype=BF16)
    launches = launches_of(lambda: memory.store_kv(k, k, blocks, blocks.clone(), slots))
    expect_grid_fits(launches, 2 * 64 * 20, "storing 64 rows of 320 bytes", row=20)


@task("13.1")
def test_a_store_returns_its_error(part: ModuleType) -> None:
    """What launch() returns is what the launcher returns."""
    memory, batch = memory_of(part), a_batch()
    expect_errors_returned(lambda: memory.store_kv(*batch), "storing 16 rows of 256 bytes")


@task("13.1")
def test_strides_past_32_bits(part: ModuleType) -> None:
    """Where a token's row begins is computed in 64 bits."""
    for name in ("k_stride", "v_stride"):
        k, v = random(2, 1, 64, dtype=BF16), random(2, 1, 64, seed=1, dtype=BF16)
        keys, values = (blocks_of(1, 2, 1, 64, seed=s, dtype=BF16) for s in (2, 3))
        far = [2**36 if name == one else 128 for one in ("k_stride", "v_stride")]
        slots = torch.arange(2)
        start_script()
        note(f"# called with a {name} of 2**36 bytes: token 1 lies outside of every tensor")

        def store(k=k, v=v, keys=keys, values=values, slots=slots, far=far) -> None:  # type: ignore[no-untyped-def]
            part.memory_kernels.LIBRARY.call("store_kv", k, v, keys, values, slots, 2, 128, *far)

        def is_apart(rows=(k, v), pools=(keys, values)) -> None:  # type: ignore[no-untyped-def]
            for x, pool in zip(rows, pools, strict=True):
                expect(not torch.equal(pool[0, 1], x[0]), "token 1 got the row of token 0")

        where, product = (
            f"token 1 at a {name} of 2**32 units of 16 bytes",
            f"A token's number times {name}",
        )
        expect_no_wrap(store, is_apart, where, product)


@task("13.1")
def test_slots_past_32_bits(part: ModuleType) -> None:
    """Where a slot begins is computed in 64 bits."""
    k, v, keys, values, _ = a_batch()
    slots = 2**32 + torch.arange(16)  # a slot is an int64_t, and so is its product with a row
    memory, before = memory_of(part), keys.clone()
    expect_no_wrap(
        lambda: memory.store_kv(k, v, keys, values, slots),
        lambda: expect_same(keys, before, "the key blocks after a store far beyond their end"),
        "slots from 2**32 on, rows of 16 units of 16 bytes",
        fitting=(
            "slots from 2**28 on",
            lambda: part.MemoryKernels().store_kv(k, v, keys, values, slots - 2**32 + 2**28),
        ),
    )
