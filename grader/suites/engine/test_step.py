"""Task 7.4: one step for all requests together."""

from types import ModuleType

from grader.kit import expect, expect_equal, note, run_machine, task
from grader.kit.session import SESSION
from grader.kit.toy import Settings
from grader.suites.engine.bench import NAN, bench_of, tokens_of
from grader.suites.engine.lending import core_class
from grader.suites.engine.step_machine import StepMachine
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request

BATCH = (
    "A step costs the model nearly the same for one row as for many. That is the point of a batch: "
    "one plan, one run and one draw for everybody."
)
ROWS = (
    "The runner gives logits, and the sampler tokens, for those scheduled requests that sample, in the "
    "order of the plan. A prompt that is computed in chunks has none until its last chunk."
)
SICK = "NaN in one row says nothing about the others: whoever waits for them must not pay for it."


@task("7.4")
def test_nothing_to_do(part: ModuleType) -> None:
    """A step without requests returns nothing and does not run the model."""
    bench = bench_of(part, "7.4")
    expect_equal(bench.step(), [], "what step returned")
    expect_equal(bench.work.runs, 0, "runs of the model, with a plan that schedules nothing")
    expect_equal(bool(bench.quiet.has_work), False, "has_work")


@task("7.4")
def test_one_step_for_all(part: ModuleType) -> None:
    """A step asks scheduler, runner and sampler once each, however many requests there are."""
    bench = bench_of(part, "7.4")
    requests = [bench.say(said, max_tokens=9) for said in ("abc", "xyz", "mno")]
    bench.step()
    work = bench.work
    expect_equal(
        (work.schedules, work.runs, work.samples),
        (1, 1, 1),
        "calls of schedule, run and sample in one step",
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
    bench = bench_of(part, "7.4", Settings(token_budget=6), turned=True)
    first = bench.say("abcd", max_tokens=9)
    second = bench.say("xyz", prompt=[1] * 12, max_tokens=9)
    told = [sorted(o.request.request_id for o in bench.step()) for _ in range(3)]
    expect_equal(told, [["r0"], ["r0"], ["r0", "r1"]], "who has an output, step by step", why=ROWS)
    texts = [bench.text(first), bench.text(second)]
    expect_equal(texts, ["abc", "x"], "the texts after three steps", why=ROWS)
    bench = bench_of(part, "7.4", Settings(token_budget=4))
    bench.say("a", prompt=[0] * 10, max_tokens=9)
    outputs = [len(bench.step()) for _ in range(3)]
    expect_equal(
        outputs, [0, 0, 1], "outputs a step, with a prompt of 10 tokens and a budget of 4", why=ROWS
    )


@task("7.4")
def test_the_time_of_the_first_token(part: ModuleType) -> None:
    """first_token_time is set when a request gains its first token, and stays."""
    bench = bench_of(part, "7.4", Settings(token_budget=4))
    request = bench.say("abcdef", prompt=[0] * 6, max_tokens=9)
    bench.step()
    expect_equal(request.first_token_time, None, "first_token_time after a chunk of the prompt")
    bench.step()
    first = request.first_token_time
    expect(
        first is not None,
        "first_token_time is None after the first token",
        why="The server's metric of the time to the first token is made of it.",
    )
    bench.step()
    expect(request.first_token_time == first, "first_token_time changes with the second token")


@task("7.4")
def test_logits_that_are_not_finite(part: ModuleType) -> None:
    """A request whose logits are NaN ends with an error, told once; the others go on."""
    bench = bench_of(part, "7.4")
    well = bench.say("abcdefgh", max_tokens=9)
    sick = bench.say([0, NAN], max_tokens=9)
    other = bench.say("xyzxyzxyz", max_tokens=9)
    for _ in range(4):
        bench.step()
    expect_equal(
        [bench.text(well), bench.text(other)], ["abcd", "xyzx"], "the others' texts", why=SICK
    )
    expect_equal(sick.finish_reason, FinishReason.ERROR, "finish_reason of the sick one")
    expect_equal(
        bench.ends(sick),
        [FinishReason.ERROR],
        "its reasons in the outputs: one",
        why="A client waits for a last output; without one it waits for ever.",
    )
    last = bench.of(sick)[-1]
    expect_equal(
        (last.text, last.token_ids),
        ("", []),
        "text and tokens of its last output",
        why="-1 is the sampler's sign that there is no token, not a token.",
    )
    expect_equal(sick.output_token_ids, [0], "its tokens", why="-1 is no token.")
    expect(
        sick.error,
        "`error` of the sick request is empty",
        why="Whoever gets an error should read what was wrong.",
    )


@task("7.4")
def test_sick_keys_and_values_are_not_kept(part: ModuleType) -> None:
    """What a request with NaN logits has computed is not filed for others to find."""
    bench = bench_of(part, "7.4")
    sick = bench.say([NAN], prompt=[0] * 8, max_tokens=9)
    bench.step()
    expect_equal(sick.finish_reason, FinishReason.ERROR, "finish_reason")
    expect_equal(
        bench.toy.cache.stats()["cached_blocks"],
        0,
        "blocks in the prefix cache",
        why="update() files the blocks of all who are alive. Whoever has the same prompt then "
        "gets the broken K and V: end the request first.",
    )
    expect_equal(sick.first_token_time, None, "first_token_time of a request without a token")
    expect_equal(bool(bench.quiet.has_work), False, "has_work")


@task("7.4")
def test_a_request_that_cannot_run(part: ModuleType) -> None:
    """What the scheduler fails is told once, and whoever it schedules in the same step still runs."""
    bench = bench_of(part, "7.4", Settings(num_blocks=2))
    greedy = bench.say("abcdefgh", prompt=[0] * 4, max_tokens=9)
    waiting = bench.say("xyz", prompt=[1] * 5, max_tokens=9)
    for _ in range(8):
        bench.step()
        if greedy.is_finished:
            break
    expect_equal(
        bench.ends(greedy),
        [FinishReason.ERROR],
        "how the first one was told to end",
        why="plan.failed lists requests that have ended. Nobody else tells their clients.",
    )
    expect_equal(
        bench.text(waiting),
        "x",
        "the text of the one that waited, after the step in which the other failed",
        why="A plan can fail one request and schedule another.",
    )
    expect_equal(bench.text(greedy), "abcde", "the text of the failed one, in a pool of 8 slots")


@task("7.4")
def test_a_row_of_somebody_who_has_ended(part: ModuleType) -> None:
    """A plan may hold a request that is over (static batches compute it on): it is passed over."""
    note("static batching: whoever ends keeps its row in the batch until all have ended")
    bench = bench_of(part, "7.4", Settings(static=True))
    over = bench.say([0, NAN], max_tokens=1)
    other = bench.say("xyzxyz", max_tokens=9)
    bench.step()
    if not over.is_finished:
        return  # task 7.3 is not right yet, and says so
    why = "A finished request is told its end once: what its row says later is nobody's token."
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
