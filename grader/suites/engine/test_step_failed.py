"""Task 7.4: requests of a step that fail, and requests that are over."""

from types import ModuleType

from grader.kit import expect, expect_equal, note, task
from grader.kit.toy import Settings
from grader.suites.engine.bench import NAN, bench_of, tokens_of
from yaie.core.request import FailureKind, FinishReason

SICK = "NaN in one row says nothing about the others. They go on."
FIRST_END = (
    "update() files the blocks of every request that is alive. The next request with the same prompt "
    "then gets the broken K and V: end the failed one first."
)
NO_GAIN = (
    "Its last output is made. Of the requests of a plan only those that `update` returns gain."
)
WAITS = "A client waits for a last output, and without one it waits for ever."
LAST_FIRST = (
    "`take` returns the last outputs of `plan.failed` and of `outcome.failed` first, and then what the "
    "others gained."
)


@task("7.4")
def test_a_failed_row_ends(part: ModuleType) -> None:
    """A request in `outcome.failed` ends in that step, and its client gets a last output."""
    bench = bench_of(part, "7.4", by_step=True)
    sick = bench.say([NAN], max_tokens=9)
    note("in the first step, outcome.failed is [r0]")
    try:
        told = [output.request_id for output in bench.step()]
    except LookupError as error:
        expect(False, f"step raises {error!r}", why=NO_GAIN)
        raise
    why = "`take` ends what the step has failed; what the scheduler has failed is in `plan.failed`."
    expect_equal(sick.finish_reason, FinishReason.ERROR, "finish_reason of r0", why=why)
    expect_equal(told, ["r0"], "whose outputs the step returned", why=WAITS)


@task("7.4")
def test_a_request_that_fails_in_a_step(part: ModuleType) -> None:
    """A request in `outcome.failed` ends with an error and has one last output; the others go on."""
    bench = bench_of(part, "7.4", by_step=True)
    well = bench.say("abcdefgh", max_tokens=9)
    sick = bench.say([0, NAN], max_tokens=9)
    other = bench.say("xyzxyzxyz", max_tokens=9)
    try:
        for _ in range(4):
            bench.step()
    except LookupError as error:
        expect(False, f"step raises {error!r}", why=NO_GAIN)
    expect_equal(
        [bench.text(well), bench.text(other)], ["abcd", "xyzx"], "the others' texts", why=SICK
    )
    expect_equal(sick.finish_reason, FinishReason.ERROR, "finish_reason of the failed one")
    expect_equal(
        bench.ends(sick),
        [FinishReason.ERROR],
        "its reasons in the outputs: one",
        why=WAITS,
    )
    last = bench.of(sick)[-1]
    expect_equal((last.text, last.token_ids), ("", []), "text and tokens of its last output")
    expect_equal(sick.output_token_ids, [0], "its tokens")
    expect_equal(
        (last.error, last.failure),
        ("the model computed NaN or infinity", FailureKind.CORRUPTED),
        "error and failure in its last output",
        why="The client gets the message, not the request: what went wrong must be in it.",
    )


@task("7.4")
def test_a_step_whose_only_token_failed(part: ModuleType) -> None:
    """A step that sampled for a failed request alone is taken over: the chunk beside it is settled."""
    bench = bench_of(part, "7.4", Settings(token_budget=6), by_step=True)
    bench.say([NAN], prompt=[1] * 3, max_tokens=9)
    request = bench.say("abc", prompt=[0] * 12, max_tokens=9)
    bench.step()
    why = (
        "`update` is called once for each plan, whatever has failed: it settles the others' chunks."
    )
    expect_equal(bench.record.calls.count("update"), 1, "calls of update", why=why)
    expect_equal(request.num_settled_tokens, 3, "tokens of r1 that are settled", why=why)


@task("7.4")
def test_a_failure_shows_nothing_more(part: ModuleType) -> None:
    """What detokenizer and stop checker hold is not shown when a request fails."""
    bench = bench_of(part, "7.4", by_step=True)
    sick = bench.say([0, tokens_of("é")[0], NAN], stop=["ab"], max_tokens=9)
    for _ in range(3):
        bench.step()
    expect_equal(bench.ends(sick), [FinishReason.ERROR], "its ends in the outputs: one")
    why = "Only an answer that is over by itself shows what was held back. This one was broken off."
    expect_equal(bench.text(sick), "", "the text; 'a' is held for 'ab', and é is cut", why=why)


@task("7.4")
def test_a_chunk_that_fails(part: ModuleType) -> None:
    """A request can fail in the middle of its prompt, where it draws nothing."""
    bench = bench_of(part, "7.4", Settings(token_budget=6), by_step=True)
    sick = bench.say("abc", prompt=[0] * 12, max_tokens=9)
    bench.executor.sick.add(sick)
    note("r0 computes NaN in every step")
    bench.step()
    why = "outcome.failed lists it, though outcome.token_ids has no entry for a chunk."
    expect_equal(bench.ends(sick), [FinishReason.ERROR], "its ends after its first chunk", why=why)
    expect_equal(bool(bench.quiet.has_work), False, "has_work", why=why)


@task("7.4")
def test_broken_keys_and_values_are_not_kept(part: ModuleType) -> None:
    """What a failed request has computed is not filed for others to find."""
    bench = bench_of(part, "7.4", by_step=True)
    sick = bench.say([NAN], prompt=[0] * 8, max_tokens=9)
    bench.step()
    expect_equal(sick.finish_reason, FinishReason.ERROR, "finish_reason")
    cached = bench.toy.cache.stats()["cached_blocks"]
    expect_equal(cached, 0, "blocks in the prefix cache", why=FIRST_END)
    expect_equal(sick.first_token_time, None, "first_token_time of a request without a token")
    expect_equal(bool(bench.quiet.has_work), False, "has_work")


@task("7.4")
def test_a_request_that_cannot_run(part: ModuleType) -> None:
    """A request in `plan.failed` has one last output; what the same plan schedules still runs."""
    bench = bench_of(part, "7.4", Settings(num_blocks=2), by_step=True)
    greedy = bench.say("abcdefgh", prompt=[0] * 4, max_tokens=9)
    waiting = bench.say("xyz", prompt=[1] * 5, max_tokens=9)
    for _ in range(8):
        bench.step()
        if greedy.is_finished:
            break
    expect_equal(
        bench.ends(greedy),
        [FinishReason.ERROR],
        "the ends of the first one in the outputs",
        why="plan.failed lists requests that have ended. Only this loop can notify their clients.",
    )
    expect_equal(
        bench.text(waiting),
        "x",
        "the text of the one that waited, after the step in which the other failed",
        why="A plan can fail one request and schedule another.",
    )
    expect_equal(bench.text(greedy), "abcde", "the text of the failed one, in a pool of 8 slots")


@task("7.4")
def test_a_row_of_a_request_that_has_ended(part: ModuleType) -> None:
    """A plan may hold a request that is over (static batches compute it on): it is passed over."""
    note("static batching: a request that ends keeps its row in the batch until all have ended")
    bench = bench_of(part, "7.4", Settings(static=True), by_step=True)
    over = bench.say([0, NAN], max_tokens=1)
    other = bench.say("xyzxyz", max_tokens=9)
    bench.step()
    if not over.is_finished:
        return  # task 7.3 is not right yet, and says so
    why = (
        "A finished request has had its last output. What its row draws later belongs to no answer."
    )
    try:
        bench.step()
        bench.step()
    except LookupError as error:
        expect(False, f"step raises {error!r}", why=why)
    expect_equal(len(bench.of(over)), 1, "outputs of the one that is over", why=why)
    expect_equal(over.output_token_ids, [0], "its tokens", why=why)
    expect_equal(bench.text(other), "xyz", "the other's text", why=why)


@task("7.4")
def test_failures_stand_first(part: ModuleType) -> None:
    """The outputs of a step begin with the last ones of those that failed, the plan's first."""
    bench = bench_of(part, "7.4", by_step=True)
    bench.say("xyz", max_tokens=9)
    bench.say([NAN], max_tokens=9)
    told = [output.request_id for output in bench.step()]
    why = LAST_FIRST * (told == ["r0", "r1"])
    expect_equal(told, ["r1", "r0"], "whose outputs the step returned", why=why)
    for said in ("xyz", [NAN]):
        bench = bench_of(part, "7.4", Settings(num_blocks=2), by_step=True)
        greedy = bench.say("abcdefgh", prompt=[0] * 4, max_tokens=9)
        bench.say(said, prompt=[1] * 5, max_tokens=9)
        for _ in range(8):
            told = [output.request_id for output in bench.step()]
            if greedy.is_finished:
                break
        why = LAST_FIRST * (told == ["r1", "r0"])
        expect_equal(told, ["r0", "r1"], "whose outputs the last step returned", why=why)
