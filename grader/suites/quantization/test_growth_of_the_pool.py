"""Task 19.7: what a call of the pool costs grows with the tokens and blocks that it names."""

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
    "A pool that is copied, or turned back to floating point as a whole, is more work than all else."
)
PAIRS = [(0, 1), (2, 3)]
NEW, SLOTS = torch.ones(3, 1, 4), torch.tensor([0, 5, 2])
TABLES = torch.tensor([[1, 3]])
CALLS: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "write of three tokens": lambda pool: partial(pool.write, 0, NEW, NEW, SLOTS),
    "gather of two blocks": lambda pool: partial(pool.gather, 0, TABLES),
    "copy_blocks of two pairs": lambda pool: partial(pool.copy_blocks, PAIRS),
    "swap_out of two pairs": lambda pool: partial(pool.swap_out, PAIRS),
    "swap_in of two pairs": lambda pool: partial(pool.swap_in, PAIRS),
}


@task("19.7")
def test_a_call_costs_the_same_in_any_pool(part: ModuleType) -> None:
    """write, gather and the moves cost what their tokens and blocks cost, however large the pool is."""

    def again(call: Callable[[Any], Callable[[], Any]], n: int) -> Callable[[], Any]:
        """A call on a pool that has had it once: some make what they need with the first."""
        cpu = torch.device("cpu")
        pool = part.Int8KVPool([KVLayerSpec(1, 4)], n, 2, torch.float32, cpu, n)
        call(pool)()
        return call(pool)

    for what, call in CALLS.items():
        expect_growth(
            part, what, "blocks in each pool",
            lambda n, call=call: again(call, n),  # type: ignore[misc]
            why=NAMED,
        )  # fmt: skip
