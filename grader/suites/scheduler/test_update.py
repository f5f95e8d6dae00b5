"""Task 6.7: what a result leaves behind, and how a request ends."""

from typing import Any

from grader.kit import expect, expect_equal, note, start_script
from grader.kit.toy import Settings, Toy, toy_output
from grader.kit.toy_scripts import any_settings
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
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request, RequestStatus

GONE = (
    "It ended while the step was in flight. Its tokens in the result are dropped: they are passed over, "
    "and the next list in the result is the next request's."
)
AT_ONCE = (
    "What was computed is filed when the result is there: others that begin alike find it while the "
    "first is still running."
)
GIVEN_BACK = (
    "A request that ends leaves the queue or its place among those that run, with all its blocks."
)


@graded("6.7")
def test_only_what_was_computed(part: Any) -> None:
    """After a chunk num_computed_tokens stands at the end of the chunk, and no token is gained."""
    toy = Toy(Settings(token_budget=8), part)
    (short,) = toy.add(A[:3], max_tokens=4)
    (long,) = toy.add(B[:12], max_tokens=4)
    toy.begin()
    advanced = toy.take()
    why = "r1 has computed a part of its prompt; no token can follow on that."
    expect_equal(advanced, [short], "the requests that update returns", why=why)
    expect_equal(long.num_computed_tokens, 5, "num_computed_tokens of r1", why=why)
    why = "The token that was drawn has no K and V until the next step computes it."
    expect_equal(short.num_computed_tokens, 3, "num_computed_tokens of r0", why=why)


@graded("6.7")
def test_each_gets_its_own_token(part: Any) -> None:
    """The result has a list for each request that samples, in the plan's order; a chunk has none."""
    toy = Toy(Settings(token_budget=12, policy="priority"), part)
    toy.add(A[:3], max_tokens=4, priority=2)
    toy.step()
    toy.add(B[:20], max_tokens=4, priority=0)
    toy.step()
    toy.add(A[4:9], max_tokens=4, priority=1)
    why = "A chunk takes none of the tokens, so those behind it keep theirs."
    expect_right(toy, why)


@graded("6.7")
def test_a_request_that_ended_in_flight(part: Any) -> None:
    """A request that ends with its step in flight gains nothing; the others get their tokens."""
    for gone_index in range(3):
        start_script()
        toy = Toy(Settings(num_blocks=30), part)
        for prompt in (A[:5], B[:5], A[2:6]):
            toy.add(prompt, max_tokens=4)
        toy.begin()
        gone = toy.requests[gone_index]
        toy.finish(gone)
        advanced = toy.take()
        here = [request for request in toy.requests if request is not gone]
        expect_equal(advanced, here, "the requests that update returns", why=GONE)
        expect_equal(gone.output_token_ids, [], f"the output of {gone.request_id}", why=GONE)
        toy.run()
        for request in here:
            expected = toy_output(request.token_ids[: request.num_prompt_tokens], 4)
            what = f"the output of {request.request_id}"
            expect_equal(request.output_token_ids, expected, what, why=GONE)


@graded("6.7")
def test_a_prefix_is_computed_once(part: Any) -> None:
    """What a step has computed can be shared once it is over: prompts whole or chunk by chunk."""
    for budget in (64, 5):
        start_script()
        toy = Toy(Settings(num_blocks=40, max_num_seqs=8, token_budget=budget), part)
        for _ in range(3):
            toy.add(A[:13], max_tokens=1)
        expect_right(toy, AT_ONCE)
        computed = toy.executor.num_computed
        what = f"tokens computed for three equal prompts of 13, with a budget of {budget}"
        expect_equal(computed, 13 + 1 + 1, what, why=AT_ONCE)


@graded("6.7")
def test_the_end_of_a_prompt_is_shared(part: Any) -> None:
    """A prompt whose last chunk is one token can be shared as soon as that is computed."""
    toy = Toy(Settings(num_blocks=40, token_budget=7), part)
    toy.add(A[:8], max_tokens=9)
    toy.step()
    toy.step()
    toy.add([*A[:8], 4], max_tokens=1)
    shares = ["r0: token 8, samples", "r1: token 8, samples"]
    expect_shares(toy.step(), shares, AT_ONCE, "the step after the prompt of r0 is complete")


@graded("6.7")
def test_a_chunk_is_shared(part: Any) -> None:
    """A chunk can be shared before the rest of its prompt is computed, even a chunk of two tokens."""
    toy = Toy(Settings(num_blocks=40, block_size=2, token_budget=3), part)
    toy.add(B[:1], max_tokens=9)
    toy.step()
    toy.add(A[:3], max_tokens=1)
    shares = ["r0: token 1, samples", "r1: tokens 0..1"]
    expect_shares(toy.step(), shares, AT_ONCE, "the step in which r1 comes")
    toy.add([*A[:2], 4], max_tokens=1)
    shares = ["r0: token 2, samples", "r1: token 2, samples", "r2: token 2, samples"]
    expect_shares(toy.step(), shares, AT_ONCE, "the step in which r2 comes, which begins like r1")


@graded("6.7")
def test_a_chunk_behind_the_prompt_is_shared(part: Any) -> None:
    """Output that is computed again in chunks after a preemption can be shared chunk by chunk, too."""
    toy = Toy(Settings(num_blocks=6, token_budget=4), part)
    toy.add(A[:3], max_tokens=20)
    (victim,) = toy.add(B[:2], max_tokens=20)
    until_preempted(toy)
    toy.finish(toy.requests[0])
    note("all cached blocks are evicted")
    toy.cache.reset_prefix_cache()
    toy.step()
    toy.step()
    what = "cached tokens after r1 has computed 8 tokens again, of which 2 are its prompt"
    expect_equal(cached(toy, victim.token_ids[:8]), 8, what, why=AT_ONCE)
    toy.add([*victim.token_ids[:8], 4], max_tokens=1)
    last = victim.num_tokens - 1
    shares = [f"r1: tokens 8..{last}, samples", "r2: token 8, samples"]
    expect_shares(toy.step(), shares, AT_ONCE, "the step in which r2 comes, which begins like r1")


@graded("6.7")
def test_an_answer_is_kept(part: Any) -> None:
    """What an ended request has computed is cached, its output too."""
    toy = Toy(Settings(), part)
    (first,) = toy.add(A[:7], max_tokens=6)
    toy.run()
    (second,) = toy.add([*first.token_ids, 1, 2])
    toy.run()
    why = (
        "The next turn of a conversation begins with this answer, so its blocks are worth keeping."
    )
    expect_equal(second.num_cached_tokens, 12, "cached tokens of the second turn", why=why)


@graded("6.7")
def test_a_failed_request_is_not_kept(part: Any) -> None:
    """Nothing that a failed request computed is offered to others."""
    toy = Toy(Settings(), part)
    (request,) = toy.add(A[:3], max_tokens=12)
    for _ in range(8):
        toy.step()
    again = Request("again", list(request.token_ids), SamplingParams())
    filed = toy.cache.cached_tokens(again)
    toy.finish(request, FinishReason.ERROR)
    expect(
        toy.cache.cached_tokens(again) <= filed,
        "what a failed request computed is filed in the cache as it ends",
        why="K and V of a step that went wrong may be wrong: `free` with keep=False.",
    )
    (request,) = toy.add(B[:9], max_tokens=9)
    toy.step()
    cached = toy.cache.stats()["cached_blocks"]
    toy.finish(request, FinishReason.ABORT)
    expect(
        toy.cache.stats()["cached_blocks"] > cached, "an aborted request's blocks are not cached",
        why="A client that leaves has not made the K and V wrong.",
    )  # fmt: skip


@graded("6.7")
def test_how_it_ended(part: Any) -> None:
    """finish sets status and reason once; a second finish is harmless and changes neither."""
    toy = Toy(Settings(), part)
    (request,) = toy.add(A[:5])
    (other,) = toy.add(B[:5], max_tokens=9)
    toy.step()
    expect_equal(request.status, RequestStatus.FINISHED, "the status of r0")
    expect_equal(request.finish_reason, FinishReason.LENGTH, "the finish reason of r0")
    toy.finish(request, FinishReason.ABORT)
    expect_equal(
        request.finish_reason, FinishReason.LENGTH, "its finish reason after a second finish",
        why="A client may leave at the moment in which its answer is complete. The first reason stands.",
    )  # fmt: skip
    expect_equal(other.status, RequestStatus.RUNNING, "the status of r1, which has not ended")
    expect_right(toy, "The second finish must not touch another request.")


@graded("6.7")
def test_the_right_one_of_many(part: Any) -> None:
    """Of many that run or wait, the one that is ended is the one that was meant."""
    for index in range(6):
        start_script()
        toy = Toy(Settings(num_blocks=40, max_num_seqs=4, policy="priority"), part)
        for priority in (1, 0, 2, 0, 1, 3):
            toy.add([priority, 1, 2], max_tokens=3, priority=priority)
        toy.step()
        gone = toy.requests[index]
        toy.finish(gone)
        toy.run()
        for request in toy.requests:
            reason = FinishReason.ABORT if request is gone else FinishReason.LENGTH
            what = f"how {request.request_id} ends, when {gone.request_id} is aborted"
            expect_equal(request.finish_reason, reason, what, why=GIVEN_BACK)


@graded("6.7")
def test_abort_at_any_point(part: Any) -> None:
    """An aborted request gives everything back: while it waits, between chunks, and as it decodes."""
    for steps in range(6):
        start_script()
        toy = Toy(Settings(token_budget=4), part)
        (request,) = toy.add(A[:10], max_tokens=9)
        for _ in range(steps):
            toy.step()
        toy.finish(request)
        expect_equal(toy.scheduler.num_running, 0, "num_running", why=GIVEN_BACK)
        expect_equal(toy.scheduler.num_waiting, 0, "num_waiting", why=GIVEN_BACK)
        expect_all_free(toy)


@graded("6.7")
def test_abort_after_a_preemption(part: Any) -> None:
    """A preempted request can be aborted: it leaves the queue, and the host pool too."""
    for num_host_blocks in (0, 16):
        start_script()
        toy = crowd(part, num_host_blocks)
        for victim in until_preempted(toy):
            toy.finish(victim)
        expect_equal(toy.scheduler.num_waiting, 0, "num_waiting", why=GIVEN_BACK)
        free = toy.blocks.num_free_host
        expect_equal(free, num_host_blocks, "free host blocks", why=GIVEN_BACK)
        toy.run()
        expected = toy.expected()[0]
        expect_equal(toy.requests[0].output_token_ids, expected, "the output of r0", why=GIVEN_BACK)
        expect_all_free(toy)


@graded("6.7")
def test_the_last_of_a_static_batch(part: Any) -> None:
    """When the last request of a static batch ends, all rows of the batch are dropped."""
    if part.StaticScheduler is None:
        return  # it does not build on the stub's methods
    toy = Toy(Settings(static=True), part)
    toy.add(A[:5], max_tokens=1)
    toy.add(B[:5], max_tokens=3)
    expect_right(toy, GIVEN_BACK)
    expect_all_free(toy)


def expect_all_free(toy: Toy) -> None:
    """All have ended, and once the cache is emptied every block is free."""
    toy.cache.reset_prefix_cache()
    free, total = toy.blocks.num_free, toy.settings.num_blocks
    expect_equal(free, total, "free blocks of the empty engine", why=GIVEN_BACK)


@graded("6.7")
def test_any_life(part: Any) -> None:
    """Requests end and are aborted, between steps or in flight: the others go on, and nothing leaks."""
    play_any(part, any_settings(most_drafts=3), 60, most_siblings=2)
