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

MOST_STARTS = 12
"""Tiles that are listed one by one."""
helper: Any = None
"""The part's function. Kernels find it here, since they know nothing but their module's names."""


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
    seen = _seen(tile, tq, tk, window, over_keys)
    is_told_apart = not over_keys and abs(offset) > 1  # by 1, it is also a limit that is off by one
    aside = _seen(tile, tq, tq, window, over_keys) if is_told_apart else None
    _judge(call, name, found.tolist(), seen, block, tile, window, aside)


def _seen(tile: tuple[int, int], tq: int, tk: int, window: int | None, over_keys: bool) -> Tensor:
    """[rows of the tile, everything that the walk may visit] bool."""
    own = torch.arange(tile[0], tile[1] + 1)[:, None]
    passing = torch.arange(tk)[None] if over_keys else torch.arange(tk - tq, tk)[None]
    position, key = (own, passing) if over_keys else (passing, own)
    return (key <= position) & (key > position - (window or 2**30))


def _judge(
    call: str,
    name: str,
    found: list[int],
    seen: Tensor,
    block: int,
    tile: tuple[int, int],
    window: Any,
    aside: Tensor | None,
) -> None:
    """tile: positions of the queries, or numbers of the keys, that are the rows of `seen`. aside: what
    would be seen if query 0 stood at position 0."""
    begin, full_begin, full_end, end = found
    shown = f"begin={begin}, full_begin={full_begin}, full_end={full_end}, end={end}"
    starts = range(0, seen.shape[1], block)
    visited = _visited(seen, block)
    whole = [
        start
        for start in starts
        if start + block <= seen.shape[1] and seen[:, start : start + block].all()
    ]
    before = [*range(begin, full_begin, block)] if window or name != "visible_keys" else []
    walked = [*before, *range(full_begin, full_end, block), *range(full_end, end, block)]
    what = f"{call} gives {shown}"
    if walked != visited:
        why = _of_walk(name, found, walked, visited, seen, block)
        if aside is not None and walked == _visited(aside, block):
            why = "These are the tiles for offset = 0: query j stands at position offset + j."
        raise Mismatch(f"{what}: the tiles that are walked over", _cut(visited), _cut(walked), why)
    unmasked = [*range(full_begin, full_end, block)]
    if unmasked != whole:
        why = _of_whole(name, unmasked, whole, seen, tile, block)
        raise Mismatch(
            f"{what}: the tiles that are walked over without a mask",
            _cut(whole),
            _cut(unmasked),
            why,
        )


def _visited(seen: Tensor, block: int) -> list[int]:
    """Where the tiles start that hold a visible pair."""
    starts = range(0, seen.shape[1], block)
    return [start for start in starts if seen[:, start : start + block].any()]


def _cut(starts: list[int]) -> str:
    if len(starts) <= MOST_STARTS:
        return str(starts)
    return f"[{starts[0]}, {starts[1]}, ..., {starts[-1]}], {len(starts)} tiles"


def _of_walk(
    name: str, found: list[int], walked: list[int], visited: list[int], seen: Tensor, block: int
) -> str:
    """Which limit is wrong of a walk that visits other tiles than it must."""
    _, full_begin, full_end, _ = found
    own, passing = ("query", "key") if name == "visible_keys" else ("key", "query")
    limits = zip(("begin", "full_begin", "full_end", "end"), found, strict=True)
    below = [f"{limit}={number}" for limit, number in limits if number < 0]
    if min(walked, default=0) < 0:
        return f"No {passing} has a negative number: {' and '.join(below)} must be 0."
    twice = sorted({start for start in walked if walked.count(start) > 1})
    if twice and set(walked) == set(visited):
        what = f"The tile{'s' * (len(twice) > 1)} from {', '.join(map(str, twice))} on"
        order = f"full_begin={full_begin} is past full_end={full_end}"
        if full_begin > full_end:
            ends = "One walk ends at full_begin, and the last one begins at full_end"
            are = "are" if len(twice) > 1 else "is"
            told = f"{order}. {ends}: {what.lower()} {are} taken twice."
            return f"{told} Where no tile is seen whole, full_begin = full_end."
        return f"{what} would be taken twice: begin <= full_begin <= full_end."
    if not visited:
        sees = "sees a key" if own == "query" else "is seen"
        return f"No {own} of this tile {sees}: nothing is walked over."
    columns = seen.any(0).nonzero().flatten().tolist()
    first, last = columns[0], columns[-1]
    sees = "that a query of the tile sees" if own == "query" else "that sees a key of the tile"
    if (walked[0] if walked else None) != visited[0]:
        return (
            f"The first {passing} {sees} is {first}: begin is where its tile starts, {visited[0]}."
        )
    if walked[-1] != visited[-1]:
        return (
            f"The last {passing} {sees} is {last}: end is past it, and in its tile or at its end."
        )
    return f"The walks are begin..full_begin, full_begin..full_end and full_end..end, {block} at a time."


def _of_whole(
    name: str,
    unmasked: list[int],
    whole: list[int],
    seen: Tensor,
    tile: tuple[int, int],
    block: int,
) -> str:
    """Which tile is masked for nothing, or is not seen whole."""
    passing = "key" if name == "visible_keys" else "query"
    if missed := sorted(set(whole) - set(unmasked)):
        limit = "full_begin" if unmasked and missed[0] < unmasked[0] else "full_end"
        limit = f"{limit} leaves it out" if unmasked else "full_begin..full_end is empty"
        what = f"The tile from {passing} {missed[0]} on is seen whole"
        return f"{what}, and is masked for nothing: {limit}."
    if more := sorted(set(unmasked) - set(whole)):
        hidden = (~seen[:, more[0] : more[0] + block]).nonzero().tolist()
        if not hidden:
            return f"The tile from {passing} {more[0]} on is cut off by the end, and needs a mask."
        row, column = next((pair for pair in hidden if pair[0] == len(seen) - 1), hidden[0])
        own, other = tile[0] + row, more[0] + column
        what = f"The tile from {passing} {more[0]} on is not seen whole"
        if passing == "key":
            return f"{what}: the query at position {own} does not see key {other}."
        return f"{what}: query {other} does not see key {own}."
    return "Walks without a mask go from full_begin to full_end."
