"""What a KV cache manager, its blocks and its tree look like from outside, and what does not fit."""

from collections.abc import Sequence
from typing import Any

from grader.kit import expect_equal, quietly
from solutions.paged_cache import BlockManager
from solutions.radix_tree import RadixTree
from yaie.core.errors import InvariantError
from yaie.core.request import Request, RequestStatus

Prefix = tuple[int, ...]

REASONS = {
    "free at once": "A reference was given back too early or twice, or was never taken: each entry of a "
    "table is one, and each block that the tree has files one more.",
    "leaked": "A reference was taken that no call gives back: by a table that is gone, by a hold on a "
    "block that the tree had already, or for one that the tree has evicted (`release`).",
    "is right": "Each entry of a table is one reference, and the tree holds each of its blocks once.",
    "written to": "A block that another one reads is copied before this request writes to it.",
    "stays locked": "A lock outlives its table: unlock the node when the table is freed or has gone to "
    "the host, when there was no room for it, and the shorter path once a longer one is locked.",
    "but tree path": "The first filed blocks of a table are the tree's own. Remember as filed what was "
    "shared or inserted, no more and no less.",
    "have a locked node": "`_nodes` and `_filed` belong together: set both when a table begins, also at "
    "the root; unlock the node and drop both when it ends or was refused.",
    "may be evicted": "Lock the node at which a table's cached blocks end, as long as the table exists: "
    "else the tree gives them away while the request reads them.",
}
"""By what a misfit says."""


def reason_of(misfits: Sequence[str]) -> str:
    """What leads to the first of them; "" if there is none, or many things lead there."""
    return next((why for words, why in REASONS.items() if misfits and words in misfits[0]), "")


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
        idle = len(in_tree - in_tables)
        if self.tree is not None and idle != (unlocked := self.tree.num_evictable):
            what = "a path stays locked" if unlocked < idle else "a table's block may be evicted"
            found.append(
                f"{idle} of the tree's blocks are in no table, but {unlocked} are unlocked: {what}"
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
        expect_equal(found, [], "what does not fit together", why=reason_of(found))
        for request in self.requests:
            if request.status is RequestStatus.RUNNING:
                expect_equal(self.wrong_slots(request), "", "K and V at the wrong place", why=why)

    def complaints(self) -> list[str]:
        """What the cache manager's own check finds."""
        try:
            quietly(self.cache).check()
        except InvariantError as error:
            return [f"check() says: {error}"]
        return []

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
