"""Whether the programs of a Triton launch are numbered down the wrong axis of its grid.

A kernel that takes its row from program_id(1) where the launch counts rows in program_id(0) may read
outside, leave rows out, or give the rows of others: nothing in what comes out tells that from other
mistakes. So a test that has failed runs again, with two numbers exchanged in one kernel; if it passes
then, and fails without, they were exchanged before.

    launched("rope_kernel", (3, 2, 1))       by `triton_watch`, for each launch of a test
    wrong_axes(lambda: test(part))           "" or the advice
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from grader.kit.rerun import passes

Grid = tuple[int, int, int]

PAIRS = ((0, 1), (0, 2), (1, 2))
_grids: dict[str, set[Grid]] = defaultdict(set)
"""Of each kernel that the test has launched."""


def launched(kernel: str, grid: Grid) -> None:
    _grids[kernel].add(grid)


def forget_launches() -> None:
    """A test begins."""
    _grids.clear()


def wrong_axes(again: Callable[[], object]) -> str:
    """What to say if the test, run `again`, passes with two axes of a kernel's grid exchanged and fails
    as it is; "" if it does not.

    A test that counts what is read may pass because all programs do the work of one, and leave the rest
    undone: with its axes exchanged a kernel must write to as many places as before.
    """
    candidates = [
        (kernel, grid, pair)
        for kernel, grids in _grids.items()
        for pair in PAIRS
        # Where both axes have one length, another order of the same programs is all that changes.
        if (grid := next((g for g in sorted(grids) if g[pair[0]] != g[pair[1]]), None))
    ]
    for kernel, grid, pair in candidates:
        with exchanged(kernel, *pair) as places:
            is_right = passes(again)
        if not is_right:
            continue
        with exchanged(kernel, 0, 0) as before:
            is_right = passes(again)
        if not is_right and len(places) >= len(before):
            return _told(kernel, grid, *pair)
    return ""


def _told(kernel: str, grid: Grid, a: int, b: int) -> str:
    size = list(grid if grid[2] > 1 or b == 2 else grid[:2])
    return (
        f"The programs of {kernel} are numbered down the wrong axis: with program_id({a}) and "
        f"program_id({b}) exchanged in it, this test passes. Launched on a grid of {size}, it has "
        f"{grid[a]} numbers of program_id({a}) and {grid[b]} of program_id({b}). Change the kernel or "
        "the launch."
    )


@contextmanager
def exchanged(kernel: str, a: int, b: int) -> Iterator[set[int]]:
    """In this kernel program_id and num_programs of axis a are those of axis b, and of b those of a.
    Gives the addresses that the kernel stores to."""
    import triton.runtime.interpreter as interpreter

    builder: Any = interpreter.InterpreterBuilder
    executor: Any = interpreter.GridExecutor
    launch, names = executor.__call__, ("create_get_program_id", "create_get_num_programs")
    before = {name: getattr(builder, name) for name in (*names, "create_masked_store")}
    store = before["create_masked_store"]
    other = {a: b, b: a}
    running = [""]
    places: set[int] = set()

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        running[0] = self.fn.__name__
        return launch(self, *args, **kwargs)

    def numbering(get: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, axis: get(self, other.get(axis, axis) if running[0] == kernel else axis)

    def counted_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        if running[0] == kernel:
            places.update(pointers.data[mask.data].tolist())
        return store(self, pointers, value, mask, *rest)

    executor.__call__ = noted
    builder.create_masked_store = counted_store
    for name in names:
        setattr(builder, name, numbering(before[name]))
    try:
        yield places
    finally:
        executor.__call__ = launch
        for name, method in before.items():
            setattr(builder, name, method)
