"""Task 3.9: which chunks are waited for."""

from types import ModuleType

from grader.kit import expect, task
from grader.suites.paged_cache.cache_desk import RUNNING, CacheDesk
from grader.suites.paged_cache.pending import NOTHING_GAINED, WAIT, A, expect_pending


@task("3.9")
def test_a_chunk_counts_by_the_block_it_fills(part: ModuleType) -> None:
    """A chunk that fills a block makes others wait, from wherever it starts; one that fills none not."""
    desk = CacheDesk(part)
    first = desk.admit(A[:12])
    for num_tokens, pending in ((2, False), (2, True)):
        desk.cache.allocate(first, first.num_computed_tokens + num_tokens)
        when = f"while r0 computes 2 tokens from its token {first.num_computed_tokens}"
        why = WAIT if pending else f"{NOTHING_GAINED} Blocks have four tokens."
        expect_pending(desk, A[:10], pending, why, when)
        desk.write(first, num_tokens)


@task("3.9")
def test_a_generated_token_makes_nobody_wait(part: ModuleType) -> None:
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


@task("3.9")
def test_drafts_make_nobody_wait(part: ModuleType) -> None:
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


@task("3.9")
def test_generated_tokens_that_are_computed_again_are_a_chunk(part: ModuleType) -> None:
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


@task("3.9")
def test_a_chunk_without_room_is_not_waited_for(part: ModuleType) -> None:
    """allocate that answers False notes nothing: no step computes those tokens."""
    desk = CacheDesk(part, num_blocks=2)
    first = desk.admit(A[:12])
    if desk.cache.allocate(first, 12):
        return  # another task's matter
    why = "The note is part of what a refusal must not change: take it when the room is there."
    expect_pending(desk, A[:9], False, why, "after r0 was refused room")
