"""What a KV cache manager, its blocks and its tree look like from outside, and what does not fit."""

import re
from collections.abc import Sequence
from typing import Any

from grader.kit import expect, expect_equal, quietly
from grader.kit.script import current_script
from solutions.paged_cache import BlockManager
from solutions.radix_tree import RadixTree
from yaie.core.errors import InvariantError
from yaie.core.request import Request, RequestStatus

Prefix = tuple[int, ...]
MOST_MISFITS = 3
"""That a failure names."""

REASONS = {
    "free at once": "A reference was given back too early or twice, or was never taken: each entry of a "
    "table is one, and each block that the tree has files one more.",
    "leaked": "A reference was taken that no call gives back: by a table that is gone, by a hold on a "
    "block that the tree had already, or for one that the tree has evicted (`release`).",
    "is right": "Each entry of a table is one reference, and the tree holds each of its blocks once.",
    "written to": "A block that another one reads is copied before this request writes to it.",
    "stays locked": "A lock outlives its table: unlock the node when the table is freed or has gone to "
    "the host, when there was no room for it, and the shorter path once a longer one is locked.",
    "is still in `_nodes`": "Its node is unlocked already: take it out of `_nodes` too.",
    "is still in `_filed`": "Take it out of `_filed` when its table goes.",
    "but is not in `_filed`": "`_filed` says of each table how many of its first blocks are the tree's.",
    "without cached blocks, but is not in `_nodes`": "Its node is the root.",
    "but tree path": "The first filed blocks of a table are the tree's own. Remember as filed what was "
    "shared or inserted, no more and no less.",
    "have a locked node": "`_nodes` and `_filed` belong together: a request is in both as long as it "
    "has a table, and else in neither.",
    "may be evicted": "Lock the node at which a table's cached blocks end, as long as the table exists: "
    "else the tree gives them away while the request reads them.",
}
"""By what a misfit says."""


LEFT_LOCKED = {
    "swap_out": "After swap_out the request has no table, so nothing of its path needs the lock: unlock "
    "its node.",
    "free": "After free the request has no table: unlock its node.",
    "commit": "commit locks the longer path, and has to unlock the shorter one.",
    "swap_in": "swap_in locks the path of the blocks that it shares. If it says no, it unlocks it.",
}
"""By the call after which a path stays locked."""


def reason_of(misfits: Sequence[str]) -> str:
    """What leads to the first of them; "" if there is none, or many things lead there."""
    if misfits and "stays locked" in misfits[0] and "stays locked" not in current_script().before:
        call = _last_call()
        if call in LEFT_LOCKED:
            return LEFT_LOCKED[call]
    return next((why for words, why in REASONS.items() if misfits and words in misfits[0]), "")


def _last_call() -> str:
    """The name of the last call of the cache in the script."""
    calls = (re.match(r"cache\.(\w+)\(", line) for line in reversed(current_script().lines))
    return next((call[1] for call in calls if call and call[1] != "take_moves"), "")


def difference(before: dict[str, Any], after: dict[str, Any]) -> tuple[dict, dict]:
    """The entries of two holdings in which they differ: (before, after)."""
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return {k: before.get(k, "none") for k in keys}, {k: after.get(k, "none") for k in keys}


class CacheView:
    """A cache to look at. requests: all there are. readers: other tables, with what they found in their
    block. device: by slot, the tokens up to the one whose K and V were written there."""

    size: int
    cache: Any
    blocks: BlockManager
    tree: RadixTree | None
    requests: list[Request]
    readers: dict[str, list[Prefix]]
    device: dict[int, Prefix]

    def table(self, request: Request) -> list[int]:
        return list(self.blocks.get_physical_blocks(request.request_id))

    def content(self, block: int) -> list[Prefix]:
        """What is in each row of a device block."""
        return [self.device.get(block * self.size + row, ()) for row in range(self.size)]

    def names(self) -> list[str]:
        """All that may have a table."""
        return [*(request.request_id for request in self.requests), *self.readers]

    def refs(self, blocks: Sequence[int]) -> list[int]:
        return [self.blocks.ref_count(block) for block in blocks]

    def holdings(self) -> dict[str, Any]:
        """All that a call which fails must leave as it was."""
        tables = {f"table of {r.request_id}": self.table(r) for r in self.requests}
        counts = enumerate(self.refs(range(self.blocks.num_blocks)))
        return {
            **{name: table for name, table in tables.items() if table},
            **{f"references to block {block}": count for block, count in counts},
            "blocks in the tree": self.tree.num_blocks if self.tree else 0,
            "evictable blocks": self.tree.num_evictable if self.tree else 0,
            "free host blocks": self.blocks.num_free_host,
        }

    def misfits(self) -> list[str]:
        """What does not fit together among tables, tree and references; [] if all is well."""
        found: list[str] = []
        in_tree = set(self.tree.all_blocks()) if self.tree else set()
        tables = [self.blocks.get_physical_blocks(name) for name in self.names()]
        in_tables = {block for table in tables for block in table}
        for block in range(self.blocks.num_blocks):
            known = (block in in_tree) + sum(table.count(block) for table in tables)
            refs = self.blocks.ref_count(block)
            if known and not refs:
                found.append(f"block {block} is in use, and free at once")
            elif refs and not known:
                found.append(f"block {block} leaked: its count is {refs}, but nothing uses it")
            elif refs != known:
                found.append(f"block {block} counts {refs}, but {known} is right: tables and tree")
        for reader, content in self.readers.items():
            (block,) = self.blocks.get_physical_blocks(reader)
            if self.content(block) != content:
                found.append(f"block {block} was written to, though {reader} reads it too")
        idle = sorted(in_tree - in_tables)
        if self.tree is not None and len(idle) != (unlocked := self.tree.num_evictable):
            is_locked = unlocked < len(idle)
            what = "a path stays locked" if is_locked else "a table's block may be evicted"
            found.append(
                f"of the tree's blocks {idle} are in no table, but {unlocked} are unlocked: {what}"
            )
        return found or self.broken_invariants()

    def broken_invariants(self) -> list[str]:
        """What the reference's block manager and tree find wrong with themselves."""
        try:
            self.blocks.check()
            if self.tree is not None:
                self.tree.check()
        except InvariantError as error:
            return [str(error)]
        return []

    def wrong_slots(self, request: Request) -> str:
        """The first computed token whose K and V the table does not lead to; "" if there is none."""
        table = self.table(request)
        for i in range(request.num_computed_tokens):
            if i // self.size >= len(table):
                return f"token {i} of {request.request_id} has no block"
            held = self.device.get(table[i // self.size] * self.size + i % self.size, ())
            if held != tuple(request.token_ids[: i + 1]):
                name, block = request.request_id, table[i // self.size]
                return (
                    f"token {i} of {name}: block {block} holds what was computed for {list(held)}"
                )
        return ""

    def check(self, why: str = "") -> None:
        """Every block accounted for, and every table leading to its tokens' K and V.

        why: what leads to K and V at the wrong place; the rest has reasons of its own."""
        found = self.misfits() or self.complaints()
        expect(not found, "; ".join(found[:MOST_MISFITS]), why=reason_of(found))
        for request in self.requests:
            if request.status is RequestStatus.RUNNING:
                expect_equal(self.wrong_slots(request), "", "K and V at the wrong place", why=why)

    def complaints(self) -> list[str]:
        """What the cache manager's own check finds."""
        try:
            quietly(self.cache).check()
        except InvariantError as error:
            return self._halves() or [f"check() says: {error}"]
        return []

    def _halves(self) -> list[str]:
        """Which requests are in one of `_nodes` and `_filed` alone, and which of the two is wrong."""
        cache = quietly(self.cache)
        nodes, filed = getattr(cache, "_nodes", None), getattr(cache, "_filed", None)
        if not isinstance(nodes, dict) or not isinstance(filed, dict):
            return []
        found = []
        for name in sorted(map(str, nodes.keys() ^ filed.keys())):
            one, other = ("_nodes", "_filed") if name in nodes else ("_filed", "_nodes")
            if name in self.blocks._tables:  # an empty one is a table too
                table = self.blocks.get_physical_blocks(name)
                in_tree = self.tree.all_blocks() if self.tree else ()
                start = (
                    " that begins without cached blocks" if not {*table[:1]} & {*in_tree} else ""
                )
                found.append(f"{name} has a table{start}, but is not in `{other}`")
            else:
                found.append(f"{name} has no table, but is still in `{one}`")
        return found

    def expect_unchanged(self, before: dict[str, Any], after_what: str, why: str) -> None:
        """before: the holdings at that time."""
        was, now = difference(before, self.holdings())
        expect_equal(now, was, f"what has changed in the state after {after_what}", why=why)

    def state(self) -> str:
        """For the report: tables, tree, references, host pool, and what does not fit together."""
        lines = []
        for request in self.requests:
            name, on_host = request.request_id, self.blocks.num_swapped_blocks(request.request_id)
            place = f"{on_host} blocks on the host" if on_host else f"table {self.table(request)}"
            done = f"{request.num_computed_tokens} of {request.num_tokens} tokens computed"
            done += f", {request.num_in_flight} in flight" if request.num_in_flight else ""
            lines.append(f"{name} ({request.status.value}): {place}, {done}")
        held = self.blocks.get_physical_blocks
        lines += [f"{reader}: table {held(reader)}" for reader in self.readers]
        if self.tree is not None:
            cached = sorted(self.tree.all_blocks())
            lines.append(
                f"in the tree: blocks {cached}, {self.tree.num_evictable} of them evictable"
            )
        refs = enumerate(self.refs(range(self.blocks.num_blocks)))
        counts = ", ".join(f"block {block}: {count}" for block, count in refs if count)
        free = [b for b in range(self.blocks.num_blocks) if self.blocks.ref_count(b) == 0]
        lines.append(f"references: {counts or 'none'}; free: {free}")
        if self.blocks.num_host_blocks:
            lines.append(f"host: {self.blocks.num_free_host} of {self.blocks.num_host_blocks} free")
        return "\n".join([*lines, *(f"! {text}" for text in self.misfits())])
