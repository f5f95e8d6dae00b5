"""What the suites of task 3.10 do with a table on the host, and the words for it."""

from types import ModuleType

from grader.kit import expect_equal
from grader.suites.paged_cache.cache_desk import RUNNING, CacheDesk
from yaie.core.request import Request, RequestStatus

A = list(range(1, 21))
B = list(range(21, 41))

ALL_OR_NONE = (
    "A table moves whole or not at all: see that there is room before anything is filed or moved."
)


def swapped(
    part: ModuleType, length: int = 10, *, caching: bool = True
) -> tuple[CacheDesk, Request]:
    """A request that has its prompt computed, whole blocks from the cache, and stands on the host."""
    desk = CacheDesk(part, num_host_blocks=4, caching=caching)
    if caching:
        desk.file(A[: length // 4 * 4])
    request = desk.admit(A[:length])
    desk.compute(request)
    table = desk.table(request)
    got = desk.cache.swap_out(request)
    expect_equal(got, True, f"what swap_out returned with room for all {len(table)} blocks")
    request.status = RequestStatus.SWAPPED
    request.num_preemptions += 1
    moved = [device for device, _ in desk.carry_out()[0]]
    why = "The plan copies what `take_moves` names: each block of the table, in its order."
    expect_equal(moved, table, "the device blocks that are to be copied to the host", why=why)
    return desk, request


LOST = "What the tree still has need not be copied: only what it has lost meanwhile comes from the host."
BEYOND = (
    "swap_in shares the full blocks of num_computed_tokens, and no more. Behind them the tree may have "
    "blocks of this prompt that another computed: this request goes on computing there, and would write "
    "into them. What it had begun comes from the host."
)


def swap_in(
    desk: CacheDesk, request: Request, num_tokens: int, copied: int, why: str = LOST
) -> None:
    """Back to the device, with `copied` blocks from the host."""
    got = desk.cache.swap_in(request, num_tokens)
    expect_equal(got, True, "what swap_in returned with room enough")
    request.status = RUNNING
    what = "how many blocks are to be copied from the host"
    expect_equal(len(desk.carry_out()[1]), copied, what, why=why)
