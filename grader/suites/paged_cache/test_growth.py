"""What a call costs grows with the blocks that it touches, not with pool, cache, or other requests."""

from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import Any

from grader.kit import task
from grader.kit.growth import expect_growth
from solutions.paged_cache import BlockManager, KVCacheManager
from solutions.radix_tree import RadixTree
from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestStatus

SIZE = 4
OWN = (
    "These calls come for every running request in every step. A call looks at the blocks that it is "
    "about; what it must know of all the others is kept as a number, or found by its key."
)
A_LOOK = (
    "Most steps fill no block. To see that takes two numbers, whatever has been computed so far."
)


def pool(make: Any, num_blocks: int, others: int = 0, table: int = 0) -> Any:
    """A block manager with as many host blocks, in which "r" has `table` blocks, and others one each."""
    blocks = make(num_blocks, SIZE, num_blocks)
    for number in range(others):
        blocks.allocate(f"other{number}", 1)
    for count in (table, 1) if table else ():  # a list that has just grown has room for one more
        blocks.allocate("r", count)
    return blocks


def in_any_pool(
    part: ModuleType, what: str, call: Callable[[Any], Callable[[], Any]], table: int = 0
) -> None:
    """The same in pools of any size, and beside any number of others. call: of a block manager."""
    make = part.BlockManager
    for quantity, prepare in (
        ("blocks in each pool", lambda n: call(pool(make, n, table=table))),
        ("other requests", lambda n: call(pool(make, n + 20, n, table))),
    ):
        expect_growth(part, what, quantity, prepare, why=OWN)


@task("3.1")
def test_a_block_costs_the_same_in_any_pool(part: ModuleType) -> None:
    """allocate and free cost what their own blocks cost."""
    in_any_pool(part, "allocate of one block", lambda blocks: partial(blocks.allocate, "r", 1))
    in_any_pool(part, "free of five blocks", lambda blocks: partial(blocks.free, "r"), table=4)

    def long_table(n: int) -> Any:
        return pool(part.BlockManager, 2 * n, table=n)

    for what, call, exponent in (
        ("allocate of one more block", lambda n: partial(long_table(n).allocate, "r", 1), 0),
        ("get_physical_blocks", lambda n: partial(long_table(n).get_physical_blocks, "r"), 0),
        ("free", lambda n: partial(long_table(n).free, "r"), 1),
    ):
        expect_growth(part, what, "blocks in its table", call, exponent=exponent, why=OWN)


@task("3.2")
def test_a_shared_block_costs_the_same_in_any_pool(part: ModuleType) -> None:
    """share, hold, release and replace cost what the blocks cost that they name."""

    def mine(blocks: Any) -> list[int]:
        return list(blocks.get_physical_blocks("r"))

    def held(blocks: Any) -> Any:
        blocks.hold(mine(blocks))
        return blocks

    for what, call in (
        ("share of five blocks", lambda blocks: partial(blocks.share, "s", mine(blocks))),
        ("hold of five blocks", lambda blocks: partial(blocks.hold, mine(blocks))),
        ("release of five blocks", lambda blocks: partial(held(blocks).release, mine(blocks))),
        ("ref_count", lambda blocks: partial(blocks.ref_count, mine(blocks)[0])),
        ("replace of one block", lambda blocks: partial(blocks.replace, "r", 1, mine(blocks)[:1])),
    ):
        in_any_pool(part, what, call, table=4)


@task("3.3")
def test_a_copy_costs_the_same_in_any_pool(part: ModuleType) -> None:
    """copy_on_write costs what its own table costs."""

    def shared(blocks: Any) -> Any:
        blocks.share("s", blocks.get_physical_blocks("r"))
        return blocks

    in_any_pool(
        part, "copy_on_write", lambda blocks: partial(shared(blocks).copy_on_write, "r", 1), table=4
    )


class Cache:
    """A cache manager on the reference's pool and tree. `run` admits and computes a prompt.

    Where a part has not written all that this takes, the reference does it to the part's manager: tasks
    are graded in order.
    """

    def __init__(self, part: ModuleType, num_blocks: int, does: Any = None) -> None:
        self.manager = part.KVCacheManager(
            BlockManager(num_blocks, SIZE, num_blocks), RadixTree(SIZE)
        )
        self._names = 0
        self._does = does or (part.KVCacheManager if _is_written(part) else KVCacheManager)

    def request(self, prompt: list[int]) -> Request:
        self._names += 1
        return Request(f"r{self._names}", prompt, SamplingParams())

    def run(self, prompt: list[int], *, commit: bool = True) -> Request:
        """A request that has computed its prompt and drawn a token."""
        request: Request = self._do(lambda: self._run(prompt, commit))
        return request

    def _do(self, call: Callable[[], Any]) -> Any:
        own = type(self.manager)
        self.manager.__class__ = self._does
        try:
            return call()
        finally:
            self.manager.__class__ = own

    def _run(self, prompt: list[int], commit: bool) -> Request:
        request = self.request(prompt)
        self.manager.admit(request)
        request.status = RequestStatus.RUNNING
        assert self.manager.allocate(request, request.num_tokens)
        request.num_computed_tokens = request.num_tokens
        request.token_ids.append(7)
        if commit:
            self.manager.commit(request)
        return request

    def filled(self, num_prompts: int, *, keep: bool = True) -> "Cache":
        """With so many other prompts, of two blocks each: cached, or running as well."""
        for first in range(num_prompts):
            request = self.run([first, *range(2 * SIZE - 1)])
            if keep:
                self._do(partial(self._free, request))
        return self

    def _free(self, request: Request) -> None:
        self.manager.free(request)


@cache
def _is_written(part: ModuleType) -> bool:
    """Whether nothing that `Cache.filled` calls is a stub."""
    try:
        Cache(part, 8, part.KVCacheManager).filled(1)
    except NotImplementedError:
        return False
    return True


def beside(part: ModuleType, n: int, *, running: bool = False) -> Cache:
    """A cache with room, and n other prompts."""
    return Cache(part, 3 * n + 40).filled(n, keep=not running)


def in_any_cache(part: ModuleType, what: str, call: Callable[[Cache], Callable[[], Any]]) -> None:
    """The same whatever is cached, and whatever runs. call: of a cache."""
    for quantity, running in (("cached prompts", False), ("running requests", True)):
        expect_growth(
            part, what, quantity, lambda n, running=running: call(beside(part, n, running=running)),  # type: ignore[misc]
            size=32, why=OWN,
        )  # fmt: skip


PROMPT = [1, 0, 3, 3, *range(50, 57)]


@task("3.5")
def test_admission_costs_its_own_prompt(part: ModuleType) -> None:
    """What is cached of a prompt is found without a look at the others."""
    in_any_cache(
        part, "cached_tokens",
        lambda cache: partial(cache.manager.cached_tokens, cache.request(PROMPT)),
    )  # fmt: skip
    in_any_cache(part, "admit", lambda cache: partial(cache.manager.admit, cache.request(PROMPT)))


def long_request(part: ModuleType, n: int) -> tuple[Cache, Request]:
    """A request whose n tokens are computed and filed; the last block has room for one more."""
    cache = Cache(part, n)
    return cache, cache.run(list(range(n * SIZE // 2 + 1)))


@task("3.6")
def test_one_more_token_costs_the_same_at_any_length(part: ModuleType) -> None:
    """allocate looks at the block that it is about, and takes the block that is missing."""

    def one_more(cache: Cache) -> Callable[[], Any]:
        request = cache.run(PROMPT)
        return partial(cache.manager.allocate, request, request.num_tokens)

    in_any_cache(part, "allocate for one more token", one_more)

    def at_length(n: int) -> Callable[[], Any]:
        cache, request = long_request(part, n)
        return partial(cache.manager.allocate, request, request.num_tokens)

    expect_growth(part, "allocate for one more token", "blocks of this request", at_length, why=OWN)

    def under_pressure(n: int) -> Callable[[], Any]:
        cache = Cache(part, 2 * n).filled(n)
        request = cache.request([9_999] * (2 * SIZE))
        cache.manager.admit(request)
        return partial(cache.manager.allocate, request, request.num_tokens)

    expect_growth(
        part, "allocate that evicts two blocks", "cached prompts", under_pressure, size=32, why=OWN
    )


@task("3.8")
def test_a_step_costs_the_same_at_any_length(part: ModuleType) -> None:
    """commit that has no block to file looks at two numbers; free costs its own table."""

    def nothing_new(n: int) -> Callable[[], Any]:
        cache, request = long_request(part, n)
        return partial(cache.manager.commit, request)

    expect_growth(
        part, "commit without a full block", "blocks of the request", nothing_new, why=A_LOOK
    )
    in_any_cache(
        part, "commit of a prompt",
        lambda cache: partial(cache.manager.commit, cache.run(PROMPT, commit=False)),
    )  # fmt: skip
    in_any_cache(part, "free", lambda cache: partial(cache.manager.free, cache.run(PROMPT)))


@task("3.9")
def test_a_look_for_what_is_pending_costs_its_own_prompt(part: ModuleType) -> None:
    """is_pending costs the same whatever is cached."""
    expect_growth(
        part, "is_pending", "cached prompts",
        lambda n: (lambda cache: partial(cache.manager.is_pending, cache.request(PROMPT)))(
            beside(part, n)
        ),
        size=32, why=OWN,
    )  # fmt: skip


@task("3.10")
def test_the_way_to_the_host_costs_its_own_table(part: ModuleType) -> None:
    """swap_out and swap_in cost the same whatever is cached and whatever runs."""

    def outside(cache: Cache) -> Callable[[], Any]:
        request = cache.run(PROMPT)
        cache.manager.swap_out(request)
        request.status = RequestStatus.SWAPPED
        return partial(cache.manager.swap_in, request, request.num_tokens)

    in_any_cache(part, "swap_out", lambda cache: partial(cache.manager.swap_out, cache.run(PROMPT)))
    in_any_cache(part, "swap_in", outside)
