"""Task 7.4: one step for all requests together, and what came of it."""

import time
from types import ModuleType

from grader.kit import expect, expect_equal, note, run_machine, task
from grader.kit.session import SESSION
from grader.kit.toy import Settings
from grader.suites.engine.bench import NAN, bench_of, tokens_of
from grader.suites.engine.lending import core_class
from grader.suites.engine.step_machine import StepMachine
from yaie.core.params import SamplingParams
from yaie.core.request import FailureKind, FinishReason, Request

BATCH = (
    "A step costs the model nearly the same for one request as for many. That is the point of a batch: "
    "one plan, carried out once, for all of them."
)
ALWAYS = (
    "Every plan goes to the executor. One that schedules no request may still move blocks, and the "
    "scheduler counts on it. For one that holds nothing at all the executor returns immediately."
)
SICK = "NaN in one row says nothing about the others. They go on."
FIRST_END = (
    "update() files the blocks of every request that is alive. The next request with the same prompt "
    "then gets the broken K and V: end the failed one first."
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
        why="An output holds what is new, not what was told before.",
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
def test_the_time_of_the_first_token(part: ModuleType) -> None:
    """first_token_time is set when a request gains its first token, and stays."""
    bench = bench_of(part, "7.4", Settings(token_budget=4), by_step=True)
    request = bench.say("abcdef", prompt=[0] * 6, max_tokens=9)
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
    expect(
        begun <= first <= ended,
        f"first_token_time is {first}; `time.monotonic` went from {begun} to {ended} in that step",
        why="It is compared with arrival_time, on the clock of `time.monotonic`. `time.time` is "
        "another, and jumps when the machine's clock is set.",
    )
    bench.step()
    expect(request.first_token_time == first, "first_token_time changes with the second token")


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
        why = "Its last output is made. Of the requests of a plan only those that `update` returns gain."
        expect(False, f"step raises {error!r}", why=why)
    expect_equal(
        [bench.text(well), bench.text(other)], ["abcd", "xyzx"], "the others' texts", why=SICK
    )
    expect_equal(sick.finish_reason, FinishReason.ERROR, "finish_reason of the failed one")
    expect_equal(
        bench.ends(sick),
        [FinishReason.ERROR],
        "its reasons in the outputs: one",
        why="A client waits for a last output, and without one it waits for ever.",
    )
    last = bench.of(sick)[-1]
    expect_equal((last.text, last.token_ids), ("", []), "text and tokens of its last output")
    expect_equal(sick.output_token_ids, [0], "its tokens")
    expect_equal(
        (last.error, last.failure),
        (sick.error, FailureKind.CORRUPTED),
        "error and failure in its last output",
        why="The client gets the message, not the request: what went wrong must stand in it.",
    )


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
        why="plan.failed lists requests that have ended. Only this loop can tell their clients.",
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
def test_a_model_says_what_it_says_without_an_engine(part: ModuleType) -> None:
    """A tiny Llama says in batches, chunks and after preemptions what it says alone, token by token."""
    from grader.suites.engine.tiny_llama import VOCAB, core_with, greedy, tiny_llama

    model = tiny_llama(SESSION.seed)
    core = core_with(core_class(part.EngineCore, "7.4"), model, num_blocks=6)
    shared = [(7 * i + 3) % VOCAB for i in range(9)]
    prompts = [shared, [*shared[:8], 5, 6], [1], shared[2:5]]
    requests = []
    for index, prompt in enumerate(prompts):
        params = SamplingParams(temperature=0.0)
        request = Request(f"r{index}", list(prompt), params, arrival=index, max_tokens=8)
        note(f"r{index}: prompt {prompt}, max_tokens 8")
        core.add_request(request)
        requests.append(request)
    for _ in range(200):
        if not core.has_work:
            break
        core.step()
    for request, prompt in zip(requests, prompts, strict=True):
        expect_equal(
            request.output_token_ids[:7],
            greedy(model, prompt, 7),
            f"the first 7 tokens of {request.request_id}",
            why="Neither batch nor cache may change what a model says under greedy sampling.",
        )


@task("7.4")
def test_any_requests(part: ModuleType) -> None:
    """Whatever requests come and whenever, each gets its own tokens and one end."""
    run_machine(StepMachine, part, runs=40, steps=14)
