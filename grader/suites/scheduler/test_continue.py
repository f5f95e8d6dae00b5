"""Task 6.4: a step, and the share of those that run."""

import traceback
from typing import Any

from grader.kit import Fault, expect, expect_equal, note, start_script
from grader.kit.toy import Settings, Toy
from grader.kit.toy_cache import CacheMisuse
from grader.suites.scheduler.bench import (
    A,
    B,
    crowd,
    expect_right,
    expect_shares,
)
from grader.suites.scheduler.parts import graded
from yaie.core.batch import StepPlan
from yaie.core.request import Request, RequestStatus

ONE_RULE = (
    "A request computes the tokens that have no K and V yet, from num_computed_tokens on. That is the "
    "whole prompt at first, and later the one token that was sampled last."
)
CHUNK = (
    "A chunk ends where the budget does; its blocks and keys end there as well, not at the end of the "
    "prompt."
)
DECODES_FIRST = (
    "A decode costs a single token and a client waits for it. A long prompt may take all that is left, "
    "but if it takes the decodes' tokens too, every answer pauses until it is computed."
)


@graded("6.4")
def test_nothing_to_do(part: Any) -> None:
    """Without work the plan is empty."""
    plan = Toy(Settings(), part).step()
    expect(plan == StepPlan(), f"the plan of an idle engine is {plan}")


@graded("6.4")
def test_a_prompt_then_one_token_a_step(part: Any) -> None:
    """A request computes its prompt in one step, and then the token that it sampled last."""
    toy = Toy(Settings(), part)
    toy.add(A[:6], max_tokens=3)
    for shares in (
        ["r0: tokens 0..5, samples"],
        ["r0: token 6, samples"],
        ["r0: token 7, samples"],
    ):
        expect_shares(toy.step(), shares, ONE_RULE)
    expect_equal(toy.scheduler.num_running, 0, "num_running at the end")


@graded("6.4")
def test_a_chunk_ends_where_the_budget_does(part: Any) -> None:
    """A prompt longer than the budget is computed in chunks, and samples only at its end."""
    toy = Toy(Settings(token_budget=4), part)
    toy.add(A[:10], max_tokens=2)
    for shares in (
        ["r0: tokens 0..3"],
        ["r0: tokens 4..7"],
        ["r0: tokens 8..9, samples"],
        ["r0: token 10, samples"],
    ):
        expect_shares(toy.step(), shares, CHUNK)


@graded("6.4")
def test_the_last_token_of_the_budget(part: Any) -> None:
    """A budget of one token is enough to go on: for a prompt token by token, and for a decode."""
    toy = Toy(Settings(token_budget=1), part)
    toy.add(A[:2], max_tokens=2)
    for shares in (["r0: token 0"], ["r0: token 1, samples"], ["r0: token 2, samples"]):
        expect_shares(toy.step(), shares, "What is left of the budget is used to its last token.")


@graded("6.4")
def test_the_budget_may_change_between_two_steps(part: Any) -> None:
    """A step keeps to the `token_budget` that was set last."""
    toy = Toy(Settings(token_budget=8), part)
    toy.add(A[:10], max_tokens=2)
    for budget, shares in (
        (4, ["r0: tokens 0..3"]),
        (1, ["r0: token 4"]),
        (8, ["r0: tokens 5..9, samples"]),
    ):
        toy.scheduler.token_budget = budget
        expect_shares(toy.step(), shares, "The engine sets token_budget before a step.")


@graded("6.4")
def test_prefill_and_decode_share_a_step(part: Any) -> None:
    """Requests that run go first; what they leave of the budget goes to the queue."""
    toy = Toy(Settings(token_budget=5), part)
    toy.add(A[:4], max_tokens=5)
    toy.step()
    toy.add(B[:7], max_tokens=2)
    why = "A decode costs one token of the budget, and a chunk as many as it computes."
    expect_shares(toy.step(), ["r0: token 4, samples", "r1: tokens 0..3"], why, "the second step")
    shares = ["r0: token 5, samples", "r1: tokens 4..6, samples"]
    expect_shares(toy.step(), shares, why, "the third step")
    shares = ["r0: token 6, samples", "r1: token 7, samples"]
    expect_shares(toy.step(), shares, why, "the fourth step")


@graded("6.4")
def test_decodes_come_before_chunks(part: Any) -> None:
    """Running decodes have their token before a prompt has a chunk, however urgent the prompt is."""
    for policy in ("priority", "lpm"):
        start_script()
        toy = Toy(Settings(token_budget=4, num_blocks=30, policy=policy), part)
        toy.add(A[:2], max_tokens=9, priority=1)
        toy.step()
        (long,) = toy.add(B[:12], max_tokens=9)
        note("r1.arrival = -1")
        long.arrival = -1  # ranks first under both policies
        for number, tokens in enumerate((2, 3, 4, 5)):
            shares = [f"r0: token {tokens}, samples"]
            last = min(3 * number + 2, 11)
            shares += [f"r1: tokens {3 * number}..{last}{', samples' * (last == 11)}"]
            expect_shares(toy.step(), shares, DECODES_FIRST, f"step {number + 2}, {policy}")
        expect_right(toy, DECODES_FIRST)


@graded("6.4")
def test_chunks_get_what_decodes_leave(part: Any) -> None:
    """The budget is shared to its last token: decodes first, then the chunk, in the same step."""
    toy = Toy(Settings(token_budget=6, num_blocks=30, policy="priority"), part)
    toy.add(B[:11], max_tokens=2, priority=0)
    toy.step()
    toy.add([4], max_tokens=9, priority=1)
    toy.add([3], max_tokens=9, priority=2)
    why = (
        "The prompt is the first in rank, so the others come in once it leaves some of the budget."
    )
    shares = ["r0: tokens 6..10, samples", "r1: token 0, samples"]
    expect_shares(toy.step(), shares, why, "the second step")
    toy.add(A[:12], max_tokens=2, priority=-1)
    shares = ["r0: token 11, samples", "r1: token 1, samples", "r3: tokens 0..3"]
    expect_shares(toy.step(), shares, DECODES_FIRST, "the third step")
    shares = ["r1: token 2, samples", "r3: tokens 4..8"]
    expect_shares(toy.step(), shares, DECODES_FIRST, "the fourth step")


@graded("6.4")
def test_decodes_go_by_rank(part: Any) -> None:
    """When more requests want a single token than the budget has, the first in rank are served."""
    toy = Toy(Settings(token_budget=2, num_blocks=30, policy="priority"), part)
    for priority in (2, 3):
        toy.add([priority], max_tokens=20, priority=priority)
    toy.step()
    drafts = {request: [4, 4] for request in toy.requests}
    toy.begin(drafts)
    for priority in (4, 1):
        toy.add([priority], max_tokens=20, priority=priority)
    toy.begin()
    toy.take()
    toy.take()
    why = "All four run and want one token each, of which the budget has two: r3 and r0 rank first."
    shares = ["r3: token 1, samples", tell_next(toy.requests[0])]
    expect_shares(toy.step(), shares, why, "the step after the drafts were verified")


def tell_next(request: Request) -> str:
    return f"{request.request_id}: token {request.num_computed_tokens}, samples"


@graded("6.4")
def test_single_tokens_stand_before_chunks(part: Any) -> None:
    """In the plan single tokens come first, also those of requests that are admitted behind a chunk."""
    toy = Toy(Settings(token_budget=16), part)
    toy.add(A[:9])
    toy.run()
    toy.add([3, 3], max_tokens=9)
    toy.step()
    toy.add(B[:7])
    toy.add(A[:9])
    names = [item.request.request_id for item in toy.step().scheduled]
    why = "r1 decodes and r3 finds all but one token cached; r2 computes its prompt. StepPlan says so."
    expect_equal(names, ["r1", "r3", "r2"], "the order of the plan", why=why)


@graded("6.4")
def test_the_next_step_is_planned_before_the_result(part: Any) -> None:
    """A request goes on behind a step in flight, with the unread token that this step samples."""
    toy = Toy(Settings(ahead=1), part)
    toy.add(A[:6], max_tokens=4)
    unread = (
        "num_tokens counts the tokens that steps in flight sample. The worker has them already; only "
        "this side has not read them."
    )
    third = "The token in flight is its third of four: it has one more to sample, and goes on."
    for number, shares, why in (
        (1, "r0: tokens 0..5, samples", ONE_RULE),
        (2, "r0: token 6, samples", unread),
        (3, "r0: token 7, samples", unread),
        (4, "r0: token 8, samples", third),
    ):
        expect_shares(toy.step(), [shares], why, f"the shares of step {number}")
    expect_right(toy, ONE_RULE)


@graded("6.4")
def test_a_last_token_in_flight_is_waited_for(part: Any) -> None:
    """A request whose unread token is the last of its max_tokens is not scheduled again."""
    for count in (1, 2, 3):
        start_script()
        toy = Toy(Settings(), part)
        toy.add(A[:6], max_tokens=count)
        toy.add(B[:6], max_tokens=9)
        for number in range(count):
            shares = [f"r{i}: token {5 + number}, samples" for i in (0, 1)]
            plan = toy.begin()
            if number:
                expect_shares(plan, shares, ONE_RULE, f"step {number + 1}")
                toy.take()
        expect_shares(
            toy.begin(), [f"r1: token {5 + count}, samples"],
            f"The step in flight samples token {count} of {count} of r0. With it r0 ends, whatever the "
            "token is: what another step computes for it is thrown away.",
            "the step after that",
        )  # fmt: skip
        expect_right(toy, ONE_RULE)


@graded("6.4")
def test_one_that_waits_takes_nothing_of_the_budget(part: Any) -> None:
    """A request that waits for its last token leaves its token of the budget to the others."""
    toy = Toy(Settings(token_budget=4), part)
    toy.add([3], max_tokens=1)
    toy.add(B[:12], max_tokens=1)
    toy.begin()
    expect_shares(
        toy.begin(), ["r1: tokens 3..6"],
        "r0 waits for its last token and computes nothing, so all 4 tokens of the budget are r1's. One "
        "is set aside for each request that wants exactly one, not for one that wants none.",
        "the step while r0's last token is in flight",
    )  # fmt: skip


@graded("6.4")
def test_drafts_in_flight_are_waited_for(part: Any) -> None:
    """A request whose drafts are being verified is not scheduled before the result is known."""
    toy = Toy(Settings(), part)
    (request,) = toy.add(A[:6], max_tokens=20)
    toy.add(B[:6], max_tokens=20)
    toy.step()
    toy.begin({request: [0, 0]})
    why = "Only the result says how many of the two drafts are right, and so where r0 goes on."
    expect_shares(
        toy.begin(), ["r1: token 7, samples"], why, "the step while r0's drafts are verified"
    )
    toy.take()
    share = tell_next(request)
    expect_shares(toy.begin(), [share, "r1: token 8, samples"], why, "the step after the result")
    expect_right(toy, why)


@graded("6.4")
def test_who_gives_way_has_no_share(part: Any) -> None:
    """A request that is preempted in a step gets no share of it."""
    toy = Toy(Settings(num_blocks=2, prefix_caching=False), part)
    toy.add(A[:4], max_tokens=3)
    (victim,) = toy.add(B[:4], max_tokens=3)
    toy.step()
    why = (
        "r1 lost its blocks in this step, when room was made for r0. Its own turn comes after that: "
        "look at its status then."
    )
    try:
        plan = toy.step()
    except CacheMisuse as error:
        if victim.status is RequestStatus.RUNNING or "allocate(r1)" not in str(error):
            raise
        raise Fault(f"schedule asks for {error}", why=why, line=line_of(error)) from error
    expect_shares(plan, ["r0: token 4, samples"], why, "the step in which r0 needs r1's block")


def line_of(error: Exception) -> tuple[str, int] | None:
    """The learner's line that an error came through last."""
    walk = list(traceback.walk_tb(error.__traceback__))
    own = [
        (frame.f_code.co_filename, line)
        for frame, line in walk
        if str(frame.f_globals.get("__name__")).startswith("labs.")
    ]
    return own[-1] if own else None


@graded("6.4")
def test_moves_are_in_the_plan(part: Any) -> None:
    """The plan carries the block moves that the cache has promised: to the host, back, and copies."""
    why = "take_moves hands over what must be copied before the step; only the plan can pass it on."
    toy = crowd(part, num_host_blocks=16, prefix_caching=False)
    plan = toy.step()
    while toy.alive and not plan.preempted:
        plan = toy.step()
    expect_equal(len(plan.swap_out), 3, "blocks that go to the host with r1", why=why)
    expect_right(toy, why)
    forks = Toy(Settings(), part)
    forks.add(A[:6], max_tokens=4, n=2)
    forks.step()
    expect_equal(len(forks.step().copies), 1, "blocks copied for a sibling", why=why)
    expect_right(forks, why)
