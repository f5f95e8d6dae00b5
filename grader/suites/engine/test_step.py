"""Task 7.4: one step for all requests together, and what came of it."""

import time
from types import ModuleType

from grader.kit import expect, expect_equal, note, start_script, task
from grader.kit.toy import Settings
from grader.suites.engine.bench import bench_of, tokens_of
from grader.suites.engine.desk import Desk, core_on, queue
from grader.suites.engine.lending import core_class
from yaie.core.batch import StepOutcome
from yaie.core.request import Request

BATCH = (
    "A step costs the model nearly the same for one request as for many. That is the point of a batch: "
    "one plan, carried out once, for all of them."
)
ALWAYS = (
    "Every plan goes to the executor. One that schedules no request may still move blocks, and the "
    "scheduler counts on it. For one that holds nothing at all the executor returns immediately."
)
ONCE_EACH = (
    "`update` is called once for each plan, also for one that samples no token: it settles what the "
    "plan has computed, and files it for others to find."
)
RAISES = (
    "An exception of the executor concerns all requests, and the engine begins anew after it. If step "
    "swallows it, the plan is never updated: its requests neither go on nor end."
)
COUNTS = (
    "A token counts, and its client waits for it, before it has text: half a character has none, nor "
    "has what may become a stop string."
)


@task("7.4")
def test_the_order_of_a_step(part: ModuleType) -> None:
    """A step calls `schedule`, `execute`, `advance`, `result` and `update`, once each, in this order."""
    bench = bench_of(part, "7.4", by_step=True)
    bench.say("abc", max_tokens=9)
    bench.step()
    expect_equal(
        bench.record.calls,
        ["schedule", "execute", "advance", "result", "update"],
        "the calls of one step",
    )


@task("7.4")
def test_nothing_to_do(part: ModuleType) -> None:
    """A step without requests returns nothing; its empty plan is carried out like any other."""
    bench = bench_of(part, "7.4", by_step=True)
    expect_equal(bench.step(), [], "what step returned")
    expect_equal(bench.record.calls.count("execute"), 1, "calls of execute in a step", why=ALWAYS)
    expect_equal(bool(bench.quiet.has_work), False, "has_work")


@task("7.4")
def test_a_plan_that_only_moves_blocks(part: ModuleType) -> None:
    """A plan that schedules no request, but moves blocks, is carried out."""
    bench = bench_of(part, "7.4", by_step=True)
    note("the next plan copies block 0 to block 1, and schedules no request")
    bench.scheduler.copies = [(0, 1)]
    expect_equal(bench.step(), [], "what step returned")
    expect_equal(bench.executor.num_moves, 1, "moves that were carried out", why=ALWAYS)
    expect_equal(bench.record.calls.count("update"), 1, "calls of update", why=ONCE_EACH)


class DeadWorker(Desk):
    """Its worker is gone, which only `result` finds out."""

    def result(self) -> StepOutcome:
        raise ConnectionError("the worker is gone")


@task("7.4")
def test_a_step_that_breaks(part: ModuleType) -> None:
    """What the executor raises goes through `step`."""
    start_script()
    note("r0 is in the plan; result() raises ConnectionError('the worker is gone')")
    core = core_on(core_class(part.EngineCore, "7.4"), DeadWorker())
    queue(core, "r0")
    try:
        outputs = core.step()
    except ConnectionError:
        return
    expect(False, f"step returned {outputs}, though `result` had raised", why=RAISES)


@task("7.4")
def test_one_step_for_all(part: ModuleType) -> None:
    """A step has one plan, carried out once, however many requests there are."""
    bench = bench_of(part, "7.4", by_step=True)
    requests = [bench.say(said, max_tokens=9) for said in ("abc", "xyz", "mno")]
    bench.step()
    calls = bench.record.calls
    expect_equal(
        (calls.count("schedule"), calls.count("execute"), calls.count("update")),
        (1, 1, 1),
        "calls of schedule, execute and update in one step",
        why=BATCH,
    )
    expect_equal([bench.text(r) for r in requests], ["a", "x", "m"], "the texts after one step")
    bench.step()
    expect_equal([bench.text(r) for r in requests], ["ab", "xy", "mn"], "the texts after two steps")
    new = sorted(output.token_ids for output in bench.outputs[3:])
    expect_equal(
        new,
        sorted(map(tokens_of, "byn")),
        "the tokens in the second step's outputs",
        why="An output holds what is new, not what earlier ones held.",
    )


@task("7.4")
def test_a_chunk_gives_no_token(part: ModuleType) -> None:
    """While a prompt comes in chunks its request has no output; the others get their own tokens."""
    bench = bench_of(part, "7.4", Settings(token_budget=6), by_step=True)
    first = bench.say("abcd", max_tokens=9)
    second = bench.say("xyz", prompt=[1] * 12, max_tokens=9)
    told = [sorted(output.request_id for output in bench.step()) for _ in range(3)]
    why = "update returns the requests that gained tokens. Only those have an output."
    expect_equal(told, [["r0"], ["r0"], ["r0", "r1"]], "who has an output, step by step", why=why)
    texts = [bench.text(first), bench.text(second)]
    expect_equal(texts, ["abc", "x"], "the texts after three steps")


@task("7.4")
def test_a_step_that_draws_nothing(part: ModuleType) -> None:
    """What a chunk has computed is taken over, though its step samples no token."""
    bench = bench_of(part, "7.4", Settings(token_budget=6), by_step=True)
    request = bench.say("abc", prompt=[0] * 12, max_tokens=9)
    expect_equal(bench.step(), [], "what the step returned")
    expect_equal(bench.record.calls.count("update"), 1, "calls of update", why=ONCE_EACH)
    expect_equal(request.num_settled_tokens, 6, "its tokens that are settled", why=ONCE_EACH)


@task("7.4")
def test_a_token_without_text(part: ModuleType) -> None:
    """A request that gains a token has an output in that step, though the token has no text yet."""
    bench = bench_of(part, "7.4", by_step=True)
    said = tokens_of("éb")
    request = bench.say(said, max_tokens=9)
    told = [(output.text, output.token_ids) for output in bench.step()]
    expect_equal(told, [("", said[:1])], "text and tokens of the outputs of a step", why=COUNTS)
    expect(
        request.first_token_time is not None,
        "first_token_time is None after a step that drew the first byte of é",
        why=COUNTS,
    )
    bench.step()
    expect_equal(bench.text(request), "é", "the text after two steps", why=COUNTS)


def what_time(request: Request, first: float) -> str:
    """What a wrong first_token_time is."""
    if abs(first - time.time()) < 60:
        return (
            "It is compared with arrival_time, on the clock of `time.monotonic`. This one is of "
            "`time.time`, which jumps when the machine's clock is set."
        )
    for name, told in (("arrival_time", "came"), ("scheduled_time", "was first scheduled")):
        if first == getattr(request, name):
            ago = time.monotonic() - first
            return (
                f"This is the {name} of r0, when it {told}, {ago:.0f} seconds before. The time of the "
                "first token is when `take` got it, on the clock of `time.monotonic`."
            )
    return "It is compared with arrival_time, on the clock of `time.monotonic`."


@task("7.4")
def test_the_time_of_the_first_token(part: ModuleType) -> None:
    """first_token_time is set when a request gains its first token, and stays."""
    bench = bench_of(part, "7.4", Settings(token_budget=4), by_step=True)
    request = bench.say("abcdef", prompt=[0] * 6, max_tokens=9)
    request.arrival_time = time.monotonic() - 60
    request.scheduled_time = time.monotonic() - 30
    bench.step()
    expect_equal(request.first_token_time, None, "first_token_time after a chunk of the prompt")
    begun = time.monotonic()
    bench.step()
    first, ended = request.first_token_time, time.monotonic()
    expect(
        first is not None,
        "first_token_time is None after the first token",
        why="The server's metric of the time to the first token is made of it.",
    )
    assert first is not None
    if not begun <= first <= ended:
        problem = f"first_token_time is {first:.6f}; in that step `time.monotonic` went from "
        expect(False, f"{problem}{begun:.6f} to {ended:.6f}", why=what_time(request, first))
    bench.step()
    later = request.first_token_time
    why = "It is set when the request gains its first token, and no more."
    problem = f"first_token_time changes with the second token, from {first} to {later}"
    expect(later == first, problem, why=why)


@task("7.4")
def test_the_time_of_a_first_step_with_several_tokens(part: ModuleType) -> None:
    """first_token_time is set by a step that brings the first token and more."""
    bench = bench_of(part, "7.4", by_step=True)
    bench.draft(2, at_once=True)
    request = bench.say("abcdef", prompt=[0] * 6, max_tokens=9)
    bench.step()
    expect_equal(request.output_token_ids, tokens_of("abc"), "the tokens of the first step")
    expect(
        request.first_token_time is not None,
        "first_token_time is None after a step that brought three tokens",
        why="Drafts make a step bring several tokens: ask whether the time is set, not how many came.",
    )
