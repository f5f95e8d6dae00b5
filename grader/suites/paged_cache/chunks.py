"""Chunks that one request computes, and whether another one waits for them.

`allocate` notes them (task 3.6), `commit` takes the note away (3.8), and `is_pending` reads it (3.9): so
each of the three is graded on them. `noted` grades the first two by themselves, with the reference's
`is_pending` in the place of the learner's.
"""

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from grader.kit import Mismatch, expect, start_script
from grader.kit.script import current_script, resume_script
from grader.suites.paged_cache.cache_desk import RUNNING, CacheDesk
from grader.suites.paged_cache.pending import IN_FLIGHT, NOTHING_GAINED, WAIT, A, B, expect_pending
from solutions.paged_cache import BlockManager, KVCacheManager

OF_THE_NOTE = (
    "The reference's `is_pending` was asked here: it reads the notes that `allocate` and `commit` leave "
    "in `_computing` (section 3.9 of the sheet)."
)
GIVEN = ("_tree", "_computing", "_peek", "_start_alike")


def noted(part: Any, check: Callable[[Any], None]) -> None:
    """A check of the notes in `_computing`. A part that keeps them in another way is graded by its own
    `is_pending`, which task 3.9 grades too."""
    own = part.KVCacheManager
    if not all(hasattr(own(BlockManager(1, 1), None), name) for name in GIVEN):
        return
    lent: dict[str, Any] = {"is_pending": KVCacheManager.is_pending}
    try:
        try:
            check(SimpleNamespace(KVCacheManager=type(own.__name__, (own,), lent)))
        except NotImplementedError:  # `commit` may be open still, which comes after `allocate`
            start_script()
            lent["commit"] = KVCacheManager.commit
            check(SimpleNamespace(KVCacheManager=type(own.__name__, (own,), lent)))
    except Exception as error:
        script = current_script()
        script.settle()
        if not _passes(check, part):
            resume_script(script)
            if isinstance(error, Mismatch):
                error.why = f"{error.why} {OF_THE_NOTE}"
            raise


def _passes(check: Callable[[Any], None], part: Any) -> bool:
    start_script()
    try:
        check(part)
    except Exception:  # noqa: BLE001, a part may raise anything
        return False
    return True


def fills_a_block(part: ModuleType) -> None:
    """A chunk that fills a block makes others wait, from wherever it starts; one that fills none not."""
    desk = CacheDesk(part)
    desk.cache.allocate(desk.admit(A[:12]), 12)
    expect_pending(desk, A[:10], True, WAIT, "while r0 computes its 12 tokens")
    desk = CacheDesk(part)
    first = desk.admit(A[:12])
    for num_tokens, pending in ((2, False), (2, True)):
        desk.cache.allocate(first, first.num_computed_tokens + num_tokens)
        when = f"while r0 computes 2 tokens from its token {first.num_computed_tokens}"
        why = WAIT if pending else f"{NOTHING_GAINED} Blocks have four tokens."
        expect_pending(desk, A[:10], pending, why, when)
        desk.write(first, num_tokens)


def generates_a_token(part: ModuleType) -> None:
    """A single token that fills a block is not waited for: what is generated may be filed much later."""
    desk = CacheDesk(part)
    first = desk.admit(A[:7])
    desk.compute(first, commit=True)
    desk.cache.allocate(first, 8)
    why = (
        "The scheduler files a chunk at once, but generated tokens when the request ends: a "
        "request that waited for them could wait for the whole answer."
    )
    expect_pending(desk, [*first.token_ids, 0], False, why)


def verifies_drafts(part: ModuleType) -> None:
    """A token and three drafts are no chunk: of drafts it is not known whether they stay."""
    desk = CacheDesk(part)
    first = desk.admit(A[:7])
    desk.compute(first, commit=True)
    expect(desk.cache.allocate(first, 11), "no room in a pool with free blocks")
    why = (
        "r0 has 8 tokens, 7 of them computed, and room for 11: three are guesses that its `token_ids` "
        "do not have. Of the known ones a single token is left, which is no chunk."
    )
    expect_pending(desk, [*first.token_ids, 0], False, why)


def computes_again(part: ModuleType) -> None:
    """A preempted request computes its generated tokens again in a chunk: others wait for that."""
    desk = CacheDesk(part)
    first = desk.request(A[:3])
    first.token_ids += A[3:10]
    first.num_preemptions = 1
    desk.note_change("r0 has 10 tokens. It was preempted: num_preemptions = 1")
    desk.cache.admit(first)
    first.status = RUNNING
    desk.cache.allocate(first, 10)
    why = "All known tokens count, those behind the prompt too: num_prompt_tokens has no part in this."
    expect_pending(desk, [*A[:8], 0], True, why, "while r0 computes its 10 tokens again")
    late = desk.request(A[:3])
    late.token_ids += [*A[3:8], 0]
    late.num_preemptions = 1
    desk.note_change(f"{late.request_id} has 9 tokens. It was preempted: num_preemptions = 1")
    expect_pending(desk, late, True, why, "which lacks its generated tokens as well")


def has_no_room(part: ModuleType) -> None:
    """allocate that answers False notes nothing: no step computes those tokens."""
    desk = CacheDesk(part, num_blocks=2)
    first = desk.admit(A[:12])
    if desk.cache.allocate(first, 12):
        return  # another task's matter
    why = "The note is part of what a refusal must not change: take it when the room is there."
    expect_pending(desk, A[:9], False, why, "after r0 was refused room")


def has_two_in_flight(part: ModuleType, *, by_commit: bool = False) -> None:
    """A request that plans its second chunk while its first is in flight is about to fill both.

    by_commit: what commit does is graded alone, and not whether both were noted.
    """
    why = f"{IN_FLIGHT} A request may have several chunks between the two."
    for second in (9, 4):
        desk = CacheDesk(part)
        first = desk.admit(A[: 6 + second - 1])
        desk.launch(first, 5)
        desk.launch(first, second)
        late = desk.request([*A[: (5 + second) // 4 * 4], *B[:2]])
        if by_commit and not desk.cache.is_pending(late):
            return
        expect_pending(desk, late, True, why, "with both chunks in flight")
        desk.settle(first, commit=True)
        if desk.cache.cached_tokens(late) == 4:  # what else commit files is task 3.6's matter
            expect_pending(desk, late, True, why, "with the second chunk in flight")
        desk.settle(first, commit=True)
        expect_pending(desk, late, False, "It is cached now.", "once both are filed")


def reuses_nothing(part: ModuleType) -> None:
    """The chunk of a request that may reuse no prefix itself makes others wait all the same."""
    desk = CacheDesk(part)
    first = desk.admit(A[:12], may_reuse=False)
    desk.cache.allocate(first, 12)
    why = (
        "It may not use what others filed. What it computes is filed for all, and they can use it."
    )
    expect_pending(desk, A[:10], True, why, "while r0, which may not reuse a prefix, computes it")


class Token(int):
    """A token id that counts how often one of its kind was compared."""

    num_compared = 0

    def __eq__(self, other: object) -> bool:
        Token.num_compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def compared(part: ModuleType, num_running: int) -> int:
    """How many tokens is_pending compares beside so many requests that have filed their prompts."""
    desk = CacheDesk(part)
    for first in range(num_running):
        request = desk.admit([first + 100, *A[:6]])
        for num_tokens in (5, 2):  # the second chunk fills no block
            desk.compute(request, num_tokens, commit=True)
    late = desk.request([Token(token) for token in B[:5]])
    before = Token.num_compared
    expect_pending(desk, late, False, NOTHING_GAINED, "with all results filed")
    return Token.num_compared - before


def is_filed(part: ModuleType) -> None:
    """is_pending compares a prompt with chunks that are not filed yet, and with no others."""
    few, many = compared(part, 1), compared(part, 3)
    expect(
        many <= few,
        f"is_pending compares tokens {few} times beside 1 running request, {many} times beside 3",
        why="Every waiting request asks in every step. Remove a request's note in `_computing` when "
        "`commit` has filed all that it promises, or each is compared with all that run.",
    )
