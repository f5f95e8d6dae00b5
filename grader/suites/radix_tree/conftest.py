"""Every task needs a tree that was filled, and most need one that splits. Where tasks other than the one
that is graded are still stubs, the reference's methods stand in: each earns its points at once."""

import inspect
from types import ModuleType, SimpleNamespace

import pytest

from grader.recorder import task_of
from solutions.radix_tree import RadixTree

METHODS = {
    "4.1": ("peek", "match_prefix", "_walk", "_common_blocks", "_touch"),
    "4.2": ("insert",),
    "4.3": ("split",),
    "4.4": ("lock", "unlock"),
    "4.5": ("evict", "_remove"),
}


@pytest.fixture
def part(part: ModuleType, request: pytest.FixtureRequest) -> SimpleNamespace:
    """The package under test, its unwritten other tasks lent."""
    return SimpleNamespace(RadixTree=lend(part.RadixTree, task_of(request.node)))


def lend(own: type, task: str) -> type:
    """`own` with the reference's methods for tasks other than `task` of which every method is a stub.

    A class that is built in another way than the stub is left as it is.
    """
    unwritten = [
        names
        for id, names in METHODS.items()
        if id != task and all(_is_stub(own, name) for name in names)
    ]
    lent = {name: vars(RadixTree)[name] for names in unwritten for name in names}
    return type(own.__name__, (own,), lent) if lent else own


def _is_stub(own: type, name: str) -> bool:
    method = getattr(own, name, None)
    try:
        return "not implemented yet; see chapter" in inspect.getsource(method)  # type: ignore[arg-type]
    except (TypeError, OSError):  # there is none, or its source is not at hand
        return False
