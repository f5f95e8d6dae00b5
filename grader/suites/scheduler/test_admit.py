"""Task 6.6: which requests are admitted, and when."""

from typing import Any

from grader.kit import expect, expect_equal, note, start_script
from grader.kit.toy import Settings, Toy
from grader.kit.toy_scripts import any_settings
from grader.kit.work import count_lines
from grader.suites.scheduler.asked import ASKED
from grader.suites.scheduler.bench import (
    A,
    B,
    crowd,
    expect_right,
    expect_shares,
    play_any,
    the_preempted,
)
from grader.suites.scheduler.parts import graded
from yaie.core.batch import StepPlan
from yaie.core.request import FinishReason

ONE_STEP = (
    "What a step computes can be shared once its result is there. A request that waits that long takes "
    "it over; one that does not computes it a second time."
)
WHOLE = (
    "Room is asked for the whole sequence, though only its first chunk takes it now: a request that is "
    "admitted and cannot be finished is only preempted later."
)


@graded("6.6")
def test_as_many_as_fit_the_budget(part: Any) -> None:
    """The queue moves up in its order until the budget of the step is used up."""
    toy = Toy(Settings(token_budget=10), part)
    for prompt in (A[:5], B[:4], A[1:7], B[2:5]):
        toy.add(prompt, max_tokens=2)
    why = "One request after the other is admitted; the last one gets a chunk of what is left."
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


@graded("6.6")
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


@graded("6.6")
def test_one_that_waits_for_its_last_token_still_runs(part: Any) -> None:
    """A request that waits for its last token runs until it ends, though no step schedules it."""
    toy = Toy(Settings(max_num_seqs=1), part)
    toy.add(A[:6], max_tokens=1)
    toy.begin()
    toy.add(B[:5], max_tokens=1)
    why = (
        "r0 runs until its last token is read, and holds its blocks as long. How many run is not how "
        "many this step schedules."
    )
    expect_shares(toy.begin(), [], why, "the step while r0's last token is in flight")


@graded("6.6")
def test_rows_of_a_static_batch(part: Any) -> None:
    """In a static batch the rows of requests that have ended are taken (`_num_rows`)."""
    if part.StaticScheduler is None:
        return  # it does not build on the stub's methods
    toy = Toy(Settings(static=True, max_num_seqs=2, token_budget=6), part)
    toy.add(A[:5], max_tokens=1)
    toy.add(B[:6], max_tokens=2)
    toy.add([4, 4], max_tokens=1)
    toy.step()
    shares = ["r0: token 5, samples", "r1: tokens 1..5, samples"]
    why = (
        "r0 has ended, and its row is computed to the end of the batch: both rows are taken. Count "
        "`_num_rows`, which static batching overrides; `len(self._running)` leaves those rows out."
    )
    expect_shares(unchecked(toy), shares, why, "the second step of a static batch of two rows")


def unchecked(toy: Toy) -> StepPlan:
    """The next plan, before the checks that hold for every plan."""
    with toy.told("plan = toy.scheduler.schedule()"):
        return toy.scheduler.schedule()


@graded("6.6")
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


@graded("6.6")
def test_a_prefix_that_is_being_computed(part: Any) -> None:
    """A request that needs a prefix which this step computes waits for it, one step and no longer."""
    toy = Toy(Settings(), part)
    toy.add(A[:9], max_tokens=6)
    toy.add(A[:9], max_tokens=1)
    expect_shares(toy.step(), ["r0: tokens 0..8, samples"], ONE_STEP, "the first step")
    shares = ["r0: token 9, samples", "r1: token 8, samples"]
    expect_shares(toy.step(), shares, ONE_STEP, "the second step")


@graded("6.6")
def test_a_prefix_in_flight(part: Any) -> None:
    """It waits as well while the step that computes its prefix is in flight, and no other is planned."""
    toy = Toy(Settings(), part)
    toy.add(A[:9], max_tokens=1)
    toy.begin()
    toy.add([*A[:9], 4], max_tokens=1)
    plan, made = toy.begin(), ASKED.made("cache.is_pending")
    unasked = made is not None and "schedule" not in made
    why = "`cache.is_pending(r1)` was not asked in this step. " * unasked + ONE_STEP
    expect_shares(plan, [], why, "the step while r0's prompt is in flight")
    toy.take()
    shares = ["r1: tokens 8..9, samples"]
    expect_shares(toy.begin(), shares, ONE_STEP, "the step after the result")


@graded("6.6")
def test_a_request_preempted_in_flight(part: Any) -> None:
    """A request that was preempted while its step was in flight comes back when its token is known."""
    for num_host_blocks in (0, 16):
        start_script()
        toy = crowd(part, num_host_blocks, ahead=2, prefix_caching=False)
        victim = the_preempted(toy)
        why = (
            "The step in flight samples a token of r1. To compute r1 again that token is needed, and "
            "control has not read it yet."
        )
        toy.finish(toy.requests[0])
        plan = toy.begin()
        expect_shares(plan, [], why, "the step while r1's token is unread")
        waits = "It can go on as soon as the result is there. Only what no step could run fails."
        expect_equal(plan.failed, [], "the failed requests of that step", why=waits)
        toy.run()
        expected = toy.expected()[1]
        expect_equal(victim.output_token_ids, expected, "the output of r1", why=why)


@graded("6.6")
def test_a_chunk_preempted_in_flight(part: Any) -> None:
    """A request preempted with a chunk in flight waits for that step, though it samples nothing."""
    toy = Toy(Settings(num_blocks=5, token_budget=8, policy="priority"), part)
    toy.add(A[:7], max_tokens=9, priority=0)
    toy.step()
    toy.add(B[:12], max_tokens=2, priority=1)
    toy.begin()
    while toy.alive and not toy.begin().preempted:
        toy.take()
    toy.finish(toy.requests[0])
    why = (
        "r1's chunk is in flight until its result is there. num_in_flight says so; "
        "num_output_placeholders does not, since a chunk samples no token."
    )
    expect_shares(toy.begin(), [], why, "the step while r1's chunk is in flight")
    expect_right_end(toy, why)


def expect_right_end(toy: Toy, why: str) -> None:
    """The last request's output, when all have ended."""
    toy.run()
    output = toy.requests[-1].output_token_ids
    expect_equal(output, toy.expected()[-1], "the output of r1", why=why)


@graded("6.6")
def test_preempted_requests_wait_for_a_prefix_too(part: Any) -> None:
    """Of two that come back with one prefix the second waits until the first has computed it."""
    toy = Toy(Settings(num_blocks=7, token_budget=32), part)
    toy.add(A[:9], max_tokens=12)
    toy.add(B[:9], max_tokens=12)
    (second,) = toy.add(B[:9], max_tokens=12)
    while toy.alive and not toy.requests[1].num_preemptions:
        toy.step()
    toy.finish(toy.requests[0])
    note("toy.cache.reset_prefix_cache()")
    toy.cache.reset_prefix_cache()
    shares = [f"r1: tokens 0..{toy.requests[1].num_tokens - 1}, samples"]
    expect_shares(toy.step(), shares, ONE_STEP, "the step in which r1 and r2 could come back")
    expect_equal(second.num_preemptions, 1, "preemptions of r2, which begins like r1")


@graded("6.6")
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


@graded("6.6")
def test_a_prompt_that_no_pool_could_hold(part: Any) -> None:
    """A request that does not fit the empty pool fails at once, with an error, and the queue goes on."""
    toy = Toy(Settings(num_blocks=4), part)
    (too_long,) = toy.add(A[:17])
    (other,) = toy.add(B[:16])
    plan = toy.step()
    why = "No request runs that could give blocks back. The plan reports it, or the engine would hang."
    expect_equal(plan.failed, [too_long], "the plan's failed requests", why=why)
    expect_equal(too_long.finish_reason, FinishReason.ERROR, "how r0 ends", why=why)
    expect(bool(too_long.error), f"the error says {too_long.error!r}: the client is not told why")
    toy.run()
    expect_equal(other.finish_reason, FinishReason.LENGTH, "how r1 ends, which fits", why=why)


@graded("6.6")
def test_a_prompt_that_no_budget_could_take(part: Any) -> None:
    """Without chunks a prompt longer than the budget fails once none runs; the queue goes on."""
    toy = Toy(Settings(token_budget=12, chunked_prefill=False), part)
    (too_long,) = toy.add(A[1:14])
    (other,) = toy.add(B[:3])
    toy.run()
    why = "No step will ever have room for it; to wait would block the queue for ever."
    expect_equal(too_long.finish_reason, FinishReason.ERROR, "how the prompt of 13 ends", why=why)
    expect_equal(other.finish_reason, FinishReason.LENGTH, "how the prompt behind it ends", why=why)


@graded("6.6")
def test_no_room_beside_one_that_waits(part: Any) -> None:
    """A request fails only if none runs: one that waits for its last token soon gives blocks back."""
    toy = Toy(Settings(num_blocks=4), part)
    toy.add(A[:6], max_tokens=1)
    toy.begin()
    (large,) = toy.add(B[:12], max_tokens=1)
    plan = toy.begin()
    why = (
        "r1 needs 3 of 4 blocks, and r0 still holds 2. r0 runs, though this step schedules nothing: "
        "whether none runs is not whether the plan is empty."
    )
    expect_equal(plan.failed, [], "the plan's failed requests", why=why)
    toy.run()
    expect_equal(large.finish_reason, FinishReason.LENGTH, "how r1 ends", why=why)


@graded("6.6")
def test_waiting_requests_cost_nothing(part: Any) -> None:
    """A step costs the same whether 20 wait or 1000."""

    def cost(num_waiting: int) -> int:
        toy = Toy(Settings(num_blocks=400, max_num_seqs=4), part)
        for i in range(num_waiting):
            (request,) = toy.make([4, i % 5, i, i], max_tokens=1000)
            toy.scheduler.add(request)  # without a line of the script for each
        start_script()
        return count_lines(toy.scheduler.schedule)

    few, many = cost(20), cost(1000)
    start_script()
    expect(
        many <= 1.5 * few + 100,
        f"a step runs {few} lines of Python when 20 wait, and {many} when 1000 do",
        why="The policy says which request is next; to look at all that wait is a scan in every step.",
    )


@graded("6.6")
def test_any_life(part: Any) -> None:
    """Whatever arrives and crowds the pool: every step serves a request, and the tokens are right."""
    play_any(part, any_settings(), 40, most_siblings=2)
