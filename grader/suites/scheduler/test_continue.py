"""Task 6.4: a step, and the share of those that run."""

from typing import Any

from grader.kit import expect, expect_equal
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
from yaie.core.batch import StepPlan
from yaie.core.request import FinishReason

ONE_RULE = (
    "A request computes the tokens it knows and has no K and V for, from num_computed_tokens on. That "
    "is the whole prompt at first, and later the one token that was drawn last."
)
CHUNK = (
    "A chunk ends where the budget does; its blocks, slots and keys end there as well, not at the end "
    "of the prompt."
)


@graded("6.4")
def test_nothing_to_do(part: Any) -> None:
    """Without work the plan is empty."""
    plan = Toy(Settings(), part).step()
    expect(plan == StepPlan(), f"the plan of an idle engine is {plan}")


@graded("6.4")
def test_a_prompt_then_one_token_a_step(part: Any) -> None:
    """A request computes its prompt in one step, and then the token that it drew last."""
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
        plan = toy.step()
        expect_shares(plan, shares, CHUNK)
        share = plan.scheduled[0]
        expect_equal(len(share.slots), share.num_tokens, "the number of slots", why=CHUNK)


@graded("6.4")
def test_the_last_token_of_the_budget(part: Any) -> None:
    """A budget of one token is enough to go on: for a prompt token by token, and for a decode."""
    toy = Toy(Settings(token_budget=1), part)
    toy.add(A[:2], max_tokens=2)
    for shares in (["r0: token 0"], ["r0: token 1, samples"], ["r0: token 2, samples"]):
        expect_shares(toy.step(), shares, "What is left of the budget is used to its last token.")


@graded("6.4")
def test_prefill_and_decode_share_a_step(part: Any) -> None:
    """Those that run go first; what they leave of the budget goes to who is new."""
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
def test_the_budget_goes_by_rank(part: Any) -> None:
    """When the budget is too short for all that run, the first in rank are served, the others wait."""
    toy = Toy(Settings(token_budget=4, num_blocks=30, policy="priority"), part)
    toy.add(A[:4], max_tokens=9, priority=1)
    toy.step()
    toy.add(B[:8], max_tokens=9, priority=0)
    shares = ["r0: token 4, samples", "r1: tokens 0..2"]
    expect_shares(toy.step(), shares, ONE_RULE, "the second step")
    expect_shares(
        toy.step(), ["r1: tokens 3..6"],
        "Running requests are served in order of rank, and r1 is the more urgent one. r0 keeps its seat "
        "and its blocks meanwhile.", "the third step",
    )  # fmt: skip
    shares = ["r0: token 5, samples", "r1: token 7, samples"]
    expect_shares(toy.step(), shares, ONE_RULE, "the fourth step")


@graded("6.4")
def test_computing_again_samples_at_the_end(part: Any) -> None:
    """After a preemption prompt and output are computed again, in chunks too, and the end samples."""
    toy = crowd(part, token_budget=6, prefix_caching=False)
    until_preempted(toy)
    victim = toy.requests[1]
    while victim.num_computed_tokens == 0:
        toy.step()
    why = (
        "Whether this is a prefill cannot be told from whether a token was generated yet: a preempted "
        "request has some and computes them again. It samples when the last known token is computed."
    )
    end = victim.num_tokens - 1
    for start in range(6, end + 1, 6):
        last = min(start + 5, end)
        share = f"r1: tokens {start}..{last}{', samples' * (last == end)}"
        expect_shares(toy.step(), [share], why, "who computes what after the preemption")
    expect_right(toy, why)


@graded("6.4")
def test_nobody_is_let_in_by_a_step_that_preempts(part: Any) -> None:
    """A step that preempts admits nobody."""
    toy = crowd(part, max_num_seqs=2, policy="priority")
    toy.step()
    toy.add([0], max_tokens=3, priority=-1)
    until_preempted(toy)
    expect_equal(
        toy.scheduler.num_running, 1, "num_running after the step that preempts r1",
        why="Those who run have just been short of blocks: who came in now would take those that are "
        "left, and cost somebody else its place in the next step.",
    )  # fmt: skip


@graded("6.4")
def test_moves_are_in_the_plan(part: Any) -> None:
    """The plan carries the block moves that the cache has promised: to the host, back, and copies."""
    why = "take_moves hands over what must be copied before the step; nobody else will do it."
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


@graded("6.4")
def test_what_the_last_step_computed_is_over(part: Any) -> None:
    """Each step begins with the cache's begin_step: nobody waits for what is not computed any more."""
    toy = Toy(Settings(), part)
    toy.add(B[:5], max_tokens=9)
    toy.step()
    (gone,) = toy.add(A[:9])
    plan = toy.schedule()
    tokens = toy.runner.run(plan)
    toy.finish(gone, FinishReason.ERROR)
    toy.update(plan, tokens)
    toy.add(A[:9])
    expect_shares(
        toy.step(), ["r0: token 6, samples", "r2: tokens 0..8, samples"],
        "r1 was computing the prefix that r2 needs, and failed. Without begin_step the cache goes on "
        "believing that somebody computes it.", "the step after r1 has failed",
    )  # fmt: skip


@graded("6.4")
def test_any_life(part: Any) -> None:
    """Whatever arrives, is chunked, shared or aborted: every step is within its limits, and the tokens
    are those of a model without a cache."""
    play_any(part, any_settings(), 70)


@graded("6.4")
def test_any_life_with_siblings(part: Any) -> None:
    """The same with several outputs for one prompt."""
    play_any(part, any_settings(least_tokens=30, most_tokens=60), 40, most_siblings=3)
