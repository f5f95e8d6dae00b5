"""Task 6.7: which request gives way when blocks run out, what survives of it, and what can never run."""

from typing import Any

from grader.kit import expect, expect_equal, start_script
from grader.kit.toy import Settings, Toy
from grader.kit.toy_scripts import any_settings
from grader.suites.scheduler.asked import ASKED
from grader.suites.scheduler.bench import (
    A,
    B,
    cached,
    crowd,
    expect_right,
    expect_shares,
    play_any,
    until_preempted,
)
from grader.suites.scheduler.parts import graded
from yaie.core.request import Request, RequestStatus

RECOMPUTE, SWAP = 0, 16
LAST = "The last in rank gives way: the first always goes on and ends, and so all do."
KEPT = (
    "A preemption takes blocks, never tokens: those that were generated have been sent already. Their "
    "K and V are computed again, and the next token follows on the last."
)
FILES = (
    "`free` files what a preempted request has computed: it finds that again when it comes back."
)
COUNT_LAST = (
    "`free` files what is computed, for it to be found again, so it must know how much that is: "
    "num_computed_tokens is set to 0 after it, not before."
)
MID_FLIGHT = (
    "A preemption does not cancel the step in flight: it still samples a token, and the request keeps "
    "it. Until update, num_in_flight and num_output_placeholders say so."
)


ON_THE_HOST = (
    "What the step in flight computes is moved to the host with the rest: on one device the copy runs "
    "after that step. Only the token that it samples has no K and V."
)


@graded("6.7")
def test_the_last_to_come_gives_way(part: Any) -> None:
    """When blocks run out the last in rank loses its place, and the first goes on."""
    toy = crowd(part)
    expect_equal(until_preempted(toy), [toy.requests[1]], "which request is preempted", why=LAST)
    expect_shares(toy.step(), ["r0: token 13, samples"], LAST, "the step after that")
    expect_right(toy, LAST)


@graded("6.7")
def test_a_preempted_request_waits(part: Any) -> None:
    """A preempted request is PREEMPTED, holds nothing, has computed nothing, and waits."""
    toy = crowd(part)
    until_preempted(toy)
    victim = toy.requests[1]
    why = "Its blocks go to another request: none of its tokens has K and V that it could read."
    expect_equal(victim.status, RequestStatus.PREEMPTED, "the status of r1")
    expect_equal(victim.num_computed_tokens, 0, "num_computed_tokens of r1", why=why)
    expect_equal(toy.cache.block_table(victim), [], "the block table of r1", why=why)
    expect_equal(victim.num_preemptions, 1, "num_preemptions of r1")
    expect_equal(toy.scheduler.num_waiting, 1, "num_waiting")


@graded("6.7")
def test_no_token_is_lost(part: Any) -> None:
    """A preempted request keeps every token it has generated, at the edge of a block as well."""
    for num_host_blocks in (RECOMPUTE, SWAP):
        for length in range(1, 9):
            start_script()
            settings = Settings(6, num_host_blocks=num_host_blocks, prefix_caching=False)
            toy = Toy(settings, part)
            toy.add(A[:12], max_tokens=12)
            toy.add(B[:length], max_tokens=12)
            until_preempted(toy)
            victim = toy.requests[1]
            expected = toy.expected()[1][: victim.num_output_tokens]
            expect(victim.num_output_tokens > 0, "r1 has lost all its output", why=KEPT)
            expect_equal(victim.output_token_ids, expected, "the output of r1 so far", why=KEPT)
            expect_right(toy, KEPT)


@graded("6.7")
def test_the_request_that_needs_a_block_may_be_the_last(part: Any) -> None:
    """If the last in rank itself needs a block it gives way itself, and no other does."""
    toy = Toy(Settings(num_blocks=5, token_budget=32), part)
    toy.add(A[:10], max_tokens=6)
    toy.add(B[:8], max_tokens=6)
    plan = toy.step()
    expect_shares(plan, ["r0: tokens 0..9, samples", "r1: tokens 0..7, samples"], LAST, "step 1")
    plan = toy.step()
    expect_equal(
        plan.preempted,
        [toy.requests[1]],
        "which request is preempted when r1 needs a block",
        why=LAST,
    )
    expect_shares(plan, ["r0: token 10, samples"], LAST, "step 2")
    expect_right(toy, LAST)


@graded("6.7")
def test_what_others_hold_is_not_taken_for_nothing(part: Any) -> None:
    """Only as many are preempted as it takes."""
    toy = Toy(Settings(num_blocks=6, token_budget=32), part)
    for prompt in (A[:8], B[:8], A[3:11]):
        toy.add(prompt, max_tokens=6)
    toy.step()
    plan = toy.step()
    expect_equal(
        plan.preempted, [toy.requests[2]], "which request is preempted when r0 and r1 need a block each",
        why="The two blocks of r2 are enough for both.",
    )  # fmt: skip
    expect_right(toy, LAST)


@graded("6.7")
def test_it_comes_back_before_those_that_never_ran(part: Any) -> None:
    """Preempted requests are at the front of the queue, in their old order."""
    toy = Toy(Settings(num_blocks=8, max_num_seqs=3), part)
    for prompt in (A[:10], B[:5], A[2:8]):
        toy.add(prompt, max_tokens=16)
    while not toy.requests[1].num_preemptions and toy.alive:
        toy.step()
    toy.add(B[3:7], max_tokens=2)
    back: list[Request] = []
    pushed = ""
    # What comes after all three have run again belongs to no report of their order.
    while toy.alive and len(set(back) - {toy.requests[0]}) < 3:
        before = [r for r in toy.alive if r.status is RequestStatus.RUNNING]
        toy.step()
        now = [r for r in toy.requests if r.status is RequestStatus.RUNNING]
        if "schedule" in (ASKED.made("queue.push") or []):
            pushed = "`schedule` put a preempted request behind the others, with `push`. "
        back += [r for r in now if r not in before and r not in back]
    why = "`push_front` puts it before all that wait."
    order = [request.request_id for request in back if request.request_id != "r0"]
    what = "the order in which they run again"
    expect_equal(order, ["r1", "r2", "r3"], what, why=f"{pushed}{why}")
    while toy.alive:
        toy.step()


@graded("6.7")
def test_what_was_computed_is_filed(part: Any) -> None:
    """A preemption files the full blocks of the request, those of its output too."""
    toy = Toy(Settings(num_blocks=3), part)
    toy.add(A[:3], max_tokens=8)
    (victim,) = toy.add(B[:3], max_tokens=8)
    known: list[int] = []
    free = toy.cache.free

    def free_and_know(request: Request, *, keep: bool = True) -> None:
        if request is victim and keep:
            known.append(request.num_computed_tokens)
        free(request, keep=keep)

    toy.cache.free = free_and_know  # type: ignore[method-assign]
    if until_preempted(toy) != [victim]:
        return  # another test says so
    got = cached(toy, victim.token_ids[:4])
    what = "how many of the 4 tokens that r1 had computed are cached after its preemption"
    why = (
        f"When r1 was freed its num_computed_tokens was 0. {COUNT_LAST}" if known == [0] else FILES
    )
    expect_equal(got, 4, what, why=why)


@graded("6.7")
def test_its_own_blocks_are_found_again(part: Any) -> None:
    """What is left in the cache of a preempted request, output too, is not computed again."""
    toy = Toy(Settings(num_blocks=8, token_budget=32), part)
    toy.add(A[:17], max_tokens=8)
    (victim,) = toy.add(B[:2], max_tokens=14)
    until_preempted(toy)
    share = None
    while share is None and toy.alive:
        share = next((item for item in toy.step().scheduled if item.request is victim), None)
    expect(
        share is not None and share.start > 0,
        "r1 computes all its tokens again, though some of its blocks are still cached",
        why=COUNT_LAST,
    )
    expect_right(toy, KEPT)


@graded("6.7")
def test_swapped_blocks_go_to_the_host(part: Any) -> None:
    """With `swap` a preempted request is SWAPPED, and has computed what it had computed."""
    toy = crowd(part, SWAP)
    until_preempted(toy)
    victim = toy.requests[1]
    expect_equal(victim.status, RequestStatus.SWAPPED, "the status of r1")
    why = "Its K and V are in the host pool; only the token sampled last has none."
    expect_equal(
        victim.num_computed_tokens, victim.num_tokens - 1, "num_computed_tokens of r1", why=why
    )
    expect_equal(victim.num_preemptions, 1, "num_preemptions of r1")
    expect_right(toy, why)


@graded("6.7")
def test_swap_recomputes_when_the_host_is_full(part: Any) -> None:
    """When the host pool has no room the request is recomputed instead."""
    toy = crowd(part, num_host_blocks=1)
    until_preempted(toy)
    why = "swap_out says no and changes nothing; the blocks must be freed all the same."
    expect_equal(toy.requests[1].status, RequestStatus.PREEMPTED, "the status of r1", why=why)
    expect_right(toy, why)


@graded("6.7")
def test_without_swap_the_host_is_left_alone(part: Any) -> None:
    """Without `swap` nothing goes to the host, even if the pool has room there."""
    toy = crowd(part, SWAP, swap=False)
    until_preempted(toy)
    expect_equal(toy.requests[1].status, RequestStatus.PREEMPTED, "the status of r1",
                 why="The setting says how a request gives up its blocks.")  # fmt: skip


@graded("6.7")
def test_preempted_in_mid_flight(part: Any) -> None:
    """A request that is preempted with a step in flight keeps the token that this step samples."""
    for num_host_blocks, status in (
        (RECOMPUTE, RequestStatus.PREEMPTED),
        (SWAP, RequestStatus.SWAPPED),
    ):
        start_script()
        toy = crowd(part, num_host_blocks, prefix_caching=False)
        toy.begin()
        while not toy.begin().preempted:
            toy.take()
        victim = toy.requests[1]
        got = (victim.status, victim.num_in_flight, victim.num_output_placeholders)
        what = "status, num_in_flight and num_output_placeholders of r1, preempted with a step in flight"
        expect_equal(got, (status, 1, 1), what, why=MID_FLIGHT)
        if status is RequestStatus.SWAPPED:
            computed = victim.num_computed_tokens
            what = "num_computed_tokens of r1, swapped out with a decode in flight"
            expect_equal(computed, victim.num_tokens - 1, what, why=ON_THE_HOST)
        known = victim.num_output_tokens
        toy.take()
        what = "how many output tokens r1 has once that step is over"
        expect_equal(victim.num_output_tokens, known + 1, what, why=MID_FLIGHT)
        expect_right(toy, KEPT)


@graded("6.7")
def test_room_for_the_share_only(part: Any) -> None:
    """Room is made for the tokens of the step, not for those of later ones."""
    toy = Toy(Settings(num_blocks=6, token_budget=4), part)
    (request,) = toy.add(A[:12])
    toy.step()
    toy.step()
    blocks = len(toy.cache.block_table(request))
    why = (
        "A chunk takes blocks up to its own end. One that takes those of the whole prompt leaves none "
        "to others before it needs them, and preempts for nothing."
    )
    expect_equal(blocks, 2, "blocks of r0 after 8 of its 12 tokens", why=why)


@graded("6.7")
def test_what_was_cached_at_first_is_still_told(part: Any) -> None:
    """A preemption does not touch num_cached_tokens: it says what the first admission found."""
    toy = Toy(Settings(num_blocks=6), part)
    toy.add(B[:9])
    toy.run()
    toy.add(A[:9], max_tokens=12)
    (victim,) = toy.add(B[:9], max_tokens=12)
    until_preempted(toy)
    why = "Clients get it as the part of their prompt that was cached; it is not a count of blocks."
    expect_equal(victim.num_cached_tokens, 8, "num_cached_tokens of r2, preempted", why=why)


@graded("6.7")
def test_a_chunk_goes_to_the_host(part: Any) -> None:
    """A request that is preempted in the middle of its prompt is swapped out like any other."""
    settings = Settings(num_blocks=5, num_host_blocks=SWAP, token_budget=8, policy="priority")
    toy = Toy(settings, part)
    toy.add(A[:7], max_tokens=9, priority=0)
    toy.step()
    (victim,) = toy.add(B[:12], max_tokens=2, priority=1)
    until_preempted(toy)
    why = "What is computed of a prompt is worth as much as what is computed of an answer."
    what = "the status of r1, preempted in its prompt, with 16 host blocks free"
    expect_equal(victim.status, RequestStatus.SWAPPED, what, why=why)
    expect_right(toy, why)


@graded("6.7")
def test_the_host_is_asked_each_time(part: Any) -> None:
    """After a victim for which the host has no room, one that fits there is swapped out."""
    toy = crowd(part, 2, prefix_caching=False)
    until_preempted(toy)
    first = toy.requests[1]
    what = "the status of r1, with 3 blocks, preempted beside a host pool of 2"
    expect_equal(first.status, RequestStatus.PREEMPTED, what, why="The host has no room for it.")
    toy.finish(first)
    (small,) = toy.add([4, 4, 4], max_tokens=12)
    until_preempted(toy)
    expect_equal(
        small.status, RequestStatus.SWAPPED, "the status of r2, with 2 blocks at most",
        why="The host had no room for r1, which says nothing about r2: `swap_out` answers for each "
        "victim.",
    )  # fmt: skip


@graded("6.7")
def test_cached_blocks_go_first(part: Any) -> None:
    """No request is preempted while blocks of ended requests can be evicted."""
    toy = Toy(Settings(num_blocks=6), part)
    toy.add(A)
    toy.run()
    (request,) = toy.add(B[:9], max_tokens=12)
    expect_right(toy, "`allocate` evicts what no request uses; only if it says no must one go.")
    expect_equal(request.num_preemptions, 0, "preemptions of r1")


@graded("6.7")
def test_any_life(part: Any) -> None:
    """However often and at whatever point requests are preempted: the tokens are right in the end."""
    play_any(part, any_settings(most_tokens=24), 70)
