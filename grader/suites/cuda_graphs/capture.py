"""A graph of the stand-in: operations, noted with the addresses of their tensors."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only

from grader.kit.expect import Mismatch
from grader.suites.cuda_graphs import rules
from grader.suites.cuda_graphs.pool import Pool


class StandInGraph:
    """See `yaie.core.contracts.graphs.Graph`.

    operations: what a replay does. pool: that it was recorded from, None before.
    """

    def __init__(self, replay: Callable[["StandInGraph"], None]) -> None:
        self._replay = replay
        self.operations: list[Callable[[], Any]] = []
        self.pool: Pool | None = None

    def replay(self) -> None:
        self._replay(self)

    def run(self) -> None:
        """What a device does at a replay."""
        for work in self.operations:
            try:
                work()
            except (IndexError, RuntimeError) as error:
                problem = f"a replay reads an index that is none ({error})"
                raise Mismatch(problem, why=rules.ADDRESSES) from error


class Capture:
    """Fills a graph. While it lasts the operations run, which gives their results a shape; at its end
    all that they have changed is as before, since nothing of a capture runs on a device."""

    def __init__(self, graph: StandInGraph, pool: Pool) -> None:
        self._operations = graph.operations
        self.pool = pool
        self._before: dict[int, tuple[Tensor, Tensor]] = {}
        self._made: list[Tensor] = []

    def end(self) -> None:
        for now, before in self._before.values():
            now.copy_(before)
        for tensor in self._made:
            tensor.zero_()

    def note(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        """Carry out an operation, and have each replay do so too."""
        writes = [
            given
            for at, arg in enumerate(func._schema.arguments)
            if arg.alias_info is not None
            and arg.alias_info.is_write
            and isinstance(given := _given(arg, at, args, kwargs), Tensor)
        ]
        for tensor in writes:
            self._save(tensor)
        known = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        work = self.bound(func, args, kwargs)
        fresh: list[Tensor] = []

        def placed(tensor: Tensor) -> Tensor:
            if tensor.untyped_storage().data_ptr() in known:
                return tensor  # what was written to
            there = self.pool.like(tensor)
            there.copy_(tensor)
            fresh.append(self._address(there))
            return there

        result = tree_map_only(Tensor, placed, func(*args, **kwargs))
        self._made += fresh
        if writes and not fresh:
            self._operations.append(work)
        elif not func.overloadpacket.__name__.startswith(("empty", "new_empty")):
            self._operations.append(lambda: _write(work(), fresh))
        return result

    def copy(self, func: Any, args: Any) -> Any:
        """Note a copy from memory that is pinned."""
        self._operations.append(self.bound(func, args, {}))
        return args[0]

    def bound(self, func: Any, args: Any, kwargs: Any) -> Callable[[], Any]:
        """An operation on the addresses that its tensors have now."""
        there, named = tree_map_only(Tensor, self._address, (args, kwargs))
        return lambda: func(*there, **named)

    def _address(self, tensor: Tensor) -> Tensor:
        """What a graph knows of a tensor: where it lies. It does not keep the pool's memory in use."""
        segment = self.pool.held(tensor)
        return tensor if segment is None else self.pool.bare(tensor, segment)

    def _save(self, tensor: Tensor) -> None:
        if self.pool.held(tensor) is None:
            whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
            key = tensor.untyped_storage().data_ptr()
            self._before.setdefault(key, (whole, whole.clone()))


def _given(arg: Any, at: int, args: Any, kwargs: Any) -> Any:
    return args[at] if at < len(args) else kwargs.get(arg.name)


def _write(results: Any, targets: list[Tensor]) -> None:
    made = [x for x in tree_flatten(results)[0] if isinstance(x, Tensor)]
    for target, result in zip(targets, made, strict=True):
        target.copy_(result)
