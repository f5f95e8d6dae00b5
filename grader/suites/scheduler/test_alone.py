"""Task 6.7: a request that runs alone and has no room."""

from typing import Any

from grader.kit import expect, expect_equal, start_script
from grader.kit.toy import Settings, Toy
from grader.suites.scheduler.bench import A, B, expect_right, expect_shares
from grader.suites.scheduler.parts import graded
from yaie.core.request import FinishReason

RECOMPUTE, SWAP = 0, 16
ALONE = (
    "It runs alone, holds every block there is and needs one more: no other is left to preempt. That is "
    "an error of this one request, which the engine reports, and not of the engine."
)


@graded("6.7")
def test_alone_in_a_pool_that_is_too_small(part: Any) -> None:
    """A request that exhausts the pool alone ends with an error, and the queue moves on."""
    for num_host_blocks in (RECOMPUTE, SWAP):
        start_script()
        toy = Toy(Settings(num_blocks=6, num_host_blocks=num_host_blocks), part)
        (glutton,) = toy.add(A[:20], max_tokens=9)
        (other,) = toy.add(B[:9], max_tokens=3)
        toy.run()
        expect_equal(glutton.finish_reason, FinishReason.ERROR, "how r0 ends", why=ALONE)
        expect(bool(glutton.error), "r0 has failed without saying why", why=ALONE)
        expected = toy.expected()
        expect_equal(glutton.output_token_ids, expected[0][:5], "its output until then", why=ALONE)
        expect_equal(other.output_token_ids, expected[1], "the output of r1, behind it", why=ALONE)


@graded("6.7")
def test_a_failure_is_in_the_plan(part: Any) -> None:
    """The step in which the lone request fails says so in its plan."""
    toy = Toy(Settings(num_blocks=2), part)
    (glutton,) = toy.add(A[:8], max_tokens=9)
    toy.step()
    plan = toy.step()
    expect_equal(plan.failed, [glutton], "the plan's failed requests", why=ALONE)
    expect_equal(plan.preempted, [], "the plan's preempted requests", why=ALONE)


@graded("6.7")
def test_to_the_last_slot(part: Any) -> None:
    """A request may fill the pool: its last token is never computed, so 24 slots serve 25 tokens."""
    toy = Toy(Settings(num_blocks=6), part)
    toy.add(A[:20], max_tokens=5)
    expect_right(toy, ALONE)


@graded("6.7")
def test_alone_with_a_token_in_flight(part: Any) -> None:
    """A lone request without room does not fail before the tokens in flight are known."""
    toy = Toy(Settings(num_blocks=2), part)
    (request,) = toy.add(A[:8], max_tokens=9)
    toy.begin()
    plan = toy.begin()
    why = (
        "The token in flight may be the one that ends it: an end-of-sequence token, or the end of a "
        "stop string. It then never needs the room. It waits a step, and fails when it must go on."
    )
    expect_equal(plan.failed, [], "failed requests, while a token of r0 is in flight", why=why)
    expect_shares(plan, [], why, "the plan, while a token of r0 is in flight")
    toy.take()
    toy.take()
    expect_equal(toy.step().failed, [request], "failed requests of the step after that", why=ALONE)
    expect_equal(request.num_output_tokens, 1, "output tokens of r0", why=why)
