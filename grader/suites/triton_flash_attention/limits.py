# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

"""The four numbers of a walk over tiles: what `visible_keys` and `queries_that_see` answer.

A part of another make has neither, or asks them otherwise: it is graded by its results and by the tiles
that it masks.
"""

from types import ModuleType
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from grader.kit import Mismatch, note, start_script
from grader.kit.triton_watch import watching
from grader.suites.triton_flash_attention.problems import is_helper

helper: Any = None
"""The part's function. Kernels find it here, since they know nothing but their module's names."""
FIRST_AND_LAST = {
    "visible_keys": "The first query sees from first - window + 1 to first, the last one up to last",
    "queries_that_see": "A key is seen from its own position on, and for a window's length",
}


@triton.jit
def keys_kernel(found, first, last, tk, window, WINDOW: tl.constexpr, BLOCK: tl.constexpr):
    begin, full_begin, full_end, end = helper(first, last, tk, window, WINDOW, BLOCK)
    tl.store(found, begin)
    tl.store(found + 1, full_begin)
    tl.store(found + 2, full_end)
    tl.store(found + 3, end)


@triton.jit
def queries_kernel(
    found, first, last, tq, offset, window, WINDOW: tl.constexpr, BLOCK: tl.constexpr
):
    begin, full_begin, full_end, end = helper(first, last, tq, offset, window, WINDOW, BLOCK)
    tl.store(found, begin)
    tl.store(found + 1, full_begin)
    tl.store(found + 2, full_end)
    tl.store(found + 3, end)


def find(part: ModuleType, name: str) -> Any:
    """The part's helper of this name, with the stub's parameters, or None."""
    modules = [module for module in vars(part).values() if isinstance(module, ModuleType)]
    return next((vars(module)[name] for module in modules if is_helper(module, name)), None)


def expect_limits(
    part: ModuleType,
    name: str,
    tile: tuple[int, int],
    tq: int,
    tk: int,
    window: int | None,
    block: int,
) -> None:
    """The walks visit the tiles that hold a visible pair, and walk without a mask over whole ones.

    tile: positions of queries (`visible_keys`) or numbers of keys (`queries_that_see`), first to last.
    """
    global helper
    helper = find(part, name)
    if helper is None:
        return
    first, last = tile
    over_keys = name == "visible_keys"
    offset = tk - tq
    extra = f"tk={tk}" if over_keys else f"tq={tq}, offset={offset}"
    call = f"{name}(first={first}, last={last}, {extra}, window={window}, block={block})"
    start_script()
    note(f"begin, full_begin, full_end, end = {call}")
    found = torch.zeros(4, dtype=torch.int64)
    with watching():
        if over_keys:
            keys_kernel[(1,)](found, first, last, tk, window or 0, window is not None, block)
        else:
            sizes = (first, last, tq, offset, window or 0)
            queries_kernel[(1,)](found, *sizes, window is not None, block)
    _judge(call, name, found.tolist(), _seen(tile, tq, tk, window, over_keys), block, window)


def _seen(tile: tuple[int, int], tq: int, tk: int, window: int | None, over_keys: bool) -> Tensor:
    """[rows of the tile, everything that the walk may visit] bool."""
    own = torch.arange(tile[0], tile[1] + 1)[:, None]
    passing = torch.arange(tk)[None] if over_keys else torch.arange(tk - tq, tk)[None]
    position, key = (own, passing) if over_keys else (passing, own)
    return (key <= position) & (key > position - (window or 2**30))


def _judge(
    call: str, name: str, found: list[int], seen: Tensor, block: int, window: int | None
) -> None:
    begin, full_begin, full_end, end = found
    shown = f"begin={begin}, full_begin={full_begin}, full_end={full_end}, end={end}"
    starts = range(0, seen.shape[1], block)
    visited = [start for start in starts if seen[:, start : start + block].any()]
    whole = [
        start
        for start in starts
        if start + block <= seen.shape[1] and seen[:, start : start + block].all()
    ]
    before = [*range(begin, full_begin, block)] if window or name != "visible_keys" else []
    walked = [*before, *range(full_begin, full_end, block), *range(full_end, end, block)]
    what = f"{call} gives {shown}"
    if walked != visited:
        why = f"{FIRST_AND_LAST[name]}. begin is the tile of the first of these, end is past the last."
        if min(walked, default=0) < 0:
            why = (
                "Nothing has a negative number: where a limit comes out below 0, whatever lies before "
                "the first of all, it is 0. Whole-number division does not see to that."
            )
        elif sorted(set(walked)) == visited:
            why = "Walks that overlap take a tile in twice: begin <= full_begin <= full_end."
        raise Mismatch(f"{what}: the tiles that are walked over", str(visited), str(walked), why)
    unmasked = [*range(full_begin, full_end, block)]
    if unmasked != whole:
        passing = "key" if name == "visible_keys" else "query"
        why = "full_begin and full_end are the limits of the tiles that are seen whole. "
        if missed := sorted(set(whole) - set(unmasked)):
            why += f"The tile from {passing} {missed[0]} on is one, and is masked for nothing."
        elif more := sorted(set(unmasked) - set(whole)):
            why += f"The tile from {passing} {more[0]} on is none: a pair that is hidden is seen there."
        raise Mismatch(
            f"{what}: the tiles that are walked over without a mask", str(whole), str(unmasked), why
        )
