"""Task 6.4: the shares of those that run, when blocks run out on the way, and any lives."""

from typing import Any

from grader.kit import expect, expect_equal, start_script
from grader.kit.toy import Settings, Toy
from grader.kit.toy_scripts import any_settings
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

ONE_WALK = (
    "Room is made in one walk over those that run, by rank, for single tokens and chunks: the turn of "
    "the last in rank, which is preempted, has not come then. With two walks, single tokens first, a "
    "chunk can preempt a request whose token is in the plan already."
)
AGAIN = (
    "Neither the prompt's length nor whether there is output yet tells when a request samples: a "
    "preempted request has output and computes it again. It samples when its last token is computed."
)


@graded("6.4")
def test_a_chunk_preempts_a_decode(part: Any) -> None:
    """A request that gives way to a chunk has no share in that step, though it wants a single token."""
    toy = Toy(Settings(block_size=1, token_budget=4, policy="priority"), part)
    toy.add(A[:2], max_tokens=9, priority=1)
    toy.step()
    toy.add(B[:12], max_tokens=2, priority=0)
    for _ in range(3):
        toy.step()
    plan = toy.step()
    expect_equal(
        plan.preempted, [toy.requests[0]], "the requests that step 5 preempts", why=ONE_WALK
    )
    expect_shares(plan, ["r1: tokens 9..11, samples"], ONE_WALK, "step 5")
    expect_right(toy, ONE_WALK)


@graded("6.4")
def test_a_share_without_room_costs_nothing(part: Any) -> None:
    """What a request could not use for want of blocks is left of the budget, for the queue."""
    toy = Toy(Settings(num_blocks=2, token_budget=8), part)
    toy.add(A[:8], max_tokens=9)
    toy.step()
    toy.add(B[:8], max_tokens=1)
    expect_shares(
        toy.step(), ["r1: tokens 0..7, samples"],
        "r0 fills the pool alone, wants one more block, and fails. It computes nothing in this step, so "
        "the whole budget is left for r1.",
        "the step in which r0 fails",
    )  # fmt: skip


@graded("6.4")
def test_computing_again_samples_at_the_end(part: Any) -> None:
    """After a preemption prompt and output are computed again, in chunks too, and the end samples."""
    for budget in (5, 6, 9):  # a chunk ends among the output, and with 9 at the end of the prompt
        start_script()
        toy = crowd(part, token_budget=budget, prefix_caching=False)
        until_preempted(toy)
        victim = toy.requests[1]
        while victim.num_computed_tokens == 0:
            toy.step()
        end = victim.num_tokens - 1
        for start in range(budget, end + 1, budget):
            last = min(start + budget - 1, end)
            tokens = f"tokens {start}..{last}" if start < last else f"token {last}"
            share = f"r1: {tokens}{', samples' * (last == end)}"
            expect_shares(toy.step(), [share], AGAIN, "the shares after the preemption")
        expect_right(toy, AGAIN)


@graded("6.4")
def test_a_step_that_preempts_lets_no_request_in(part: Any) -> None:
    """A step that preempts a request admits none."""
    toy = crowd(part, max_num_seqs=2, policy="priority")
    toy.step()
    toy.add([0], max_tokens=3, priority=-1)
    until_preempted(toy)
    expect_equal(
        toy.scheduler.num_running, 1, "num_running after the step that preempts r1",
        why="The running requests have just been short of blocks: one that came in now would take those "
        "that are left, and cost another one its place in the next step.",
    )  # fmt: skip


@graded("6.4")
def test_a_share_has_the_table_itself(part: Any) -> None:
    """A share's block table is the list that the cache has, and no copy of it."""
    toy = Toy(Settings(), part)
    (request,) = toy.add(A[:9], max_tokens=4)
    toy.step()
    (item,) = toy.step().scheduled
    expect(
        item.block_table is toy.cache.block_table(request),
        "the block table of r0's share is another list than that of `cache.block_table`",
        why="A copy costs a long request's blocks in every step. And as long as a table is the same "
        "list, only its new tail is sent to the worker.",
    )


@graded("6.4")
def test_any_life(part: Any) -> None:
    """Whatever arrives, is chunked, shared or aborted: every step is within its limits, and the tokens
    are those of a model without a cache."""
    play_any(part, any_settings(most_drafts=2), 50)


@graded("6.4")
def test_any_life_with_siblings(part: Any) -> None:
    """The same with several outputs for one prompt."""
    play_any(part, any_settings(least_tokens=30, most_tokens=60), 30, most_siblings=3)
