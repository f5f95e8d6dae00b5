"""Task 6.8: a step on its way, and its result a step later."""

from typing import Any

from grader.kit import expect, expect_equal, start_script
from grader.kit.toy import Settings, Toy
from grader.suites.scheduler.bench import A, B, cached, crowd, expect_right
from grader.suites.scheduler.parts import graded
from yaie.core.request import FinishReason, Request, RequestStatus

ON_ITS_WAY = (
    "After advance the next step can be planned: what this one computes counts as computed, and the "
    "token that it samples counts in num_tokens, though its value is not known yet."
)
RESULT = (
    "What advance has added to num_in_flight and num_output_placeholders, update takes off again, and "
    "no more."
)
TRUSTED = (
    "Others may only be given K and V of steps whose result is there: a step in flight may fail."
)
OVER = (
    "It ended with the result of the step before, and its blocks are given back. What the step in "
    "flight computes for it is dropped: no count and no token changes, and nothing is filed."
)
REJECTED = (
    "With k drafts a step computes 1 + k tokens and promises as many. Of m that came, m - 1 drafts were "
    "right: K and V of the others belong to tokens that are not there, so they do not count as computed."
)


def counts(request: Request) -> tuple[int, int, int]:
    return request.num_computed_tokens, request.num_in_flight, request.num_output_placeholders


COUNTS = "num_computed_tokens, num_in_flight and num_output_placeholders of"


@graded("6.8")
def test_on_its_way(part: Any) -> None:
    """advance counts a step's tokens as computed and in flight, and those that it samples as unread."""
    toy = Toy(Settings(token_budget=10), part)
    (short,) = toy.add(A[:6], max_tokens=4)
    (long,) = toy.add(B[:12], max_tokens=4)
    toy.begin()
    expect_equal(
        counts(short), (6, 6, 1), f"{COUNTS} r0, with its prompt in flight", why=ON_ITS_WAY
    )
    why = "A chunk that ends before its prompt samples no token."
    expect_equal(counts(long), (4, 4, 0), f"{COUNTS} r1, with a chunk in flight", why=why)
    known = (short.num_output_tokens, short.num_tokens)
    expect_equal(known, (0, 7), "num_output_tokens and num_tokens of r0", why=ON_ITS_WAY)
    toy.begin()
    expect_equal(counts(short), (7, 7, 2), f"{COUNTS} r0, with two steps in flight", why=ON_ITS_WAY)
    expect_equal(
        counts(long), (12, 12, 1), f"{COUNTS} r1, with two steps in flight", why=ON_ITS_WAY
    )
    toy.take()
    expect_equal(counts(short), (7, 1, 1), f"{COUNTS} r0, after the first result", why=RESULT)
    expect_equal(counts(long), (12, 8, 1), f"{COUNTS} r1, after the first result", why=RESULT)
    toy.take()
    expect_equal(counts(short), (7, 0, 0), f"{COUNTS} r0, after both results", why=RESULT)
    expect_equal(short.token_ids[6:], toy.expected()[0][:2], "the output of r0", why=RESULT)
    expect_right(toy, RESULT)


@graded("6.8")
def test_one_step_ahead_of_the_results(part: Any) -> None:
    """With a step always in flight, requests compute the same tokens, share prefixes and end."""
    for ahead in (0, 1, 2):
        start_script()
        toy = Toy(Settings(num_blocks=40, token_budget=7, ahead=ahead), part)
        toy.add(A[:13], max_tokens=3)
        toy.add(B[:5], max_tokens=7)
        toy.add(A[:14], max_tokens=2)
        expect_right(toy, ON_ITS_WAY)
        expect_equal(
            toy.requests[2].num_cached_tokens, 12, f"cached tokens of r2, {ahead} steps ahead",
            why="It begins like r0, and waits until r0's prompt is filed.",
        )  # fmt: skip


@graded("6.8")
def test_filed_with_the_result(part: Any) -> None:
    """A prefix can be found after update, and not while the step that computes it is in flight."""
    toy = Toy(Settings(), part)
    toy.add(A[:9], max_tokens=9)
    toy.begin()
    expect_equal(cached(toy, A[:9]), 0, "cached tokens while the prompt is in flight", why=TRUSTED)
    toy.begin()
    toy.take()
    expect_equal(cached(toy, A[:9]), 8, "cached tokens once the prompt's result is there",
                 why="`update` files a prompt, whatever is in flight behind it.")  # fmt: skip


@graded("6.8")
def test_ended_with_its_next_step_in_flight(part: Any) -> None:
    """A request that ends by a result while its next step is in flight is left alone by the next one."""
    toy = Toy(Settings(), part)
    (gone,) = toy.add(A[:5], max_tokens=9)
    (here,) = toy.add(B[:5], max_tokens=9)
    toy.begin()
    toy.begin()
    toy.take()
    toy.finish(gone, FinishReason.STOP)
    before = (list(gone.token_ids), *counts(gone))
    advanced = toy.take()
    expect_equal(advanced, [here], "the requests that update returns", why=OVER)
    after = (list(gone.token_ids), *counts(gone))
    expect_equal(after, before, f"the tokens, {COUNTS} r0", why=OVER)
    toy.run()
    expect_equal(here.output_token_ids, toy.expected()[1], "the output of r1", why=OVER)


@graded("6.8")
def test_ended_before_advance(part: Any) -> None:
    """A request that ends between `schedule` and `advance` is left alone by `advance`."""
    toy = Toy(Settings(), part)
    (gone,) = toy.add(A[:5], max_tokens=9)
    plan = toy.schedule()
    toy.finish(gone)
    before = counts(gone)
    with toy.told("toy.scheduler.advance(plan)"):
        toy.scheduler.advance(plan)
    expect_equal(counts(gone), before, f"{COUNTS} r0, which ended before advance",
                 why="Its blocks are given back already.")  # fmt: skip


@graded("6.8")
def test_a_result_after_a_preemption(part: Any) -> None:
    """A request preempted in mid-flight gains its token, and has still computed nothing."""
    for caching in (False, True):
        start_script()
        toy = crowd(part, ahead=1, prefix_caching=caching)
        toy.begin()
        while not toy.begin().preempted:
            toy.take()
        victim = toy.requests[1]
        advanced = toy.take()
        why = (
            "The token is right: the step was on its way. Its blocks were given away all the same."
        )
        expect(victim in advanced, "update does not return r1, which gained a token", why=why)
        expect_equal(counts(victim), (0, 0, 0), f"{COUNTS} r1", why=why)
        expect_right(toy, why)


@graded("6.8")
def test_a_chunk_preempted_in_mid_flight(part: Any) -> None:
    """A request that was preempted with a chunk in flight has nothing to file when the result comes."""
    toy = Toy(Settings(num_blocks=5, token_budget=8, policy="priority"), part)
    toy.add(A[:7], max_tokens=9, priority=0)
    toy.step()
    (long,) = toy.add(B[:12], max_tokens=2, priority=1)
    toy.begin()
    while not toy.begin().preempted:
        toy.take()
    expect_equal(long.status, RequestStatus.PREEMPTED, "the status of r1")
    toy.take()
    why = "commit files blocks of a table, and a request that was preempted has none."
    expect_equal(counts(long), (0, 0, 0), f"{COUNTS} r1", why=why)
    expect_right(toy, why)


@graded("6.8")
def test_drafts_in_flight(part: Any) -> None:
    """A step that verifies k drafts computes 1 + k tokens, and promises as many."""
    toy = Toy(Settings(), part)
    (request,) = toy.add(A[:6], max_tokens=12)
    toy.step()
    toy.begin({request: [2, 3, 4]})
    why = "A token and three drafts are computed, and four may be sampled."
    expect_equal(counts(request), (10, 4, 4), f"{COUNTS} r0, with 3 drafts in flight", why=why)


@graded("6.8")
def test_rejected_drafts(part: Any) -> None:
    """Of k drafts any number may be right: their tokens are kept, and the rest is not computed."""
    for right in range(4):
        start_script()
        toy = Toy(Settings(), part)
        (request,) = toy.add(A[:6], max_tokens=12)
        (other,) = toy.add(B[:6], max_tokens=12)
        toy.step()
        drafts = toy.expected()[0][1 : 1 + right]
        wrong = [(token + 1) % 5 for token in toy.expected()[0][1 + right : 4]]
        toy.begin({request: [*drafts, *wrong]})
        expect_equal(counts(request), (10, 4, 4), f"{COUNTS} r0, with 3 drafts in flight",
                     why="A token and three drafts are computed, and four may be sampled.")  # fmt: skip
        toy.take()
        what = f"of r0, with {right} of 3 drafts right"
        expect_equal(counts(request), (7 + right, 0, 0), f"{COUNTS[:-3]} {what}", why=REJECTED)
        expected = toy.expected()[0][: 2 + right]
        expect_equal(request.output_token_ids, expected, f"the output {what}", why=REJECTED)
        expect_equal(other.num_output_tokens, 2, "output tokens of r1, which had no drafts")
        expect_right(toy, REJECTED)


@graded("6.8")
def test_drafts_of_a_preempted_request(part: Any) -> None:
    """Rejected drafts are taken off a swapped request's count, and not off one that is 0 already."""
    for num_host_blocks in (0, 16):
        start_script()
        toy = Toy(
            Settings(6, num_host_blocks=num_host_blocks, token_budget=32, prefix_caching=False),
            part,
        )
        toy.add(A[:10], max_tokens=9)
        (victim,) = toy.add(B[:8], max_tokens=9)
        toy.step()
        toy.step()
        right, wrong = toy.expected()[1][2], (toy.expected()[1][3] + 1) % 5
        toy.begin({victim: [right, wrong]})
        computed = victim.num_computed_tokens
        plan = toy.begin()
        expect_equal(plan.preempted, [victim], "the requests that the next step preempts")
        toy.take()
        left = computed - 1 if num_host_blocks else 0
        what = f"num_computed_tokens of r1, {victim.status.value}, with 1 of 2 drafts right"
        expect_equal(victim.num_computed_tokens, left, what, why=REJECTED)
        expect_equal(victim.num_output_tokens, 4, "output tokens of r1", why=REJECTED)
        expect_right(toy, REJECTED)
