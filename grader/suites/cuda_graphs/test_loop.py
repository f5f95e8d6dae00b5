"""Task 17.7: the next step is on its way before the one before is read."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, task
from grader.kit.toy import Settings
from grader.suites.cuda_graphs.loops import FORGOTTEN, MASKS, LoopBench, unsent

ORDER = (
    "The next step is sent before the result of the last one is asked for: while the host takes that "
    "over, the device computes. One step is in flight then, never two, whose tokens would come later."
)
OLDEST = (
    "The result of the oldest step in flight is asked for: the worker carries steps out in order, and "
    "tokens are told in order."
)
EACH = "Each plan is sent by a call of `execute` of its own, before the next one is made."
TOO_EARLY = (
    "A plan is sent as soon as it is made. One that is kept until the next call holds requests that "
    "have ended meanwhile: they would be sent once more, and write to blocks that they have given "
    "back."
)
FIRST = (
    "Nothing was in flight: there is no result to wait for, and waiting would let the device rest."
)
DRAIN = (
    "A plan of nothing is not in flight: everybody waits for a token that is unread. So the call takes "
    "the oldest step over, and the next one has something to plan."
)
IN_FLIGHT = (
    "A plan that schedules no request is not empty if it moves blocks: it is in flight like any other. "
    "So the call takes the step before it over, and a later call this one."
)
MOVES = (
    "A plan that schedules no request may move blocks. It is sent like any other, and taken over."
)
OWN = "What is in flight belongs to a loop: a process may have two, for two models."
FAILED = (
    "A request that can never run was in no step. Its last output needs no result: tell it in the same "
    "call, once."
)
SAME = (
    "The loop changes when things happen, not what: each request has the tokens that it has alone."
)
DROPPED = (
    "A request that ends by a result is in the step in flight as well. Its token there is one too "
    "many; lab 6's update and lab 7's take drop it. The loop hands them every outcome, in order."
)


@task("17.7")
def test_the_order_of_calls(part: Any) -> None:
    """Step n + 1 is scheduled, sent and advanced before the result of step n is asked for."""
    bench = LoopBench(part)
    bench.say([1, 2, 0], 4)
    bench.step()
    expect("schedule 2" not in bench.calls, "the first call plans step 2 already", why=TOO_EARLY)
    expect_equal(
        bench.calls,
        ["schedule 1", "execute 1", "advance 1"],
        "the calls of the first step",
        why=FIRST,
    )
    for n in (2, 3):
        bench.calls.clear()
        bench.step()
        right = [
            f"schedule {n}",
            f"execute {n}",
            f"advance {n}",
            f"result {n - 1}",
            f"update {n - 1}",
        ]
        unsent_calls = [call for call in right[:3] if call not in bench.calls]
        what, why = f"the calls of step {n}", ORDER
        if f"result {n}" in bench.calls:
            why = OLDEST
        if unsent_calls:
            what, why = f"{what}, in which `{unsent_calls[0]}` is missing", EACH
        expect_equal(bench.calls, right, what, why=why)


@task("17.7")
def test_the_first_call_only_sends(part: Any) -> None:
    """The first call returns nothing, the second the tokens of the first step."""
    bench = LoopBench(part)
    request = bench.say([1, 2, 0], 4)
    expect_equal(len(bench.step()), 0, "outputs of the first call", why=FIRST)
    told = [output.token_ids for output in bench.step()]
    expect_equal(told, [bench.expected(request)[:1]], "what the second call tells")


@task("17.7")
def test_all_is_read(part: Any) -> None:
    """Every step is taken over, the last one too, and `has_work` is true until then."""
    for max_tokens in (1, 2, 5):
        bench = LoopBench(part)
        request = bench.say([1, 2, 0, 4], max_tokens)
        bench.run()
        expect_equal(
            bench.tokens(request), bench.expected(request), "the tokens told", why=FORGOTTEN
        )
        expect_equal(bool(bench.loop.has_work), False, "has_work, at the end")


@task("17.7")
def test_nothing_to_do(part: Any) -> None:
    """Without requests a step returns nothing, and there is no work."""
    bench = LoopBench(part)
    expect_equal(bool(bench.loop.has_work), False, "has_work")
    expect_equal(bench.step(), [], "outputs of a step")
    expect_equal(bool(bench.loop.has_work), False, "has_work after a step of nothing")
    bench.say([1], 1)
    expect_equal(bool(bench.loop.has_work), True, "has_work with a request that waits")


@task("17.7")
def test_a_plan_of_nothing(part: Any) -> None:
    """When all wait for a token in flight, the call takes over the oldest step."""
    bench = LoopBench(part)
    request = bench.say([1, 2], 1)
    bench.step()
    told = bench.step()
    expect_equal(
        [o.token_ids for o in told],
        [bench.expected(request)],
        "what the second call tells",
        why=DRAIN,
    )
    if "execute 2" not in bench.calls:
        bench.expect_sent([2])
    bench.expect_advanced(2)
    expect_equal(bool(bench.loop.has_work), False, "has_work", why=DRAIN)


@task("17.7")
def test_a_plan_of_moves(part: Any) -> None:
    """A plan that moves blocks alone is sent, and its outcome is taken over in its turn."""
    bench = LoopBench(part)
    request = bench.say([1, 2, 0], 2)
    bench.step()
    bench.step()
    note("the next plan copies block 10 to block 11")
    bench.scheduler.copies = [(10, 11)]
    bench.calls.clear()
    bench.step()
    calls = [call for call in bench.calls if call in ("execute 3", "result 2")]
    what = "the calls of step 3, which moves blocks, and of the result before it"
    expect_equal(
        calls, ["execute 3", "result 2"], what, why=IN_FLIGHT if len(calls) == 1 else ORDER
    )
    bench.run()
    sent = [call for call in bench.calls if call.startswith("execute")]
    taken = [call for call in bench.calls if call.startswith("update")]
    expect_equal("execute 3" in sent, True, "whether the plan of moves was sent", why=MOVES)
    expect_equal("update 3" in taken, True, "whether it was taken over", why=MOVES)
    expect_equal(bench.tokens(request), bench.expected(request), "the tokens told", why=MOVES)


@task("17.7")
def test_a_request_that_can_never_run(part: Any) -> None:
    """It is told in the call whose plan says so, once, beside what that call takes over."""
    bench = LoopBench(part)
    bench.say([1, 2, 0], 9)
    bench.step()
    doomed = bench.say([4, 4], 3)
    note("the next plan says that r1 can never run")
    bench.scheduler.fail = [doomed]
    told = [
        (o.request_id, str(o.finish_reason)) for o in bench.step() if o.finish_reason is not None
    ]
    expect_equal(told, [("r1", "error")], "who ends in that call", why=FAILED)
    bench.run()
    count = sum(o.request_id == "r1" for o in bench.outputs)
    expect_equal(count, 1, "outputs of r1, in all", why=FAILED)
    bench = LoopBench(part)
    bench.say([1, 2, 0], 2)
    doomed = bench.say([4, 4], 3)
    note("the first plan, with which nothing is in flight yet, says that r1 can never run")
    bench.scheduler.fail = [doomed]
    told = [(o.request_id, str(o.finish_reason)) for o in bench.step()]
    expect_equal(told, [("r1", "error")], "what the first call tells", why=FAILED)
    bench.run()


@task("17.7")
def test_two_loops(part: Any) -> None:
    """Two loops have steps in flight of their own."""
    one, other = LoopBench(part), LoopBench(part)
    requests = [bench.say([1, 2, 0], 3) for bench in (one, other)]
    one.step()
    note("the first call of a second loop, which has an engine of its own")
    try:
        other.step()
    except Exception:
        if "result 1" not in one.calls:
            raise
    problem = "the first call of the second loop asks for the result of the first loop's step"
    expect("result 1" not in one.calls, problem, why=OWN)
    for bench, request in zip((one, other), requests, strict=True):
        bench.run()
        what = "the tokens told, of two loops that take turns"
        expect_equal(bench.tokens(request), bench.expected(request), what, why=OWN)


@task("17.7")
def test_ended_while_its_next_step_is_in_flight(part: Any) -> None:
    """A request that ends late has its tokens up to the end and no more; no other one is disturbed."""
    for prompt in ([1, 2, 0], [0, 1], [4, 4, 2], [2], [3, 0, 3, 1]):
        bench = LoopBench(part, Settings(num_blocks=5, max_num_seqs=3))
        requests = [bench.say(prompt, 12), bench.say([2, 2, *prompt], 7), bench.say([4], 9)]
        bench.run()
        for request in requests:
            name = request.request_id
            expect_equal(
                bench.tokens(request),
                bench.expected(request),
                f"the tokens told of {name}",
                why=DROPPED,
            )
            expect_equal(
                request.output_token_ids,
                bench.expected(request),
                f"the output of {name}",
                why=DROPPED,
            )
        bench.toy.check_empty()


@task("17.7")
def test_masks(part: Any) -> None:
    """Masks of a step are sent once all tokens before it are known, and before the next step is sent."""
    bench = LoopBench(part)
    request = bench.say([1, 2, 0], 6, masked=True)
    other = bench.say([4, 1], 4)
    bench.step()
    problem = "step 1 is sent with no step before it in flight, and its masks are not sent"
    expect("masks 1" in bench.calls, problem, why=MASKS)
    bench.step()
    problem = "step 1 is read, and the masks of step 2, which is in flight, are not sent"
    expect("masks 2" in bench.calls, problem, why=unsent(2))
    bench.run()
    expect_equal(bench.tokens(request), bench.expected(request), "the tokens told", why=MASKS)
    expect_equal(bench.tokens(other), bench.expected(other), "the tokens told of r1", why=MASKS)


@task("17.7")
def test_given_up_in_mid_flight(part: Any) -> None:
    """A request that is aborted while it is in flight gains nothing more; the others go on."""
    bench = LoopBench(part, Settings(num_blocks=6, max_num_seqs=2))
    first, second, third = bench.say([1, 2], 9), bench.say([2, 0, 1], 9), bench.say([4, 1, 1], 5)
    bench.step()
    bench.step()
    note("loop.abort('r0')")
    expect_equal(bench.loop.abort("r0"), True, "loop.abort('r0')")
    bench.run()
    expect_equal(len(bench.tokens(first)) <= 1, True, "whether r0 gains nothing behind its end")
    for request in (second, third):
        expect_equal(
            bench.tokens(request), bench.expected(request), "the tokens of the others", why=SAME
        )
    bench.toy.check_empty()


@task("17.7")
def test_any_life(part: Any) -> None:
    """Whatever comes, ends and crowds the pool: the tokens of each request are those it has alone."""
    any_life(part)


@examples(25)
@given(data=st.data())
def any_life(part: Any, data: st.DataObject) -> None:
    settings = Settings(
        num_blocks=data.draw(st.integers(4, 8)),
        token_budget=data.draw(st.integers(3, 9)),
        max_num_seqs=data.draw(st.integers(1, 4)),
        num_host_blocks=data.draw(st.sampled_from([0, 8])),
    )
    bench = LoopBench(part, settings)
    requests = []
    for _ in range(data.draw(st.integers(1, 4))):
        prompt = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=7))
        most = data.draw(st.integers(1, 6))
        requests.append(bench.say(prompt, most, masked=data.draw(st.booleans())))
        for _ in range(data.draw(st.integers(0, 2))):
            bench.step()
    bench.run()
    for request in requests:
        expect_equal(
            bench.tokens(request),
            bench.expected(request),
            f"the tokens told of {request.request_id}",
            why=SAME,
        )
    bench.toy.check_empty()
