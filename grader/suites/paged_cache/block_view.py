"""How a block manager looks from outside: for comparisons, and for the state that a failure shows."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from grader.kit import expect_equal, expect_raises, note, quietly, start_script, watch
from grader.suites.paged_cache.cache_view import difference
from yaie.core.errors import BlockStateError

REFUSED = "A call that is refused changes nothing: the caller goes on as if it had never asked."
LOOK_FIRST = "Look at all the blocks that it names before you change the first."
KEYS = "abcd"
"""The requests that a test may name."""


def block_manager(part: ModuleType, num_blocks: int = 8, num_host_blocks: int = 4) -> Any:
    """A watched BlockManager with blocks of four slots, and a script that begins with it."""
    start_script()
    note(f"blocks = BlockManager({num_blocks}, block_size=4, num_host_blocks={num_host_blocks})")
    return watch(part.BlockManager(num_blocks, 4, num_host_blocks), "blocks", describe_blocks(KEYS))


def describe_blocks(keys: Sequence[str], held: Counter[int] | None = None) -> Callable[[Any], str]:
    """Tables, references, free blocks and the host pool, and whatever does not fit together.

    keys: the requests to look for. held: references that stand in no table, where those are known.
    """

    def describe(blocks: Any) -> str:
        tables = {key: list(blocks.get_physical_blocks(key)) for key in keys}
        entries = Counter(block for table in tables.values() for block in table)
        refs = {block: blocks.ref_count(block) for block in range(blocks.num_blocks)}
        lines = [f"table of {key}: {table}" for key, table in tables.items() if table]
        counts = ", ".join(f"block {block}: {count}" for block, count in refs.items() if count)
        lines.append(f"references: {counts or 'none'}")
        lines.append(free_line(blocks, refs))
        if blocks.num_host_blocks:
            lines.append(host_line(blocks, keys))
        return "\n".join(lines + misfits(refs, entries, held))

    return describe


def free_line(blocks: Any, refs: dict[int, int]) -> str:
    free = [block for block, count in refs.items() if count == 0]
    says = "" if blocks.num_free == len(free) else f", but num_free says {blocks.num_free}"
    return f"without references: {free}{says}"


def host_line(blocks: Any, keys: Sequence[str]) -> str:
    there = {key: blocks.num_swapped_blocks(key) for key in keys}
    swapped = ", ".join(f"{key} has {count} blocks" for key, count in there.items() if count)
    free = f"{blocks.num_free_host} of {blocks.num_host_blocks} free"
    return f"host: {swapped + ', ' if swapped else ''}{free}"


def misfits(refs: dict[int, int], entries: Counter[int], held: Counter[int] | None) -> list[str]:
    """Blocks that are free and in use at once, or leaked, or miscounted."""
    lines = []
    for block, count in refs.items():
        known = entries[block] + (held[block] if held is not None else 0)
        if known and count == 0:
            lines.append(f"! block {block} is in use, and counts as free at once")
        elif count < known:
            lines.append(f"! block {block} counts {count}, but has {known} references")
        elif held is not None and count and not known:
            lines.append(f"! block {block} leaked: its count is {count}, but nothing uses it")
        elif held is not None and count > known:
            lines.append(f"! block {block} counts {count}, but has only {known} references")
    return lines


def facts(blocks: Any) -> dict[str, Any]:
    """All that the contract lets one see."""
    target = quietly(blocks)
    tables = {key: list(target.get_physical_blocks(key)) for key in KEYS}
    on_host = {key: target.num_swapped_blocks(key) for key in KEYS}
    counts = {block: target.ref_count(block) for block in range(target.num_blocks)}
    return {
        **{f"table of {key}": table for key, table in tables.items() if table},
        **{f"references to block {block}": count for block, count in counts.items()},
        "num_free": target.num_free,
        **{f"blocks of {key} on the host": count for key, count in on_host.items() if count},
        "num_free_host": target.num_free_host,
    }


def expect_unchanged(blocks: Any, before: dict[str, Any], after_what: str, why: str) -> None:
    """before: the facts at that time."""
    was, now = difference(before, facts(blocks))
    expect_equal(now, was, f"what has changed in the state after {after_what}", why=why)


@contextmanager
def refused(blocks: Any, error: type[Exception], what: str, why: str) -> Iterator[None]:
    """A call that must raise `error` and leave everything as it was."""
    before = facts(blocks)
    with expect_raises(error, what, why=why):
        yield
    told = f"{REFUSED} {LOOK_FIRST}" if error is BlockStateError else f"{why} {REFUSED}"
    expect_unchanged(blocks, before, f"{what} was refused", told)
