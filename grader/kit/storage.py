"""What calls leave behind in tensors, which `tracemalloc` does not see; several calls at once."""

import gc
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from grader.kit.dispatch import Watching
from grader.kit.expect import expect
from grader.kit.memory import HISTORY, LEAST, expect_keeps_nothing, kept_by
from grader.kit.script import start_script
from grader.kit.standing import expect_results_stand

WARM, CALLS = 2, 8
ROUND = 12
"""Calls between two looks at Python's objects: those on tensors take long."""
FEW = 2
"""Calls whose tensors may be there still: those of the last one, in a buffer that is used again."""


def calls_kept(call: Callable[[], Any]) -> tuple[int, int]:
    """(of how many of CALLS calls a tensor that was made in them is there afterwards, bytes of those).
    call: makes its arguments itself."""
    made: list[dict[int, tuple[StorageWeakRef, int]]] = []

    class Noting(Watching):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            for one in tree_leaves(out):
                if isinstance(one, Tensor) and one.layout == torch.strided:
                    storage = one.untyped_storage()
                    if all(storage._cdata not in earlier for earlier in made[:-1]):
                        made[-1][storage._cdata] = StorageWeakRef(storage), storage.nbytes()
            return out

    for _ in range(WARM + CALLS):
        made.append({})
        with Noting():
            call()
    gc.collect()
    there = [
        [size for storage, size in each.values() if size and not storage.expired()]
        for each in made[WARM:]
    ]
    return sum(map(bool, there)), sum(map(sum, there))


def expect_nothing_is_kept(calls: Mapping[str, Callable[[], Any]]) -> None:
    """Calls leave nothing behind, neither objects nor tensors. By what names each; they make their
    arguments themselves. All are made in turn first, and one by one if something was kept."""
    start_script()

    def together() -> None:
        for call in calls.values():
            call()

    if kept_by(together, ROUND) < LEAST and calls_kept(together)[0] <= FEW:
        return
    for what, call in calls.items():
        start_script()
        expect_keeps_nothing(call, what)
        number, size = calls_kept(call)
        problem = f"{what} keeps tensors of {number} of {CALLS} calls: {size} bytes"
        expect(number <= FEW, problem, why=HISTORY)


def expect_calls_apart(calls: Mapping[str, Callable[[int], Any]]) -> None:
    """Results stay what they are while more calls are made, and nothing is kept of any. calls: by what
    names them; each computes on inputs of its own, which a number tells apart."""
    for what, call in calls.items():
        expect_results_stand([lambda n=n, call=call: call(n) for n in (1, 2, 3)], what)  # type: ignore[misc]
        start_script()
    expect_nothing_is_kept({what: lambda call=call: call(1) for what, call in calls.items()})  # type: ignore[misc]
