"""Containers that a grader hands in, and PyTorch, which count the items that a part reads of them."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, SupportsIndex

Items = Callable[[int], None]
"""Takes how many items an operation has gone through."""

_listeners: list[Items] = []


@contextmanager
def counting(items: Items) -> Iterator[None]:
    """In the block, all that counted containers go through is told to `items`."""
    _listeners.append(items)
    try:
        yield
    finally:
        _listeners.remove(items)


def _went_through(number: int) -> None:
    for items in _listeners:
        items(number)


class CountedList(list[Any]):
    """A list that counts what is read or copied of it, also of the slices and copies that are made.

    Where C looks into a list's memory directly (`torch.tensor(tokens)`) nothing is counted.
    """

    __hash__ = None

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if not isinstance(index, slice):
            _went_through(1)
            return found
        _went_through(len(found))
        return CountedList(found)

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            _went_through(1)
            yield item

    def __reversed__(self) -> Iterator[Any]:
        for item in super().__reversed__():
            _went_through(1)
            yield item

    def __contains__(self, item: object) -> bool:
        _went_through(len(self))
        return super().__contains__(item)

    def __eq__(self, other: object) -> bool:
        _went_through(len(self))
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __add__(self, other: Any) -> Any:
        _went_through(len(self) + len(other))
        return CountedList(super().__add__(list.copy(other)))

    def __radd__(self, other: Any) -> Any:
        _went_through(len(self) + len(other))
        return CountedList(list.__add__(other, self))

    def copy(self) -> "CountedList":
        """As list's."""
        found: CountedList = self[:]
        return found

    def index(self, *arguments: Any) -> int:
        """As list's."""
        _went_through(len(self))
        return super().index(*arguments)

    def count(self, item: Any) -> int:
        """As list's."""
        _went_through(len(self))
        return super().count(item)

    def insert(self, index: SupportsIndex, item: Any) -> None:
        """As list's."""
        _went_through(len(self))
        super().insert(index, item)

    def extend(self, more: Iterable[Any]) -> None:
        """As list's."""
        before = len(self)
        super().extend(more)
        _went_through(len(self) - before)


INDEXED = ("index", "gather", "scatter", "embedding", "take")
"""What the names of operations begin with that read or write a part of their first tensor."""


@contextmanager
def counted_tensors(items: Items) -> Iterator[None]:
    """In the block, the elements that PyTorch's operations read and write count; a view is one."""
    if "torch" not in sys.modules:
        yield
        return
    import torch
    from torch.utils._pytree import tree_leaves

    from grader.kit.dispatch import Watching

    class Counted(Watching):
        """Counts, and lets each operation do what it does."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            aliases = [one.alias_info for one in func._schema.returns]
            if any(alias is not None and not alias.is_write for alias in aliases):
                items(1)  # a view
                return result
            is_part = func._schema.name.partition("::")[2].startswith(INDEXED)
            touched = [*args[is_part:], kwargs, *([] if any(aliases) else [result])]
            elements = (
                one.numel() for one in tree_leaves(touched) if isinstance(one, torch.Tensor)
            )
            items(1 + sum(elements))
            return result

    with Counted():
        torch.zeros(1) * 2  # the first operation of a process imports what follows them
    with Counted():
        yield
