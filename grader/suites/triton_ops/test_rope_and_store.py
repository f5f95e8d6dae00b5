"""Task 9.6: keys turned on their way to the pool, in one launch with everything else."""

from functools import partial
from types import ModuleType
from typing import Any

import torch
from hypothesis import given as drawn
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect_close, kernels, task
from grader.kit.far import FAR_WHY, far
from grader.kit.kernels import expect_gaps_kept, expect_near, padded
from grader.kit.layout import Reading
from grader.kit.siblings import telling
from grader.suites.triton_ops.launches import (
    F16,
    F32,
    NOTHING,
    POOL,
    SLOTS,
    STRIDES,
    apart,
    copies,
    expect_explained,
    expect_one_launch,
    expect_work,
    given,
    pool,
    product,
    run,
    strides_told,
)
from grader.suites.triton_ops.turns import MASKED, told_of_slots, told_of_turns

ONCE = (
    "Heads have 8 dimensions here, of which 6 turn. Of q the others stay where they are, neither read "
    "nor written. A key is turned in registers on its way: each number is read once and written once, "
    "and none is read back from the pool, where other threads of the program may still be writing."
)


def expect_turned_and_stored(
    part: ModuleType,
    qkv: list[Tensor],
    positions: Tensor,
    tables: Any,
    slots: list[int],
    why: str,
    blocks: tuple[Tensor, Tensor] | None = None,
) -> Any:
    """`rope_and_store` turns q, fills the slots, and leaves k and v. Gives what its launches did.

    blocks: the pool, one of 3 blocks of 4 slots if not given.
    """
    q, k, v = qkv
    blocks = blocks or pool(3, 4, k.shape[1], k.shape[2], dtype=k.dtype)
    turned = [kernels.rope(x, positions, *tables) for x in (q, k)]
    right = kernels.store_kv(turned[1].to(k.dtype), v, *blocks, torch.tensor(slots))
    before, pool_before = copies(q, k, v), copies(*blocks)
    with given(part, "turn_heads"):
        args = (q, k, v, positions, *tables, *blocks, torch.tensor(slots))
        _, seen = run(part, "rope_and_store", *args)
    with telling(partial(told_of_turns, "q", q, before[0], why, positions, *tables)):
        expect_near(q, turned[0], q.dtype, "q afterwards", why=why)
    for name, mine, exact, was in zip(POOL, blocks, right, pool_before, strict=True):
        told = partial(
            told_of_slots, name, mine, exact, was, why, slots, *before[1:], positions, *tables
        )
        with telling(told):
            expect_near(mine, exact.double(), mine.dtype, f"{name} afterwards", why=why)
    for name, tensor, was in zip("kv", (k, v), before[1:], strict=True):
        stays = f"{name} is read on its way to the pool, and not written."
        expect_close(tensor, was, f"{name} afterwards", rtol=0, atol=0, why=stays)
    return seen


@task("9.6")
def test_q_turns_in_place_and_k_on_its_way(part: ModuleType) -> None:
    """q is turned where it lies; k is turned into its slot; v is copied to its slot."""
    positions, tables = torch.tensor([8, 0, 3]), kernels.rotary_tables(9, 4)
    why = f"Keys are stored turned, at the position of their token; values are not turned. {SLOTS}"
    expect_turned_and_stored(part, product(3, 4, 2, 8), positions, tables, [11, 0, 5], why)


@task("9.6")
def test_q_turns_whatever_the_slot(part: ModuleType) -> None:
    """A token with a negative slot stores nothing, and its q is turned all the same."""
    positions, tables = torch.tensor([2, 5]), kernels.rotary_tables(9, 4)
    why = f"The slot is no business of q. {NOTHING}"
    expect_turned_and_stored(part, product(2, 4, 2, 8), positions, tables, [-1, 4], why)


@task("9.6")
def test_dimensions_that_do_not_turn_are_stored_too(part: ModuleType) -> None:
    """With rotary_dim below the head's size, the rest of each key is copied."""
    positions, tables = torch.tensor([2, 5]), kernels.rotary_tables(9, 3)
    why = (
        "In place the rest of a head could stay where it was; here it must come along to the pool."
    )
    expect_turned_and_stored(part, product(2, 3, 2, 11), positions, tables, [7, 4], why)


@task("9.6")
def test_rope_and_store_is_one_launch(part: ModuleType) -> None:
    """One launch reads q, k and v once each, and writes each number once."""
    qkv, blocks = product(3, 4, 2, 8), pool(3, 4, 2, 8)
    positions, tables = torch.tensor([8, 0, 3]), kernels.rotary_tables(9, 3)
    seen = expect_turned_and_stored(part, qkv, positions, tables, [1, 0, 5], "", blocks)
    why = (
        "Three launches move k three times, and at batch 1 the launches are all that one measures."
    )
    expect_one_launch(seen, "rope_and_store", why)
    turned = 3 * 4 * 6
    for name, tensor in zip("qkv", qkv, strict=True):
        most = turned if name == "q" else tensor.numel()
        expect_work(seen.loads(tensor), most, f"numbers read of {name}", ONCE)
    expect_work(seen.stores(qkv[0]), turned, "numbers written to q", ONCE)
    for name, stored in zip(POOL, blocks, strict=True):
        expect_work(seen.stores(stored), qkv[1].numel(), f"numbers written to {name}", ONCE)
        expect_work(seen.loads(stored), 0, f"numbers read of {name}", ONCE)


@task("9.6")
def test_rope_and_store_with_many_heads(part: ModuleType) -> None:
    """33 heads of q on 11 of k, in float16, for few tokens and for many."""
    tables = kernels.rotary_tables(9, 2)
    why = (
        f"{MASKED} Program t of a token has the heads of q from t * HEADS on, and those of k and v from "
        "t * KV_HEADS on: where tokens are few, KV_HEADS is 1."
    )
    for slots in ([6, 10], [6, 10, 0, 3, 11]):
        positions = torch.tensor([8, 1, 0, 4, 2][: len(slots)])
        qkv = product(len(slots), 33, 11, 4, dtype=F16)
        expect_turned_and_stored(part, qkv, positions, tables, slots, why)


@task("9.6")
def test_q_k_v_and_the_pool_have_strides_of_their_own(part: ModuleType) -> None:
    """Each of q, k, v and the pool has strides of its own: for tokens, heads, blocks and slots."""
    q, k, v = apart(3, 4, 2, 8)
    inputs, (keys, values) = {"q": q, "k": k, "v": v}, (padded(b, 4) for b in pool(3, 4, 2, 8))
    tables, positions = kernels.rotary_tables(9, 3), torch.tensor([8, 0, 3])
    slots = torch.tensor([11, 0, 5])
    keys_were, values_were = copies(keys, values)

    def turned(x: Tensor) -> Tensor:
        return kernels.rope(x, positions, *tables)

    readings = (
        Reading(
            lambda q, k, v: kernels.store_kv(turned(k), v, keys_were, values_were, slots)[0], inputs
        ),
        Reading(
            lambda q, k, v: kernels.store_kv(turned(k), v, keys_were, values_were, slots)[1], inputs
        ),
    )
    right = turned(q), *(reading.compute(**inputs) for reading in readings)
    with given(part, "turn_heads"):
        run(part, "rope_and_store", q, k, v, positions, *tables, keys, values, slots)
    told = strides_told(**inputs, key_blocks=keys)
    why = f"{told} and of value_blocks. {STRIDES}"
    for name, tensor in zip(("q", *POOL), (q, keys, values), strict=True):
        expect_gaps_kept(name, tensor, why=why)
    expect_near(q, right[0], F32, "q afterwards", why=why)
    expect_explained(
        lambda: expect_near(
            keys, right[1].double(), F32, "key_blocks afterwards", why=why, reading=readings[0]
        ),
        lambda: expect_near(
            values, right[2].double(), F32, "value_blocks afterwards", why=why, reading=readings[1]
        ),
    )


@task("9.6")
def test_tokens_and_blocks_may_be_far_apart(part: ModuleType) -> None:
    """The offset of a token or of a block may be more than int32 holds."""
    positions, tables = torch.tensor([8, 0, 3]), kernels.rotary_tables(9, 4)
    qkv = [x.contiguous() for x in product(3, 4, 2, 8, dtype=F16)]
    for far_pool in (True, False):
        with far() as distant:
            blocks = pool(3, 4, 2, 8, dtype=F16)
            if far_pool:
                both = distant(torch.stack(blocks, dim=1))
                blocks = both[:, 0], both[:, 1]
            else:
                qkv = [distant(x) for x in qkv]
            expect_turned_and_stored(part, qkv, positions, tables, [11, -1, 5], FAR_WHY, blocks)


@task("9.6")
@examples(8)
@drawn(
    st.permutations(range(12)),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(0, 2),
)
def test_any_rope_and_store(
    part: ModuleType, slots: list[int], tokens: int, heads: int, kv_heads: int, half: int, rest: int
) -> None:
    """Any q, k and v: q turned, keys turned and values as they are in their slots."""
    qkv = apart(tokens, heads, kv_heads, 2 * half + rest)
    chosen = [slot if slot < 9 else 8 - slot for slot in slots[:tokens]]
    tables = kernels.rotary_tables(12, half)
    positions = torch.tensor(slots[-tokens:])
    expect_turned_and_stored(part, qkv, positions, tables, chosen, SLOTS)
