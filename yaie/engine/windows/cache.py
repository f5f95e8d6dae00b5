"""Which request uses which blocks, where no layer looks farther back than a window: `WindowedCache`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from yaie.core.contracts import BlockManager, RadixTree
from yaie.core.errors import InvariantError
from yaie.core.request import Request, RequestStatus
from yaie.engine.windows.prefixes import WindowedPrefixes
from yaie.worker.windows import GATHERED, Held

BLANK_OWNER = "#blank"
"""Takes the blank block out of the pool. No request is called so: see `OWN_PREFIX`."""

Pairs = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Growth:
    """What becomes of a table. behind: blocks that go back; shared: whether that which is written first
    is to be copied; missing: how many are new."""

    behind: list[int]
    shared: bool
    missing: int


class WindowedCache:
    """See `yaie.core.contracts.KVCacheManager`, with this much of a window:

        | given back: the blank block |    held    |
        0                         _blank[id]   len(table)

    The window that counts is that of the first token that is not settled. No step in flight looks
    farther back, and no step that comes after a rejected draft does. The blank block belongs to no
    request and is never written: it holds zeros. Kernels do not read it, and what
    gathers whole tables masks it.

    A filed block that goes back stays in the tree until a request needs its room. A block that went back
    before it was filed leaves an empty place in the tree. See `WindowedPrefixes`.
    """

    def __init__(self, blocks: BlockManager, tree: RadixTree | None, held: Held) -> None:
        self.block_size = blocks.block_size
        self.blocks = blocks
        self._held = held
        (self._nothing,) = blocks.allocate(BLANK_OWNER, 1)
        blocks.hold([self._nothing])
        blocks.free(BLANK_OWNER)
        self._prefixes: WindowedPrefixes | None = None
        if tree is not None:
            # As many texts of full length as there are windows in the pool: each may lead to one.
            windows = 1 + blocks.num_blocks // (1 + held.window // blocks.block_size)
            self._prefixes = WindowedPrefixes(
                blocks, tree, self._nothing, held, windows * held.whole
            )
        self._requests: dict[str, Request] = {}  # that have a table
        self._blank: dict[str, int] = {}
        self._filed: dict[str, int] = {}
        self._nodes: dict[str, Any] = {}
        self._computing: dict[Request, int] = {}
        self._copies: Pairs = []
        self._given_back = 0

    # --- prefixes ---

    def cached_tokens(self, request: Request) -> int:
        """See the contract."""
        return self._peek(request) * self.block_size

    def _peek(self, request: Request) -> int:
        if not request.may_reuse_prefix:
            return 0
        return self.usable(request.token_ids, (request.num_tokens - 1) // self.block_size)

    def usable(self, token_ids: list[int], max_blocks: int) -> int:
        """How many leading blocks of a text, `max_blocks` at most, a request may go on behind. Changes
        nothing."""
        if self._prefixes is None:
            return 0
        return self._prefixes.peek(token_ids, max_blocks)

    def is_pending(self, request: Request) -> bool:
        """See the contract."""
        sibling = request.fork_of
        if (
            sibling is not None
            and sibling.status is RequestStatus.RUNNING
            and not sibling.has_settled_prompt
        ):
            return True
        if self._prefixes is None or not self._computing or not request.may_reuse_prefix:
            return False
        end = (self._peek(request) + 1) * self.block_size
        return end < request.num_tokens and any(
            end <= full * self.block_size and request.token_ids[:end] == other.token_ids[:end]
            for other, full in self._computing.items()
        )

    def admit(self, request: Request) -> int:
        """See the contract. A fork begins with its sibling's window of the prompt if that is still
        there, and like any other request if not."""
        sibling = request.fork_of
        if sibling is not None and self.can_fork(request, sibling):
            computed = self.start_fork(request, sibling)
        else:
            computed = self.start(request, (request.num_tokens - 1) // self.block_size)
        request.num_computed_tokens = computed
        if request.num_preemptions == 0:
            request.num_cached_tokens = computed
        return computed

    def start(self, request: Request, max_blocks: int) -> int:
        """A table of what is cached; returns how many tokens that is."""
        key, table = request.request_id, list[int]()
        if self._prefixes is not None:
            most = max_blocks if request.may_reuse_prefix else 0
            table, self._nodes[key] = self._prefixes.enter(request.token_ids, most)
        self.blocks.share(key, table)
        self._requests[key] = request
        self._filed[key] = len(table)
        self._blank[key] = self._held.first_seen(len(table) * self.block_size)
        return len(table) * self.block_size

    def can_fork(self, request: Request, sibling: Request) -> bool:
        """Whether the sibling has what the prompt's last token sees in blocks that stay where they are:
        when it files a block, the tree's may take its place in its table."""
        is_ready = sibling.status is RequestStatus.RUNNING and sibling.has_settled_prompt
        if not is_ready or not request.may_reuse_prefix:
            return False
        last = (sibling.num_prompt_tokens - 1) // self.block_size
        if self._prefixes is not None and (
            self._filed[sibling.request_id] < last
            or self._prefixes.peek(request.token_ids, last) < last
        ):
            return False
        first = (
            last
            if self._prefixes is not None
            else self._held.first_seen(request.num_prompt_tokens - 1)
        )
        return self._blank[sibling.request_id] <= first

    def start_fork(self, request: Request, sibling: Request) -> int:
        """A table of the prompt's blocks, its last one the sibling's: it will be copied before it is
        written. Returns how many tokens are computed in them."""
        key, computed = request.request_id, request.num_prompt_tokens - 1
        self.start(request, computed // self.block_size)
        begin = len(self.block_table(request))
        rest = self.block_table(sibling)[begin : computed // self.block_size + 1]
        if not begin:  # nothing of it is the tree's
            first = self._held.first_seen(computed)
            rest[:first] = [self._nothing] * first
            self._blank[key] = first
        self.blocks.share(key, rest)
        return computed

    # --- room ---

    def allocate(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        """See the contract. Blocks behind the window go back first, if they are many, or wanted."""
        growth = self.growth(request, num_tokens, keep_free)
        if growth is None:
            return False
        self.grow(request, num_tokens, growth)
        return True

    def growth(self, request: Request, num_tokens: int, keep_free: int) -> Growth | None:
        """What `allocate` would do, None if it could not. Changes nothing."""
        key = request.request_id
        table, blank = self.blocks.get_physical_blocks(key), self._blank[key]
        writes_from = request.num_computed_tokens // self.block_size
        shared = writes_from < len(table) and self.blocks.ref_count(table[writes_from]) > 1
        missing = max(0, -(-num_tokens // self.block_size) - len(table))
        wanted, room = missing + shared, self.num_available_blocks
        behind = table[blank : self._held.first_seen(request.num_settled_tokens)]
        if wanted:
            wanted_free = wanted + self._needed(request, num_tokens, keep_free)
            if len(behind) < GATHERED and wanted_free <= room:
                behind = []
            if wanted_free > room + sum(map(self._would_be_free, behind)):
                return None
        elif len(behind) < GATHERED:
            behind = []
        return Growth(behind, shared, missing)

    def grow(self, request: Request, num_tokens: int, growth: Growth) -> None:
        """Do what `growth` has said."""
        key = request.request_id
        if growth.behind:
            self._give_back(key, growth.behind)
        if growth.missing or growth.shared:
            self._evict_for(growth.missing + growth.shared)
            if growth.shared:
                writes_from = request.num_computed_tokens // self.block_size
                before = self.blocks.get_physical_blocks(key)[writes_from]
                pair = self.blocks.copy_on_write(key, writes_from)
                self._copies.extend([pair] if pair else [])
                self._left([before])
            self.blocks.allocate(key, growth.missing)
        known = min(num_tokens, len(request.token_ids))  # drafts are not
        if known - request.num_computed_tokens > 1:
            self._computing[request] = known // self.block_size

    def _needed(self, request: Request, num_tokens: int, keep_free: int) -> int:
        """How many blocks of `keep_free` must be free.

        `keep_free` may count the blocks for all of the request's tokens beyond these `num_tokens`. The
        request never holds that many at once.
        """
        now, whole = (-(-count // self.block_size) for count in (num_tokens, request.num_tokens))
        blank = self._held.first_seen(request.num_settled_tokens)
        most = min(whole - blank, self._held.most)
        later = max(0, most - (now - blank))
        return min(keep_free, max(0, keep_free - (whole - now)) + later)

    def _would_be_free(self, block: int) -> bool:
        """Whether a block of a table is free, or idle, without it."""
        is_cached = self._prefixes is not None and self._prefixes.has(block)
        return self.blocks.ref_count(block) == 1 + is_cached

    def _give_back(self, key: str, behind: list[int]) -> None:
        """These blocks are the table's first that are not blank, and are blank from now on."""
        self.blocks.replace(key, self._blank[key], [self._nothing] * len(behind))
        self._blank[key] += len(behind)
        self._given_back += len(behind)
        self._left(behind)

    def _left(self, blocks: Iterable[int]) -> None:
        """These are in one table less."""
        if self._prefixes is not None:
            self._prefixes.left(blocks)

    @property
    def num_available_blocks(self) -> int:
        """See the contract."""
        idle = self._prefixes.num_idle if self._prefixes is not None else 0
        return self.blocks.num_free + idle

    def _evict_for(self, num_blocks: int) -> None:
        short = num_blocks - self.blocks.num_free
        if short > 0 and self._prefixes is not None:
            self._prefixes.evict(short)

    def reset_prefix_cache(self) -> int:
        """See the contract."""
        before = self.blocks.num_free
        if self._prefixes is not None:
            self._prefixes.reset()
        return self.blocks.num_free - before

    # --- the end ---

    def commit(self, request: Request) -> None:
        """See the contract."""
        key = request.request_id
        full, filed = request.num_settled_tokens // self.block_size, self._filed[key]
        if full >= self._computing.get(request, 0):
            self._computing.pop(request, None)
        if self._prefixes is None or full <= filed:
            return
        table = self.blocks.get_physical_blocks(key)[:full]
        wanted, self._nodes[key] = self._prefixes.file(
            request.token_ids, table, filed, self._nodes[key]
        )
        self._filed[key] = full
        if wanted != table[filed:]:
            self.blocks.replace(key, filed, wanted)
            self._prefixes.left(table[filed:])

    def free(self, request: Request, *, keep: bool = True) -> None:
        """See the contract."""
        key = request.request_id
        if key not in self._filed:
            return
        if keep:
            self.commit(request)
        table = self.blocks.get_physical_blocks(key)[self._blank[key] :]
        self.blocks.free(key)
        del self._requests[key], self._filed[key], self._blank[key]
        self._computing.pop(request, None)
        if self._prefixes is not None:
            self._prefixes.unlock(self._nodes.pop(key))
            # From the end: what is left of a text is its beginning, which others may share.
            self._prefixes.left(reversed(table))

    # --- moves ---

    def swap_out(self, request: Request) -> bool:
        """Never: with a host pool no block goes back (`yaie.worker.windows`)."""
        return False

    def swap_in(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        """Never, as none was swapped out."""
        return False

    def take_moves(self) -> tuple[Pairs, Pairs, Pairs]:
        """See the contract."""
        copies, self._copies = self._copies, []
        return [], [], copies

    @property
    def num_tables(self) -> int:
        """How many requests have one."""
        return len(self._requests)

    def block_table(self, request: Request) -> list[int]:
        """See the contract. The blank block stands for what went back."""
        return self.blocks.get_physical_blocks(request.request_id)

    def stats(self) -> dict[str, int]:
        """See the contract, and given_back_blocks (since the start): blocks behind windows. The blank
        block does not count."""
        prefixes, free = self._prefixes, self.blocks.num_free
        cached = prefixes.num_idle if prefixes is not None else 0
        total = self.blocks.num_blocks - 1
        return {
            "total_blocks": total,
            "free_blocks": free,
            "cached_blocks": cached,
            "used_blocks": total - free - cached,
            "evicted_blocks": prefixes.evicted if prefixes is not None else 0,
            "given_back_blocks": self._given_back,
        }

    def check(self) -> None:
        """See the contract. A table is blank up to one entry, and no block is blank that a token to
        come or a step in flight sees."""
        self.blocks.check()
        if self.blocks.ref_count(self._nothing) < 1:
            raise InvariantError(f"the blank block {self._nothing} is free")
        tables = {key: self.blocks.get_physical_blocks(key) for key in self._filed}
        for key, table in tables.items():
            is_blank = [block == self._nothing for block in table]
            if is_blank != [index < self._blank[key] for index in range(len(table))]:
                raise InvariantError(f"table {table}: not its first {self._blank[key]} are blank")
            request = self._requests[key]
            seen = self._held.first_seen(request.num_settled_tokens)
            if self._blank[key] > seen and not request.is_finished:
                raise InvariantError(f"{self._blank[key]} blocks are blank, and {seen} is seen")
        if self._prefixes is not None:
            self._prefixes.check(
                (table, self._blank[key], self._filed[key], self._nodes[key])
                for key, table in tables.items()
            )
