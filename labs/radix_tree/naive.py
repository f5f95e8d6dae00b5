"""The radix tree's questions, answered from a dictionary of every cached prefix. The oracle.

It keeps each prefix as a tuple of all its tokens, so memory is quadratic and eviction scans everything.
"""

from collections.abc import Sequence


class NaivePrefixCache:
    """match, insert, lock and evict by scanning; prefixes are their own handles."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._block_of: dict[tuple[int, ...], int] = {}
        self._locks: dict[tuple[int, ...], int] = {}
        self._last_used: dict[tuple[int, ...], int] = {}
        self._tick = 0

    def match(self, token_ids: Sequence[int], max_blocks: int) -> list[int]:
        """Blocks of the longest cached prefix; marks them used."""
        self._tick += 1
        blocks = self.peek(token_ids, max_blocks)
        for prefix in self._prefixes(token_ids, len(blocks)):
            self._last_used[prefix] = self._tick
        return blocks

    def peek(self, token_ids: Sequence[int], max_blocks: int) -> list[int]:
        """Blocks of the longest cached prefix, without counting as a use."""
        blocks = []
        for prefix in self._prefixes(token_ids, max_blocks):
            if prefix not in self._block_of:
                break
            blocks.append(self._block_of[prefix])
        return blocks

    def insert(self, token_ids: Sequence[int], block_ids: Sequence[int]) -> int:
        """File blocks; returns how many were there already."""
        existing = len(self.match(token_ids, len(block_ids)))
        for prefix, block in zip(self._prefixes(token_ids, len(block_ids)), block_ids, strict=True):
            self._block_of.setdefault(prefix, block)
            self._last_used[prefix] = self._tick
        return existing

    def lock(self, token_ids: Sequence[int], num_blocks: int, count: int = 1) -> None:
        """Lock (or with count -1 unlock) the first `num_blocks` blocks of token_ids."""
        for prefix in self._prefixes(token_ids, num_blocks):
            self._locks[prefix] = self._locks.get(prefix, 0) + count

    def evictable(self) -> set[int]:
        """Blocks that are not locked."""
        return {block for prefix, block in self._block_of.items() if not self._locks.get(prefix)}

    def may_evict(self) -> set[int]:
        """Blocks that least-recently-used order allows to go next: unlocked ends, oldest use."""
        evictable = self.evictable()
        ends = [
            prefix
            for prefix, block in self._block_of.items()
            if block in evictable and not self._has_child(prefix)
        ]
        oldest = min((self._last_used[prefix] for prefix in ends), default=0)
        return {self._block_of[prefix] for prefix in ends if self._last_used[prefix] == oldest}

    def remove(self, block: int) -> None:
        """Forget one block."""
        prefix = next(prefix for prefix, held in self._block_of.items() if held == block)
        del self._block_of[prefix]

    def _has_child(self, prefix: tuple[int, ...]) -> bool:
        longer = len(prefix) + self.block_size
        return any(len(p) == longer and p[: len(prefix)] == prefix for p in self._block_of)

    def _prefixes(self, token_ids: Sequence[int], max_blocks: int) -> list[tuple[int, ...]]:
        whole = min(max_blocks, len(token_ids) // self.block_size)
        return [tuple(token_ids[: (i + 1) * self.block_size]) for i in range(whole)]
