"""Tasks 3.5 to 3.10 beyond one call: of requests that are over, and of questions, nothing is left."""

from collections.abc import Callable
from itertools import count
from types import ModuleType
from typing import Any

from grader.kit import expect, expect_equal, quietly, task
from grader.kit.memory import expect_keeps_nothing
from grader.suites.paged_cache.cache_desk import CacheDesk
from solutions.paged_cache import BlockManager
from solutions.radix_tree import RadixTree
from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestStatus

NAME = "a request whose name would be found in what is kept of it, " * 3
A = list(range(1, 21))
B = list(range(21, 41))
ANEW = (
    "What is asked for one request says nothing of the next: ask anew at each call, and keep what you "
    "remember by request."
)
FOUND = (
    "Its sibling's blocks spare a fork the same work as the tree's do: its tokens in both count as "
    "cached when it is first admitted."
)


def manager(part: ModuleType) -> tuple[Any, BlockManager]:
    """A cache of blocks of four, without a script: what is written down is kept."""
    blocks = BlockManager(16, 4, num_host_blocks=16)
    return part.KVCacheManager(blocks, RadixTree(4)), blocks


def running(cache: Any, name: str, prompt: list[int]) -> Request:
    """A request that has its table and its room."""
    request = Request(name, list(prompt), SamplingParams())
    cache.admit(request)
    request.status = RequestStatus.RUNNING
    cache.allocate(request, len(prompt))
    return request


def expect_leaves_nothing(call: Callable[[], Any], what: str) -> None:
    """A part that fails in the call itself is other tests' matter."""
    try:
        call()
    except NotImplementedError:
        raise
    except Exception:  # noqa: BLE001, a part may raise anything
        return
    expect_keeps_nothing(call, what)


@task("3.5")
def test_each_fork_starts_where_its_sibling_is(part: ModuleType) -> None:
    """What `_start_fork` (task 3.7) returns is what a fork has computed and what it found cached."""
    desk = CacheDesk(part, caching=False)
    cache, starts = quietly(desk.cache), {"r1": 5, "r2": 3}
    if not hasattr(cache, "_start_fork") or not hasattr(cache, "_start_table"):
        return  # forks are started in another way, which task 3.7 grades

    def start_fork(request: Request, sibling: Request) -> int:
        cache._start_table(request, 0)
        return starts[request.request_id]

    cache._start_fork = start_fork
    sibling = desk.admit(A[:9])
    sibling.num_computed_tokens = 9
    desk.note_change("r0 has computed its prompt; _start_fork returns 5 for r1, and 3 for r2")
    for name, start in starts.items():
        fork = desk.request(A[:9], sibling)
        got = desk.cache.admit(fork), fork.num_computed_tokens
        what = f"what admit returned, and num_computed_tokens of {name}"
        expect_equal(got, (start, start), what, why=ANEW)
        what = f"num_cached_tokens of {name}"
        expect_equal(fork.num_cached_tokens, start, what, why=FOUND)


@task("3.5")
def test_admissions_leave_nothing_behind(part: ModuleType) -> None:
    """A request that is admitted again, after its blocks have gone, takes no more than before."""
    cache, blocks = manager(part)
    request = Request("r0", A[:9], SamplingParams())

    def call() -> None:
        cache.admit(request)
        blocks.free("r0")

    expect_leaves_nothing(call, "admit of a request")


@task("3.6")
def test_the_chunk_of_each_request_is_noted(part: ModuleType) -> None:
    """`_computing` says of each request how far its own chunk goes."""
    desk = CacheDesk(part, num_blocks=12)
    long, short = desk.admit(A), desk.admit(B[:8])
    for request in (long, short):
        desk.cache.allocate(request, request.num_tokens)
    notes = getattr(quietly(desk.cache), "_computing", None)
    if isinstance(notes, dict) and long in notes and short in notes:
        problem = (
            f"_computing holds {notes[long]!r} for r0, which computes 5 blocks, and for r1, with 2"
        )
        expect(notes[long] != notes[short], problem, why=ANEW)


@task("3.6")
def test_room_leaves_nothing_behind(part: ModuleType) -> None:
    """Asking for room that is there takes nothing, however often."""
    cache, _ = manager(part)
    request = running(cache, "r0", A)
    expect_leaves_nothing(lambda: cache.allocate(request, 20), "allocate of what is there")


@task("3.8")
def test_lives_leave_nothing_behind(part: ModuleType) -> None:
    """Of requests that came, computed, were filed and are over, the tree alone keeps the content."""
    cache, _ = manager(part)
    number = count()

    def live(keep: bool) -> None:
        request = running(cache, f"{NAME} {next(number)}", A)
        request.num_computed_tokens = 20
        cache.take_moves()
        if keep:
            cache.commit(request)
            cache.commit(request)
        cache.free(request, keep=keep)

    expect_leaves_nothing(lambda: live(True), "a request from admit to free")
    expect_leaves_nothing(lambda: live(False), "a request that is not kept")


@task("3.9")
def test_questions_leave_nothing_behind(part: ModuleType) -> None:
    """is_pending is asked of each waiting request in each step, and keeps nothing."""
    cache, _ = manager(part)
    running(cache, "r0", A)
    request = Request("r1", [*A[:12], 0, 0], SamplingParams())
    expect_leaves_nothing(lambda: cache.is_pending(request), "is_pending")


@task("3.10")
def test_swaps_leave_nothing_behind(part: ModuleType) -> None:
    """A request that goes to the host and comes back, again and again, takes no more than before."""
    cache, _ = manager(part)
    request = running(cache, "r0", A)
    request.num_computed_tokens = 18

    def call() -> None:
        cache.swap_out(request)
        cache.take_moves()
        request.status = RequestStatus.SWAPPED
        cache.swap_in(request, 19)
        cache.take_moves()
        request.status = RequestStatus.RUNNING

    expect_leaves_nothing(call, "swap_out and swap_in of a request")
