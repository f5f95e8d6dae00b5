"""Task 9.5: keys and values on their way to the pool, as they are."""

from types import ModuleType
from typing import Any

import torch
from hypothesis import given as drawn
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, kernels, task
from grader.kit.far import FAR_WHY, far
from grader.kit.kernels import expect_gaps_kept, expect_near, padded, random
from grader.kit.layout import Reading
from grader.suites.triton_ops.launches import (
    F16,
    F32,
    NOTHING,
    POOL,
    SLOTS,
    WORTH,
    copies,
    expect_one_launch,
    expect_stored,
    expect_work,
    pool,
    product,
    run,
    strides_told,
)


def stored(
    part: ModuleType, k: Tensor, v: Tensor, blocks: tuple[Tensor, Tensor], slots: list[int]
) -> Any:
    """What `store_kv` did; the blocks are checked by the caller."""
    return run(part, "store_kv", k, v, *blocks, torch.tensor(slots))[1]


def readings_of(
    inputs: dict[str, Tensor], blocks: list[Tensor], slots: Tensor
) -> tuple[Reading, Reading]:
    """What the keys' and the values' blocks hold if k or v is misread."""

    def keys(k: Tensor, v: Tensor) -> Tensor:
        return kernels.store_kv(k, v, blocks[0], blocks[1], slots)[0].double()

    def values(k: Tensor, v: Tensor) -> Tensor:
        return kernels.store_kv(k, v, blocks[0], blocks[1], slots)[1].double()

    return Reading(keys, inputs), Reading(values, inputs)


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
    """k and v are views of products; their rows are as far apart as the rows of these."""
    _, k, v = product(4, 3, 2, 5)
    slots = torch.tensor([1, 8, 3, 2])
    for values in (v, padded(v, dims=[0])):
        blocks = pool(3, 3, 2, 5)
        readings = readings_of({"k": k, "v": values}, copies(*blocks), slots)
        stored(part, k, values, blocks, slots.tolist())
        why = f"{strides_told(k=k, v=values)}. Each has its own step from token to token."
        for reading, name, got in zip(readings, POOL, blocks, strict=True):
            right = reading.compute(k=k, v=values)
            expect_near(got, right, F32, f"{name} afterwards", why=why, reading=reading)


@task("9.5")
def test_blocks_of_keys_beside_blocks_of_values(part: ModuleType) -> None:
    """The blocks of a pool need not follow one another, nor the slots of a block."""
    both = random(3, 2, 2, 2, 4, seed=9)
    gaps = [padded(blocks, dims=[0, 1]) for blocks in pool(3, 2, 2, 4)]
    k, v = random(2, 2, 4), random(2, 2, 4, seed=1)
    for keys, values in ((both[:, 0], both[:, 1]), gaps):
        right = kernels.store_kv(k, v, keys, values, torch.tensor([5, 2]))
        stored(part, k, v, (keys, values), [5, 2])
        why = f"{strides_told(key_blocks=keys)} and of value_blocks. {SLOTS}"
        if keys is gaps[0]:
            for name, blocks in zip(POOL, gaps, strict=True):
                expect_gaps_kept(name, blocks, why=why)
        expect_stored((keys, values), right, why)


@task("9.5")
def test_blocks_may_be_far_apart(part: ModuleType) -> None:
    """The offset of a block, or of a token, may be more than int32 holds."""
    k, v = (random(3, 2, 4, seed=seed, dtype=F16) for seed in (0, 1))
    for far_pool in (True, False):
        with far() as distant:
            blocks = pool(3, 2, 2, 4, dtype=F16)
            if far_pool:
                both = distant(torch.stack(blocks, dim=1))
                blocks = both[:, 0], both[:, 1]
            else:
                k, v = distant(k), distant(v)
            right = kernels.store_kv(k, v, *blocks, torch.tensor([5, -1, 2]))
            stored(part, k, v, blocks, [5, -1, 2])
            expect_stored(blocks, right, FAR_WHY)


@task("9.5")
def test_rows_that_no_tile_divides(part: ModuleType) -> None:
    """Rows of 3 heads of 7 numbers, and rows of 1,200 numbers, each in one launch."""
    for kv_heads, d in ((3, 7), (4, 300)):
        _, k, v = product(2, 1, kv_heads, d)
        blocks = pool(2, 2, kv_heads, d)
        right = kernels.store_kv(k, v, *blocks, torch.tensor([0, 3]))
        seen = stored(part, k, v, blocks, [0, 3])
        why = "Lanes past the row's end would write the next slot, or past the pool."
        expect_stored(blocks, right, why)
        expect_one_launch(
            seen, "store_kv", "Keys and values take the same way: one launch moves both."
        )
        for name, source, target in zip("kv", (k, v), blocks, strict=True):
            once = "Each number is moved once."
            expect_work(seen.loads(source), source.numel(), f"numbers read of {name}", once)
            expect_work(seen.stores(target), source.numel(), f"numbers of {name} written", once)
    expect_work(seen.programs, 4 * 10, "programs for two keys and values of 1,200 numbers", WORTH)


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
