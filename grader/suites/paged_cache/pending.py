"""What the suites of task 3.9 ask, and the words for it."""

from collections.abc import Sequence
from types import ModuleType

from grader.kit import expect_equal, quietly
from grader.suites.paged_cache.cache_desk import CacheDesk
from yaie.core.request import Request

A = list(range(1, 21))
B = list(range(21, 41))

WAIT = "The block that this request lacks is being computed for another one."
NOTHING_GAINED = "Waiting only pays if the next whole block that is missing is being computed."
HOST = "A fork waits for a sibling that runs: one on the host computes nothing, perhaps for long."
IN_FLIGHT = (
    "A block is being computed from `allocate` until its result is filed; other steps may be planned in "
    "between."
)
GIVEN_UP = "A request that gave the block up does not fill it any more: waiting would never end."


def computing(part: ModuleType, cached: int, num_tokens: int) -> CacheDesk:
    """A desk in mid-step: r0 computes the first num_tokens of A[:12], but for those that are cached."""
    desk = CacheDesk(part)
    desk.file(A[:cached])
    desk.cache.allocate(desk.admit(A[:12]), num_tokens)
    return desk


def expect_pending(
    desk: CacheDesk, request: Sequence[int] | Request, wanted: bool, why: str, when: str = ""
) -> None:
    """request: one that waits, or the prompt of a new one."""
    if not isinstance(request, Request):
        request = desk.request(request)
    what = f"whether {request.request_id} {request.token_ids} is pending {when}".rstrip()
    got = bool(desk.cache.is_pending(request))
    if why == WAIT and got != wanted:
        why = f"{WAIT} {notes_of(desk)}".strip()
    expect_equal(got, wanted, what, why=why)


def notes_of(desk: CacheDesk) -> str:
    """What `_computing` holds, if the part keeps its notes there."""
    notes = getattr(quietly(desk.cache), "_computing", None)
    if not isinstance(notes, dict) or not all(isinstance(one, Request) for one in notes):
        return ""
    if not notes:
        return "`_computing` holds no note of it."
    held = ", ".join(f"{one.request_id}: {count!r}" for one, count in notes.items())
    return f"`_computing` holds {{{held}}}."
