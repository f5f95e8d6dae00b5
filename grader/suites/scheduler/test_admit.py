"""Task 6.5: which requests are let in, when, and with how many tokens."""

from typing import Any

from grader.kit import expect, expect_equal, start_script
from grader.kit.toy import Settings, Toy
from grader.kit.toy_scripts import any_settings
from grader.kit.work import count_lines
from grader.suites.scheduler.bench import (
    A,
    B,
    crowd,
    expect_right,
    expect_shares,
    play_any,
    until_preempted,
)
from grader.suites.scheduler.parts import graded
from yaie.core.request import FinishReason, RequestStatus

ONE_STEP = (
    "What a step computes can be shared once its result is there. A request that waits that long takes "
    "it over; one that does not computes it a second time."
)
WHOLE = (
    "Room is asked for the whole sequence, though only its first chunk takes it now: a request that is "
    "admitted and cannot be finished is only preempted later."
)


@graded("6.5")
def test_as_many_as_fit_the_budget(part: Any) -> None:
    """The queue moves up in its order until the budget of the step is used up."""
    toy = Toy(Settings(token_budget=10), part)
    for prompt in (A[:5], B[:4], A[1:7], B[2:5]):
        toy.add(prompt, max_tokens=2)
    why = "One request after the other is let in; the last one gets a chunk of what is left."
    shares = ["r0: tokens 0..4, samples", "r1: tokens 0..3, samples", "r2: token 0"]
    expect_shares(toy.step(), shares, why, "the first step")
    expect_equal((toy.scheduler.num_running, toy.scheduler.num_waiting), (3, 1), "running, waiting")
    shares = [
        "r0: token 5, samples",
        "r1: token 4, samples",
        "r2: tokens 1..5, samples",
        "r3: tokens 0..2, samples",
    ]
    expect_shares(toy.step(), shares, why, "the second step")


@graded("6.5")
def test_no_more_than_max_num_seqs(part: Any) -> None:
    """No more than max_num_seqs run; when one ends, the next comes in with the next step."""
    toy = Toy(Settings(max_num_seqs=2), part)
    toy.add(A[:2], max_tokens=1)
    toy.add(A[:3], max_tokens=9)
    toy.add(B[:3], max_tokens=1)
    why = "Continuous batching: a request does not wait for the others of a batch to end."
    shares = ["r0: tokens 0..1, samples", "r1: tokens 0..2, samples"]
    expect_shares(toy.step(), shares, "Two requests run at once.", "the first step")
    shares = ["r1: token 3, samples", "r2: tokens 0..2, samples"]
    expect_shares(toy.step(), shares, why, "the step after r0 has ended")


@graded("6.5")
def test_the_budget_counts_what_is_computed(part: Any) -> None:
    """Cached tokens cost nothing of the budget, and of a cached prompt the last token is computed."""
    toy = Toy(Settings(token_budget=9), part)
    toy.add(A[:9])
    toy.run()
    toy.add([*A[:8], 4, 4, 4])
    toy.add(B[:5])
    shares = ["r1: tokens 8..10, samples", "r2: tokens 0..4, samples"]
    why = "The budget is there for tokens that are computed in this step, not for those of the prompt."
    expect_shares(toy.step(), shares, why, "a prompt of which 8 tokens are cached, and another")
    toy.add(A[:9], max_tokens=2)
    why = "A request that finds its whole prompt cached still needs the logits of the last token."
    expect_shares(toy.step(), ["r3: token 8, samples"], why, "a prompt that was computed before")


@graded("6.5")
def test_a_prefix_that_is_being_computed(part: Any) -> None:
    """A request that needs a prefix which this step computes waits for it, one step and no longer."""
    toy = Toy(Settings(), part)
    toy.add(A[:9], max_tokens=6)
    toy.add(A[:9], max_tokens=1)
    expect_shares(toy.step(), ["r0: tokens 0..8, samples"], ONE_STEP, "the first step")
    shares = ["r0: token 9, samples", "r1: token 8, samples"]
    expect_shares(toy.step(), shares, ONE_STEP, "the second step")


@graded("6.5")
def test_a_prefix_in_flight(part: Any) -> None:
    """It waits as well while the step that computes its prefix is in flight, even if no other runs."""
    toy = Toy(Settings(), part)
    toy.add(A[:9], max_tokens=1)
    toy.begin()
    toy.add([*A[:9], 4], max_tokens=1)
    expect_shares(toy.begin(), [], ONE_STEP, "the step while r0's prompt is in flight")
    toy.take()
    shares = ["r1: tokens 8..9, samples"]
    expect_shares(toy.begin(), shares, ONE_STEP, "the step after the result")


@graded("6.5")
def test_a_request_preempted_in_flight(part: Any) -> None:
    """A request that was preempted while its step was in flight comes back when its token is known."""
    for num_host_blocks in (0, 16):
        start_script()
        toy = crowd(part, num_host_blocks, ahead=2, prefix_caching=False)
        (victim,) = until_preempted(toy)
        why = (
            "The step in flight draws a token of r1. To compute r1 again that token is needed, and "
            "control has not read it yet."
        )
        toy.finish(toy.requests[0])
        plan = toy.begin()
        expect_shares(plan, [], why, "the step while r1's token is unread")
        toy.run()
        expected = toy.expected()[1]
        expect_equal(victim.output_token_ids, expected, "the output of r1", why=why)


@graded("6.5")
def test_no_request_overtakes(part: Any) -> None:
    """If the next in the queue does not fit, those behind it wait as well."""
    toy = Toy(Settings(num_blocks=6), part)
    toy.add(A[:9], max_tokens=3)
    toy.step()
    toy.add(B[:16], max_tokens=1)
    toy.add([4], max_tokens=1)
    shares = ["r0: token 9, samples"]
    why = "Small requests that slip past would keep a large one waiting for ever."
    expect_shares(toy.step(), shares, why, "the step in which r1 needs 4 blocks and 3 are free")
    expect_right(toy, why)


@graded("6.5")
def test_a_request_that_is_not_admitted_holds_nothing(part: Any) -> None:
    """A request for which there is no room leaves no trace: no blocks, no computed tokens."""
    toy = Toy(Settings(num_blocks=6), part)
    toy.add(A[:8], max_tokens=8)
    toy.step()
    (large,) = toy.add([*A[:4], *B[:16]], max_tokens=1)
    toy.step()
    why = "To look for room its table was started with the cached prefix; `free` undoes `admit`."
    expect_equal(toy.cache.block_table(large), [], "the block table of r1, which waits", why=why)
    expect_equal(large.num_computed_tokens, 0, "num_computed_tokens of r1, which waits", why=why)
    expect_equal(large.status, RequestStatus.WAITING, "the status of r1", why=why)


@graded("6.5")
def test_room_for_the_whole_sequence(part: Any) -> None:
    """A long prompt is let in when all of it fits, not when its first chunk does."""
    toy = Toy(Settings(num_blocks=6, token_budget=4), part)
    toy.add(A[:12], max_tokens=4)
    (long,) = toy.add(B[:16], max_tokens=4)
    for _ in range(4):
        toy.step()
    expect_equal(long.status, RequestStatus.WAITING, "the status of r1, while r0 runs", why=WHOLE)
    expect_right(toy, WHOLE)
    expect_equal(long.num_preemptions, 0, "preemptions of r1", why=WHOLE)


@graded("6.5")
def test_room_is_counted_in_blocks(part: Any) -> None:
    """A prompt that just fits beside the others is let in, chunk by chunk or whole."""
    for budget in (3, 4, 5, 16):
        start_script()
        toy = Toy(Settings(num_blocks=5, token_budget=budget), part)
        toy.add([4], max_tokens=2)
        toy.add(B[:16], max_tokens=1)
        toy.step()
        expect_equal(
            toy.scheduler.num_running, 2, f"num_running with a budget of {budget}",
            why="r0 holds one of five blocks, and the 16 tokens of r1 need four: those that its chunk "
            "takes now and those that it takes later, none of them twice.",
        )  # fmt: skip


@graded("6.5")
def test_the_watermark(part: Any) -> None:
    """Beside others a request is let in only if `watermark` blocks stay free; alone it always may."""
    toy = Toy(Settings(num_blocks=6, watermark=2), part)
    toy.add(A[:9], max_tokens=2)
    toy.add(B[:5], max_tokens=2)
    toy.step()
    why = "r0 needs 3 of 6 blocks and r1 2: 1 would be left for both to grow into."
    expect_equal(toy.scheduler.num_running, 1, "num_running with a watermark of 2", why=why)
    close = Toy(Settings(num_blocks=6, watermark=1), part)
    for prompt in (A[:9], B[:5]):
        close.add(prompt, max_tokens=2)
    close.step()
    why = "r0 needs 3 of 6 blocks and r1 2: 1 is left, as many as the watermark."
    expect_equal(close.scheduler.num_running, 2, "num_running with a watermark of 1", why=why)
    alone = Toy(Settings(num_blocks=6, watermark=4), part)
    alone.add(A[:20], max_tokens=2)
    why = "With no other request running, there is none for which blocks must stay free."
    expect_shares(alone.step(), ["r0: tokens 0..15"], why, "a prompt of 5 blocks, alone")


@graded("6.5")
def test_without_chunks(part: Any) -> None:
    """Without chunked prefill a prompt waits until the budget takes it whole; if none can, it fails."""
    toy = Toy(Settings(token_budget=12, chunked_prefill=False), part)
    toy.add(A[:8], max_tokens=2)
    toy.add(B[:10], max_tokens=1)
    why = "There are no chunks: r1 needs 10 tokens of the budget at once."
    expect_shares(toy.step(), ["r0: tokens 0..7, samples"], why, "the first step")
    shares = ["r0: token 8, samples", "r1: tokens 0..9, samples"]
    expect_shares(toy.step(), shares, why, "the second step")
    (too_long,) = toy.add(A[1:14])
    (other,) = toy.add(B[:3])
    toy.run()
    why = "No step will ever have room for it; to wait would block the queue for ever."
    expect_equal(too_long.finish_reason, FinishReason.ERROR, "how the prompt of 13 ends", why=why)
    expect_equal(other.finish_reason, FinishReason.LENGTH, "how the prompt behind it ends", why=why)


@graded("6.5")
def test_a_prompt_that_no_pool_could_hold(part: Any) -> None:
    """A request that does not fit the empty pool fails at once, with an error, and the queue goes on."""
    toy = Toy(Settings(num_blocks=4), part)
    (too_long,) = toy.add(A[:17])
    (other,) = toy.add(B[:16])
    plan = toy.step()
    why = "No request runs that could give blocks back. The plan reports it, or the engine would hang."
    expect_equal(plan.failed, [too_long], "the plan's failed requests", why=why)
    expect_equal(too_long.finish_reason, FinishReason.ERROR, "how r0 ends", why=why)
    expect("17" in (too_long.error or ""), f"the error says {too_long.error!r}, not how long it is")
    toy.run()
    expect_equal(other.finish_reason, FinishReason.LENGTH, "how r1 ends, which fits", why=why)


@graded("6.5")
def test_a_recomputed_request_is_matched_anew(part: Any) -> None:
    """A request that comes back after a preemption starts from what the cache has now."""
    toy = crowd(part, prefix_caching=False)
    (victim,) = until_preempted(toy)
    victim.num_computed_tokens = 5  # as a scheduler may leave it: it is not read while it waits
    why = (
        "Its blocks are gone, whatever num_computed_tokens still says: only what `admit` finds counts. "
        "A stale count would have it read blocks that were never filled."
    )
    while victim.status is not RequestStatus.RUNNING and toy.alive:
        plan = toy.step()
        starts = [item.start for item in plan.scheduled if item.request is victim]
        expect(
            starts in ([], [0]), f"r1 goes on at position {starts}, with nothing cached", why=why
        )
    expect_right(toy, why)


@graded("6.5")
def test_a_swapped_request_goes_on_where_it_was(part: Any) -> None:
    """A request that was swapped out comes back through swap_in, and computes no token twice."""
    toy = crowd(part, num_host_blocks=16, prefix_caching=False)
    why = "Its K and V lie in the host pool: they are copied back, not computed again."
    expect_right(toy, why)
    expect_equal(toy.executor.num_computed, 2 * (9 + 11), "tokens computed for both", why=why)


@graded("6.5")
def test_running_requests_stand_in_order_of_rank(part: Any) -> None:
    """A new request takes its place among those that run by rank, not at the end."""
    toy = Toy(Settings(num_blocks=6, policy="priority"), part)
    toy.add(A[:5], max_tokens=12, priority=5)
    toy.step()
    toy.add(B[:5], max_tokens=12, priority=-1)
    toy.add(A[3:8], max_tokens=12, priority=0)
    preempted = [request.request_id for request in until_preempted(toy)]
    why = "The last in rank is preempted: that is r0, though it was let in first."
    expect_equal(preempted, ["r0"], "which request is preempted when blocks run out", why=why)


@graded("6.5")
def test_waiting_requests_cost_nothing(part: Any) -> None:
    """A step costs the same whether 20 wait or 1000."""

    def cost(num_waiting: int) -> int:
        toy = Toy(Settings(num_blocks=400, max_num_seqs=4), part)
        for i in range(num_waiting):
            toy.add([4, i % 5, i, i], max_tokens=1000)
        start_script()
        return count_lines(toy.scheduler.schedule)

    few, many = cost(20), cost(1000)
    start_script()
    expect(
        many <= 1.5 * few + 100,
        f"a step runs {few} lines of Python when 20 wait, and {many} when 1000 do",
        why="The policy says which request is next; to look at all that wait is a scan in every step.",
    )


@graded("6.5")
def test_any_life(part: Any) -> None:
    """Whatever arrives and crowds the pool: every step serves a request, and the tokens are right."""
    play_any(part, any_settings(), 60, most_siblings=2)
