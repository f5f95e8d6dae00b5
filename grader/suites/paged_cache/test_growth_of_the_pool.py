"""What a call of the pool costs grows with the tokens and blocks that it names, and no more."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch

from grader.kit import task
from grader.kit.growth import expect_growth
from yaie.core.batch import KVLayerSpec

NAMED = (
    "A step names a few tokens or blocks of a pool of gigabytes: read and write these, where they lie. "
    "A clone of the pool, or every layer gathered for one, is more work than all else in the step."
)
PAIRS = [(0, 1), (2, 3)]
NEW, SLOTS = torch.ones(3, 1, 2), torch.tensor([0, 5, 2])
TABLES = torch.tensor([[1, 3]])
ONE_LAYER: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "write of three tokens": lambda pool: partial(pool.write, 0, NEW, NEW, SLOTS),
    "gather of two blocks": lambda pool: partial(pool.gather, 0, TABLES),
}
ALL_LAYERS: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "copy_blocks of two pairs": lambda pool: partial(pool.copy_blocks, PAIRS),
    "swap_out of two pairs": lambda pool: partial(pool.swap_out, PAIRS),
    "swap_in of two pairs": lambda pool: partial(pool.swap_in, PAIRS),
}


def again(
    call: Callable[[Any], Callable[[], Any]], part: ModuleType, num_blocks: int, layers: int = 1
) -> Callable[[], Any]:
    """A call on a pool that has had it once: some make what they need with the first. num_blocks: of two
    slots, and as many on the host."""
    specs = [KVLayerSpec(1, 2)] * layers
    pool = part.KVPool(specs, num_blocks, 2, torch.float32, torch.device("cpu"), num_blocks)
    call(pool)()
    return call(pool)


@task("3.4")
def test_a_call_costs_the_same_in_any_pool(part: ModuleType) -> None:
    """write, gather and the moves cost what their tokens and blocks cost, however large the pool is."""
    for what, call in {**ONE_LAYER, **ALL_LAYERS}.items():
        expect_growth(
            part, what, "blocks in each pool",
            lambda n, call=call: again(call, part, n),  # type: ignore[misc]
            why=NAMED,
        )  # fmt: skip


@task("3.4")
def test_a_layer_costs_the_same_beside_any_others(part: ModuleType) -> None:
    """write and gather touch the layer that they are given, and no other."""
    for what, call in ONE_LAYER.items():
        expect_growth(
            part, what, "layers",
            lambda n, call=call: again(call, part, 4, n),  # type: ignore[misc]
            size=16, why=NAMED,
        )  # fmt: skip
