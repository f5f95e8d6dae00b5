"""Task 6.8: what a result leaves behind."""

from typing import Any

from grader.kit import expect_equal, note, start_script
from grader.kit.toy import Settings, Toy, toy_output
from grader.kit.toy_scripts import any_settings
from grader.suites.scheduler.bench import (
    A,
    B,
    cached,
    expect_right,
    expect_shares,
    play_any,
    until_preempted,
)
from grader.suites.scheduler.parts import graded

GONE = (
    "It ended while the step was in flight. Its tokens in the result are dropped: they are passed over, "
    "and the next list in the result is the next request's."
)
AT_ONCE = (
    "What was computed is filed when the result is there: others with that beginning find it while the "
    "first is still running."
)
GIVEN_BACK = (
    "A request that ends leaves the queue or its place among those that run, with all its blocks."
)


@graded("6.8")
def test_only_what_was_computed(part: Any) -> None:
    """After a chunk num_computed_tokens is at the end of the chunk, and no token is gained."""
    toy = Toy(Settings(token_budget=8), part)
    (short,) = toy.add(A[:3], max_tokens=4)
    (long,) = toy.add(B[:12], max_tokens=4)
    toy.begin()
    advanced = toy.take()
    why = "r1 has computed a part of its prompt; no token can follow on that."
    expect_equal(advanced, [short], "the requests that update returns", why=why)
    expect_equal(long.num_computed_tokens, 5, "num_computed_tokens of r1", why=why)
    why = "The token that was sampled has no K and V until the next step computes it."
    expect_equal(short.num_computed_tokens, 3, "num_computed_tokens of r0", why=why)


@graded("6.8")
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


@graded("6.8")
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


@graded("6.8")
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


@graded("6.8")
def test_the_end_of_a_prompt_is_shared(part: Any) -> None:
    """A prompt whose last chunk is one token can be shared as soon as that is computed."""
    toy = Toy(Settings(num_blocks=40, token_budget=7), part)
    toy.add(A[:8], max_tokens=9)
    toy.step()
    toy.step()
    toy.add([*A[:8], 4], max_tokens=1)
    shares = ["r0: token 8, samples", "r1: token 8, samples"]
    expect_shares(toy.step(), shares, AT_ONCE, "the step after the prompt of r0 is complete")


@graded("6.8")
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


@graded("6.8")
def test_a_chunk_behind_the_prompt_is_shared(part: Any) -> None:
    """Output that is computed again in chunks after a preemption can be shared chunk by chunk, too."""
    toy = Toy(Settings(num_blocks=6, token_budget=4), part)
    toy.add(A[:3], max_tokens=20)
    (victim,) = toy.add(B[:2], max_tokens=20)
    until_preempted(toy)
    toy.finish(toy.requests[0])
    note("toy.cache.reset_prefix_cache()")
    toy.cache.reset_prefix_cache()
    toy.step()
    toy.step()
    what = "cached tokens after r1 has computed 8 tokens again, of which 2 are its prompt"
    expect_equal(cached(toy, victim.token_ids[:8]), 8, what, why=AT_ONCE)
    toy.add([*victim.token_ids[:8], 4], max_tokens=1)
    last = victim.num_tokens - 1
    shares = [f"r1: tokens 8..{last}, samples", "r2: token 8, samples"]
    expect_shares(toy.step(), shares, AT_ONCE, "the step in which r2 comes, which begins like r1")


@graded("6.8")
def test_a_result_is_only_read(part: Any) -> None:
    """update changes neither the lists of tokens that it is given nor the plan."""
    toy = Toy(Settings(), part)
    toy.add(A[:3], max_tokens=4)
    toy.add(B[:3], max_tokens=4)
    note("plan = toy.scheduler.schedule(); toy.scheduler.advance(plan)")
    plan, drawn = toy.scheduler.schedule(), [[7], [9]]
    toy.scheduler.advance(plan)
    note("drawn = [[7], [9]]; toy.scheduler.update(plan, drawn)")
    toy.scheduler.update(plan, drawn)
    why = (
        "The step loop goes on with its plan and its result: it streams the same tokens to clients."
    )
    expect_equal(drawn, [[7], [9]], "the tokens that update was given, afterwards", why=why)
    expect_equal(len(plan.scheduled), 2, "the shares of the plan, afterwards", why=why)


@graded("6.8")
def test_any_life(part: Any) -> None:
    """Requests end and are aborted, between steps or in flight: the others go on, and nothing leaks."""
    play_any(part, any_settings(most_drafts=3), 45, most_siblings=2)


@graded("6.8")
def test_any_life_with_drafts(part: Any) -> None:
    """Steps in flight, drafts, preemptions and aborts in any order: the tokens stay right."""
    play_any(part, any_settings(most_tokens=26, most_drafts=3), 50)
