"""Which request uses which blocks, where some layers see a window and others all of a text:
`GroupedCache`."""

from typing import Any

from yaie.core.contracts import BlockManager, KVCacheManager, RadixTree
from yaie.core.errors import InvariantError
from yaie.core.request import Request, RequestStatus
from yaie.engine.tree_in_front import TreeInFront
from yaie.engine.windows.cache import Pairs, WindowedCache


class GroupedCache:
    """See `yaie.core.contracts.KVCacheManager`. Each group of layers has blocks of its own, and a
    request has a table in both, of one length:

        full        lab 3's manager, with lab 4's tree: of the layers that see all of a text
        windowed    of the others, whose blocks behind the window go back

    A cached prefix is used as far as both have what is needed: all of its blocks here, the last window
    there (`CappedTree`). Room is made in both, or in neither. What is copied is told in one list: there
    the windowed blocks are numbered behind the full ones.
    """

    def __init__(
        self,
        full: KVCacheManager,
        windowed: WindowedCache,
        tree: "CappedTree | None",
        counts: tuple[int, int],
    ) -> None:
        """tree: what `full` was given. counts: how many blocks each group has."""
        self.block_size = full.block_size
        self._full = full
        self._windowed = windowed
        self._tree = tree
        self._num_full, self._num_windowed = counts
        self._requests: dict[str, Request] = {}  # that have tables

    @property
    def windowed_blocks(self) -> BlockManager:
        """Of the layers with a window."""
        return self._windowed.blocks

    # --- prefixes ---

    def cached_tokens(self, request: Request) -> int:
        """See the contract."""
        return self._full.cached_tokens(request)

    def is_pending(self, request: Request) -> bool:
        """See the contract. What a window lost does not come back when another goes on."""
        if not self._full.is_pending(request):
            return False
        sibling = request.fork_of
        is_running = sibling is not None and sibling.status is RequestStatus.RUNNING
        if is_running and sibling is not None and not sibling.has_settled_prompt:
            return True
        most = (request.num_tokens - 1) // self.block_size
        return self._tree is None or not self._tree.is_cut(request.token_ids, most)

    def admit(self, request: Request) -> int:
        """See the contract. A fork begins with its sibling's blocks if both groups have them."""
        sibling, windowed = request.fork_of, self._windowed
        forks = sibling is not None and windowed.can_fork(request, sibling)
        if not forks:
            request.fork_of = None
        try:
            computed = self._full.admit(request)
        finally:
            request.fork_of = sibling
        if forks and sibling is not None and computed == request.num_prompt_tokens - 1:
            found = windowed.start_fork(request, sibling)
        else:
            found = windowed.start(request, computed // self.block_size)
        self._requests[request.request_id] = request
        if found != computed:
            raise InvariantError(
                f"a request begins behind {computed} tokens, and {found} in layers with a window"
            )
        return computed

    # --- room ---

    def allocate(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        """See the contract. Of what is to stay free beyond the request's own, the windowed blocks have
        their share."""
        size = self.block_size
        own = max(0, -(-request.num_tokens // size) - -(-num_tokens // size))
        others = max(0, keep_free - own)
        reserve = min(keep_free, own) + others * self._num_windowed // self._num_full
        growth = self._windowed.growth(request, num_tokens, reserve)
        if growth is None:
            return False
        if not self._full.allocate(request, num_tokens, keep_free=keep_free):
            return False
        self._windowed.grow(request, num_tokens, growth)
        return True

    @property
    def num_available_blocks(self) -> int:
        """See the contract: of the group that has fewer."""
        return min(self._full.num_available_blocks, self._windowed.num_available_blocks)

    def reset_prefix_cache(self) -> int:
        """See the contract: of both groups."""
        return self._full.reset_prefix_cache() + self._windowed.reset_prefix_cache()

    # --- the end ---

    def commit(self, request: Request) -> None:
        """See the contract."""
        self._full.commit(request)
        self._windowed.commit(request)

    def free(self, request: Request, *, keep: bool = True) -> None:
        """See the contract."""
        self._full.free(request, keep=keep)
        self._windowed.free(request, keep=keep)
        self._requests.pop(request.request_id, None)

    # --- moves ---

    def swap_out(self, request: Request) -> bool:
        """Never: with a host pool no block goes back (`yaie.worker.windows`)."""
        return False

    def swap_in(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        """Never, as none was swapped out."""
        return False

    def take_moves(self) -> tuple[Pairs, Pairs, Pairs]:
        """See the contract. Windowed blocks are numbered behind the full ones."""
        *_, copies = self._full.take_moves()
        *_, others = self._windowed.take_moves()
        behind = self._num_full
        return [], [], [*copies, *((behind + here, behind + there) for here, there in others)]

    def block_table(self, request: Request) -> list[int]:
        """See the contract: of the full group."""
        return self._full.block_table(request)

    def windowed_table(self, request: Request) -> list[int]:
        """The same of the layers with a window. The blank block stands for what went back."""
        return self._windowed.block_table(request)

    def stats(self) -> dict[str, int]:
        """See the contract: sums of both groups. given_back_blocks and the others that are called
        windowed are of the layers with a window."""
        full, windowed = self._full.stats(), self._windowed.stats()
        both = {name: count + windowed[name] for name, count in full.items()}
        return {
            **both,
            "given_back_blocks": windowed["given_back_blocks"],
            "windowed_total_blocks": windowed["total_blocks"],
            "windowed_free_blocks": windowed["free_blocks"],
            "windowed_used_blocks": windowed["used_blocks"],
        }

    def check(self) -> None:
        """See the contract. Both tables of a request are of one length."""
        self._full.check()
        self._windowed.check()
        for request in self._requests.values():
            lengths = len(self.block_table(request)), len(self.windowed_table(request))
            if lengths[0] != lengths[1]:
                raise InvariantError(f"{request.request_id}: tables of {lengths} blocks")
        if len(self._requests) != self._windowed.num_tables:
            raise InvariantError("a request has a table for the layers with a window alone")


class CappedTree(TreeInFront):
    """See TreeInFront. A text is found in the other tree as far as the layers with a window have what a
    request needs that goes on there."""

    def __init__(self, tree: RadixTree, windowed: WindowedCache) -> None:
        super().__init__(tree)
        self._windowed = windowed

    def is_cut(self, token_ids: list[int], max_blocks: int) -> bool:
        """Whether the other tree has more of a text."""
        found = len(self._tree.peek(token_ids, max_blocks))
        return self._windowed.usable(token_ids, found) < found

    def peek(self, token_ids: list[int], max_blocks: int) -> list[int]:
        found = self._tree.peek(token_ids, max_blocks)
        return found[: self._windowed.usable(token_ids, len(found))]

    def match_prefix(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], Any]:
        return self._tree.match_prefix(token_ids, len(self.peek(token_ids, max_blocks)))


def make_grouped(
    part: Any,
    blocks: BlockManager,
    tree: RadixTree | None,
    windowed: WindowedCache,
    num_windowed: int,
) -> GroupedCache:
    """part: lab 3's. blocks, tree: of the layers that see all of a text."""
    capped = None if tree is None else CappedTree(tree, windowed)
    full: KVCacheManager = part.KVCacheManager(blocks, capped)
    return GroupedCache(full, windowed, capped, (blocks.num_blocks, num_windowed))
