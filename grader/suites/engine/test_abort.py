"""Task 7.5: abort, in any state of a request."""

from collections.abc import Callable
from contextlib import suppress
from types import ModuleType

from grader.kit import expect_equal, note, run_machine, task
from grader.kit.toy import Settings
from grader.suites.engine.bench import PLENTY, Bench, bench_of, tokens_of
from grader.suites.engine.step_machine import AbortMachine
from yaie.core.request import FinishReason, Request, RequestStatus

NOW = "The client has gone: what is computed for it from now on delays the others."
TOLD = (
    "The scheduler must learn that the request is over, and why: it holds its row and its blocks."
)
SAID = (
    "Abort changes how a request ends, not what it has: its prompt, and the tokens that were sent."
)
TIME = "Abort changes how a request ends, not what it has: the time of its first token stays."
NAMED = "stop_reason names a stop string or a stop token, and there was none."
ALIVE = (
    "The request is finished, and the scheduler has nothing to compute for it. has_work is true as long "
    "as it is among the live ones, so the engine steps on for ever."
)
LEAK = "An aborted request gives back what it holds, or every closed browser tab costs memory."


@task("7.5")
def test_abort_a_stranger(part: ModuleType) -> None:
    """Aborting an unknown request is no error: False."""
    bench = bench_of(part, "7.5")
    expect_equal(
        bench.core.abort("stranger"),
        False,
        "what abort returned",
        why="A client may hang up at any time, also before or after its request lives.",
    )


@task("7.5")
def test_abort_in_the_queue(part: ModuleType) -> None:
    """A request that has not run yet never does, and has no output."""
    bench = bench_of(part, "7.5")
    gone, other = bench.say("abc", max_tokens=9), bench.say("xyz", max_tokens=9)
    expect_equal(bench.core.abort("r0"), True, "what abort returned")
    expect_equal(gone.finish_reason, FinishReason.ABORT, "its finish_reason", why=TOLD)
    bench.step()
    expect_equal(bench.of(gone), [], "outputs of the aborted request", why=NOW)
    expect_equal(bench.text(other), "x", "the other's text")


@task("7.5")
def test_abort_while_it_runs(part: ModuleType) -> None:
    """A running request ends now: no output, no blocks, no work."""
    bench = bench_of(part, "7.5")
    gone = bench.say("abc", max_tokens=9)
    bench.step()
    had, first = list(gone.token_ids), gone.first_token_time
    expect_equal(bench.core.abort("r0"), True, "what abort returned")
    expect_equal(
        gone.finish_reason,
        FinishReason.ABORT,
        "its finish_reason",
        why=TOLD,
    )
    expect_equal(gone.token_ids, had, "token_ids of r0 after abort, prompt and answer", why=SAID)
    expect_equal(gone.first_token_time, first, "first_token_time of r0 after abort", why=TIME)
    expect_equal(gone.stop_reason, None, "stop_reason of r0 after abort", why=NAMED)
    expect_equal(bench.toy.cache.stats()["used_blocks"], 0, "blocks in use after abort", why=LEAK)
    why = ALIVE if gone.is_finished else NOW
    expect_equal(bool(bench.quiet.has_work), False, "has_work after abort", why=why)
    expect_equal(bench.step(), [], "what the next step returned", why=NOW)


@task("7.5")
def test_abort_twice(part: ModuleType) -> None:
    """The second abort finds nothing to end, nor does one of a request that has ended by itself."""
    bench = bench_of(part, "7.5")
    bench.say("abc", max_tokens=9)
    bench.core.abort("r0")
    expect_equal(bench.core.abort("r0"), False, "what the second abort returned")
    over = bench.say("a", max_tokens=1)
    for _ in range(5):
        bench.step()
    reason = over.finish_reason
    if reason is None:
        return  # task 7.3 is not right yet, and says so
    expect_equal(bench.core.abort("r1"), False, "abort of a request that is over")
    expect_equal(
        over.finish_reason,
        reason,
        "its finish_reason",
        why="It was complete before; the reason stays.",
    )


@task("7.5")
def test_the_id_is_free_again(part: ModuleType) -> None:
    """After abort another request may have the id."""
    bench = bench_of(part, "7.5")
    bench.say("abc", max_tokens=9)
    bench.core.abort("r0")
    again = Request("r0", [0], bench.toy.requests[0].params, arrival=1, max_tokens=9)
    bench.toy.requests[0] = again
    bench.core.add_request(again)
    bench.step()
    expect_equal(bench.text(again), "a", "the text of the new r0 after a step")


@task("7.5")
def test_abort_while_a_step_is_in_flight(part: ModuleType) -> None:
    """A request aborted between a step's beginning and its outcome has no output of it; others have."""
    bench = bench_of(part, "7.5")
    gone, other = bench.say("abc", max_tokens=9), bench.say("xyz", max_tokens=9)
    bench.step()
    bench.begin()
    expect_equal(bench.core.abort("r0"), True, "what abort returned")
    bench.take()
    bench.step()
    expect_equal(len(bench.of(gone)), 1, "outputs of the aborted request", why=NOW)
    expect_equal(gone.finish_reason, FinishReason.ABORT, "its finish_reason")
    expect_equal(bench.text(other), "xyz", "the other's text")


CROWD = ("abcdefghijkl", "mnopqrstuvwx", "xyzabcxyzabc")


def crowd(part: ModuleType, num_host_blocks: int) -> Bench:
    """Three that do not fit together: the last is computed in chunks, late, or preempted."""
    settings = Settings(
        num_blocks=7, num_host_blocks=num_host_blocks, token_budget=5, prefix_caching=False
    )
    bench = bench_of(part, "7.5", settings)
    for start, said in enumerate(CROWD):
        bench.say(said, prompt=[start] * (4 + start), max_tokens=12)
    return bench


MOMENTS: dict[str, Callable[[Request], bool]] = {
    "in the middle of its prompt": lambda r: 0 < r.num_computed_tokens < r.num_prompt_tokens,
    "between two tokens": lambda r: r.num_output_tokens > 1,
    "preempted": lambda r: r.status is RequestStatus.PREEMPTED,
    "swapped out": lambda r: r.status is RequestStatus.SWAPPED,
}


@task("7.5")
def test_abort_wherever_it_stands(part: ModuleType) -> None:
    """Half computed, preempted or swapped out: everything is given back, and the others go on."""
    for moment, stands_there in MOMENTS.items():
        bench = crowd(part, num_host_blocks=12 if moment == "swapped out" else 0)
        note(f"step until one is {moment}, and abort it")
        victim = first_there(bench, stands_there)
        if victim is None:
            continue
        told = len(bench.of(victim))
        expect_equal(bench.core.abort(victim.request_id), True, f"abort of one {moment}")
        bench.run()
        expect_equal(len(bench.of(victim)), told, f"outputs of the one aborted {moment}", why=NOW)
        free = bench.toy.blocks.num_free, bench.toy.blocks.num_free_host
        expect_equal(free[0], 7, "free blocks when all is over", why=LEAK)
        expect_equal(free[1], bench.toy.settings.num_host_blocks, "free host blocks", why=LEAK)
        for request, said in zip(bench.toy.requests, CROWD, strict=True):
            if request is not victim:
                got, right = request.output_token_ids[:11], tokens_of(said)[:11]
                expect_equal(got, right, f"the first tokens of {request.request_id}")


def first_there(bench: Bench, stands_there: Callable[[Request], bool]) -> Request | None:
    """Step until a request stands there; of several the last. None if no request gets there, because the
    steps go wrong: that is another task's."""
    for _ in range(PLENTY):
        for request in reversed(bench.toy.requests):
            if stands_there(request):
                return request
        with suppress(Exception):
            bench.step()
    return None


@task("7.5")
def test_any_requests_and_aborts(part: ModuleType) -> None:
    """An aborted request has no output any more, whenever it was aborted; the others are served."""
    run_machine(AbortMachine, part, runs=40, steps=14)
