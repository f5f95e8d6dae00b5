"""Task 7.4: `take`, called a step late, as the engine's overlapped loop does."""

from contextlib import suppress
from types import ModuleType

from grader.kit import expect, expect_equal, note, run_machine, task
from grader.kit.toy import Settings
from grader.suites.engine.bench import EOS, NAN, Bench, bench_of, tokens_of
from grader.suites.engine.step_machine import LateMachine
from yaie.core.request import FinishReason, Request

LATE = (
    "The engine's overlapped loop begins step n + 1 before it takes over step n. By then a request of "
    "step n + 1 may have ended."
)
OTHER = "An id is free again after abort, but a step of the aborted request may still be in flight."


@task("7.4")
def test_the_same_texts_with_a_step_in_flight(part: ModuleType) -> None:
    """A loop that is a step ahead gets the same texts and the same ends."""
    in_step, ahead = (_lives(part, lag) for lag in (0, 1))
    expect_equal(ahead, in_step, "text, reason and tokens of each, with a step in flight", why=LATE)


def _lives(part: ModuleType, lag: int) -> list[tuple[str, FinishReason | None, list[int]]]:
    bench = bench_of(part, "7.4", lag=lag)
    requests = [
        bench.say("abcdef", stop=["de"]),
        bench.say([*tokens_of("xy"), EOS]),
        bench.say("mnopq", max_tokens=4),
        bench.say("uvw", stop_token_ids=[22], prompt=[2] * 20),
    ]
    try:
        bench.run()
    except LookupError as error:
        expect(False, f"take raises {error!r}", why=LATE)
    return [(bench.text(r), r.finish_reason, r.output_token_ids) for r in requests]


@task("7.4")
def test_a_failure_that_two_steps_tell(part: ModuleType) -> None:
    """A request that fails in a step while its next one is in flight has one last output."""
    bench = bench_of(part, "7.4", lag=1)
    sick = bench.say([0, NAN], max_tokens=9)
    other = bench.say("xyzxyz", max_tokens=9)
    why = "Both outcomes list it as failed. After the first it is over: pass it over in the second."
    try:
        for _ in range(5):
            bench.step()
    except LookupError as error:
        expect(False, f"take raises {error!r}", why=why)
    expect_equal(bench.ends(sick), [FinishReason.ERROR], "its ends in the outputs: one", why=why)
    expect_equal(bench.text(other), "xyzx", "the other's text", why=why)


@task("7.4")
def test_a_failure_of_a_preempted_request(part: ModuleType) -> None:
    """A request that has lost its blocks by the time when its step turns out to have failed ends too."""
    bench = bench_of(part, "7.4", Settings(num_blocks=3, prefix_caching=False), lag=1)
    other = bench.say("abcdefgh", prompt=[0] * 4, max_tokens=6)
    sick = bench.say([0, NAN], prompt=[1] * 3, max_tokens=9)
    why = (
        "outcome.failed lists requests in whatever state they are by now. Only one that is over has had "
        "its last output; one that was preempted would run again, on a token that it never got."
    )
    for _ in range(4):
        bench.step()
    expect_equal(bench.ends(sick), [FinishReason.ERROR], "its ends in the outputs: one", why=why)
    bench.run()
    expect_equal(bench.text(other)[:6], "abcdef", "the other's text", why=why)


def _aborts(bench: Bench, request: Request) -> bool:
    """Whether abort ends a request. If not, task 7.5 is not right yet, and says so."""
    with suppress(Exception):
        bench.core.abort(request.request_id)
    return request.finish_reason is FinishReason.ABORT and not bench.quiet.has_work


@task("7.4")
def test_a_failure_of_an_aborted_request(part: ModuleType) -> None:
    """A request that was aborted before its step turns out to have failed has no output."""
    bench = bench_of(part, "7.4", lag=1)
    gone = bench.say([0, NAN], max_tokens=9)
    bench.step()
    bench.step()
    why = "It ended when it was aborted. outcome.failed may still list it: pass it over."
    if not _aborts(bench, gone):
        return
    try:
        while bench.in_flight:
            bench.take()
    except LookupError as error:
        expect(False, f"take raises {error!r}", why=why)
    expect_equal(bench.ends(gone), [], "ends in its outputs", why=why)
    expect_equal(gone.finish_reason, FinishReason.ABORT, "its finish_reason", why=why)


@task("7.4")
def test_the_id_of_an_aborted_request_is_used_again(part: ModuleType) -> None:
    """A new request with the id of an aborted one gets nothing of the aborted one's last step."""
    bench = bench_of(part, "7.4", lag=1)
    gone = bench.say([0, NAN], max_tokens=9)
    bench.step()
    bench.step()
    if not _aborts(bench, gone):
        return
    note("r0 again, another request: the model will say 'bcd'")
    again = Request("r0", [0], bench.toy.requests[0].params, arrival=1, max_tokens=9)
    bench.toy.requests[0] = again
    bench.scripts["r0"] = tokens_of("bcd")
    bench.core.add_request(again)
    for text, which in (([], "aborted r0's last step"), (["b"], "new r0's first step")):
        try:
            outputs = bench.step()
        except LookupError as error:
            expect(False, f"take raises {error!r} for the {which}", why=OTHER)
        told = [output.text for output in outputs]
        expect_equal(told, text, f"the texts of the outputs of the {which}", why=OTHER)
        expect_equal(again.is_finished, False, "whether the new r0 has ended", why=OTHER)


@task("7.4")
def test_failures_that_are_taken_over_at_once(part: ModuleType) -> None:
    """What a plan has failed can be taken over before its step, by a plan that holds nothing else."""
    bench = bench_of(part, "7.4", Settings(num_blocks=2), lag=1)
    failed = bench.say("abc", prompt=[0] * 9, max_tokens=9)
    other = bench.say("xyz", prompt=[1] * 3, max_tokens=9)
    for _ in range(5):
        bench.step()
    expect_equal(bench.ends(failed), [FinishReason.ERROR], "its ends in the outputs: one")
    expect_equal(bench.text(other), "xyz", "the other's text")


@task("7.4")
def test_any_requests_with_a_step_in_flight(part: ModuleType) -> None:
    """Whatever requests come, fail and are aborted: a loop that is a step ahead serves them as well."""
    run_machine(LateMachine, part, runs=40, steps=14)
