"""Tasks 9.5 and 9.6: keys and values on their way to the pool, as they are and turned."""

from types import ModuleType
from typing import Any

import torch
from hypothesis import given as drawn
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect_close, kernels, task
from grader.kit.kernels import expect_near, random
from grader.suites.triton_ops.launches import (
    F16,
    F32,
    copies,
    expect_one_launch,
    expect_work,
    given,
    product,
    run,
)

SLOTS = (
    "Slot s is row s % block_size of block s // block_size; a block's stride says how far the next "
    "block is."
)
NOTHING = "A negative slot stores nothing: as an index it would be another block's memory."


def pool(blocks: int, block_size: int, kv_heads: int, d: int, **how: Any) -> tuple[Tensor, Tensor]:
    """Keys and values that are there already."""
    shape = blocks, block_size, kv_heads, d
    return random(*shape, seed=90, **how), random(*shape, seed=91, **how)


def expect_stored(got: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], why: str) -> None:
    for name, mine, exact in zip(("key_blocks", "value_blocks"), got, right, strict=True):
        expect_near(mine, exact.double(), mine.dtype, f"{name} afterwards", why=why)


def stored(
    part: ModuleType, k: Tensor, v: Tensor, blocks: tuple[Tensor, Tensor], slots: list[int]
) -> Any:
    """What `store_kv` did; the blocks are checked by the caller."""
    return run(part, "store_kv", k, v, *blocks, torch.tensor(slots))[1]


@task("9.5")
def test_tokens_go_to_their_slots(part: ModuleType) -> None:
    """Each token's key and value lie in its slot afterwards, and every other slot is as it was."""
    k, v, blocks = random(3, 2, 4), random(3, 2, 4, seed=1), pool(4, 2, 2, 4)
    right = kernels.store_kv(k, v, *blocks, torch.tensor([7, 0, 3]))
    stored(part, k, v, blocks, [7, 0, 3])
    expect_stored(blocks, right, SLOTS)


@task("9.5")
def test_a_negative_slot_stores_nothing(part: ModuleType) -> None:
    """Tokens that only fill up a batch have slot -1."""
    k, v, blocks = random(3, 2, 4), random(3, 2, 4, seed=1), pool(3, 2, 2, 4)
    right = kernels.store_kv(k, v, *blocks, torch.tensor([-1, 5, -1]))
    stored(part, k, v, blocks, [-1, 5, -1])
    expect_stored(blocks, right, NOTHING)


@task("9.5")
def test_views_of_a_product(part: ModuleType) -> None:
    """k and v are views of one product; their rows are as far apart as its rows."""
    _, k, v = product(4, 3, 2, 5)
    blocks = pool(3, 3, 2, 5)
    right = kernels.store_kv(k, v, *blocks, torch.tensor([1, 8, 3, 2]))
    stored(part, k, v, blocks, [1, 8, 3, 2])
    expect_stored(blocks, right, "The stride of the first dimension is not kv_heads * d here.")


@task("9.5")
def test_blocks_of_keys_beside_blocks_of_values(part: ModuleType) -> None:
    """The blocks of a pool need not follow one another."""
    both = random(3, 2, 2, 2, 4, seed=9)
    blocks = both[:, 0], both[:, 1]
    k, v = random(2, 2, 4), random(2, 2, 4, seed=1)
    right = kernels.store_kv(k, v, *blocks, torch.tensor([5, 2]))
    stored(part, k, v, blocks, [5, 2])
    expect_stored(blocks, right, SLOTS)


@task("9.5")
def test_rows_that_no_tile_divides(part: ModuleType) -> None:
    """Rows of 3 heads of 7 numbers, and rows of 1,200 numbers, each in one launch."""
    for kv_heads, d in ((3, 7), (4, 300)):
        k, v = random(2, kv_heads, d), random(2, kv_heads, d, seed=1)
        blocks = pool(2, 2, kv_heads, d)
        right = kernels.store_kv(k, v, *blocks, torch.tensor([0, 3]))
        seen = stored(part, k, v, blocks, [0, 3])
        why = "Lanes past the row's end would write the next slot, or past the pool."
        expect_stored(blocks, right, why)
        expect_one_launch(
            seen, "store_kv", "Keys and values take the same way: one launch moves both."
        )
        expect_work(seen.loads(k), k.numel(), "numbers read of k", "Each is moved once.")


@task("9.5")
@examples(10)
@drawn(st.permutations(range(6)), st.integers(1, 5), st.integers(1, 3), st.integers(1, 9))
def test_any_store(part: ModuleType, slots: list[int], tokens: int, kv_heads: int, d: int) -> None:
    """Any tokens go to any slots of any pool; every slot above 3 stands for none here."""
    chosen = [slot if slot < 4 else -slot for slot in slots[:tokens]]
    k, v = random(tokens, kv_heads, d, dtype=F16), random(tokens, kv_heads, d, seed=1, dtype=F16)
    blocks = pool(2, 2, kv_heads, d, dtype=F16)
    right = kernels.store_kv(k, v, *blocks, torch.tensor(chosen))
    stored(part, k, v, blocks, chosen)
    expect_stored(blocks, right, SLOTS)


def expect_turned_and_stored(
    part: ModuleType, qkv: list[Tensor], positions: Tensor, tables: Any, slots: list[int], why: str
) -> Any:
    """`rope_and_store` turns q, fills the slots, and leaves k and v. Gives what its launches did."""
    q, k, v = qkv
    blocks = pool(3, 4, k.shape[1], k.shape[2], dtype=k.dtype)
    turned = [kernels.rope(x, positions, *tables) for x in (q, k)]
    right = kernels.store_kv(turned[1].to(k.dtype), v, *blocks, torch.tensor(slots))
    before = copies(k, v)
    with given(part, "turn_heads"):
        args = (q, k, v, positions, *tables, *blocks, torch.tensor(slots))
        _, seen = run(part, "rope_and_store", *args)
    expect_near(q, turned[0], q.dtype, "q afterwards", why=why)
    expect_stored(blocks, right, why)
    for name, tensor, was in zip("kv", (k, v), before, strict=True):
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
    """One launch reads q, k and v once each."""
    qkv = product(3, 4, 2, 8)
    positions, tables = torch.tensor([8, 0, 3]), kernels.rotary_tables(9, 4)
    seen = expect_turned_and_stored(part, qkv, positions, tables, [1, 0, 5], "")
    why = (
        "Three launches move k three times, and at batch 1 the launches are all that one measures."
    )
    expect_one_launch(seen, "rope_and_store", why)
    for name, tensor in zip("qkv", qkv, strict=True):
        expect_work(seen.loads(tensor), tensor.numel(), f"numbers read of {name}", why)


@task("9.6")
def test_rope_and_store_with_many_heads(part: ModuleType) -> None:
    """33 heads of q on 11 of k, in float16."""
    positions, tables = torch.tensor([8, 1]), kernels.rotary_tables(9, 2)
    why = "Heads of q beyond one tile, and lanes of a tile beyond the last head."
    qkv = product(2, 33, 11, 4, dtype=F16)
    expect_turned_and_stored(part, qkv, positions, tables, [6, 10], why)


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
    qkv = product(tokens, heads, kv_heads, 2 * half + rest, dtype=F32)
    chosen = [slot if slot < 9 else -1 for slot in slots[:tokens]]
    tables = kernels.rotary_tables(12, half)
    positions = torch.tensor(slots[-tokens:])
    expect_turned_and_stored(part, qkv, positions, tables, chosen, SLOTS)
