"""A tree that counts its walks, and looks at each unlock whether a block in use stood unprotected."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from grader.suites.paged_cache.cache_desk import CacheDesk
from solutions.radix_tree import RadixTree


class GuardTree(RadixTree):
    """walks: calls that went down the tree. exposed: blocks of the table that `watched` tells which were
    unlocked after some call of `unlock`."""

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size)
        self.watched: Callable[[], list[int]] = list
        self.exposed: list[int] = []
        self.walks = 0
        self._locked: list[Any] = []

    def forget_first_lock(self) -> None:
        """As if the request that was admitted first were gone."""
        super().unlock(self._locked.pop(0))

    def match_prefix(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], Any]:
        self.walks += 1
        return super().match_prefix(token_ids, max_blocks)

    def peek(self, token_ids: list[int], max_blocks: int) -> list[int]:
        self.walks += 1
        return super().peek(token_ids, max_blocks)

    def lock(self, node: Any) -> None:
        super().lock(node)
        self._locked.append(node)

    def unlock(self, node: Any) -> None:
        super().unlock(node)
        if node in self._locked:  # if not, that is another test's matter
            self._locked.remove(node)
        safe = {block for locked in self._locked for block in self.path_blocks(locked)}
        in_tree = set(self.all_blocks())
        self.exposed += [b for b in self.watched() if b in in_tree and b not in safe]


def guarded_desk(part: ModuleType, num_host_blocks: int = 0) -> tuple[CacheDesk, GuardTree]:
    """A desk whose tree is a guard."""
    desk = CacheDesk(part, num_host_blocks=num_host_blocks, caching=True)
    guard = GuardTree(desk.size)
    desk.tree = guard
    desk.cache = desk.watched(part.KVCacheManager(desk.blocks, guard))
    return desk, guard
