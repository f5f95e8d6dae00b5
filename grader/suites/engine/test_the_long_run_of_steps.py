"""Tasks 7.3 to 7.5 beyond a few steps: large ids, long prompts, crowds, results that stay."""

import sys
from collections.abc import Callable
from itertools import count
from types import FrameType, ModuleType
from typing import Any

from grader.kit import Fault, expect_equal, note, start_script, task
from grader.kit.memory import expect_keeps_nothing, peak_of
from grader.kit.standing import BUFFER
from grader.suites.engine.bench import bench_of, decode, tokens_of
from grader.suites.engine.desk import Desk, core_on, queue
from grader.suites.engine.far_tokens import FAR, first_wrong, from_far
from grader.suites.engine.lending import core_class
from solutions.engine import Detokenizer
from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request

MANY = 1200
"""Requests of one step: more than a test would write down one by one."""
LONG = 100_000
"""Tokens of a prompt."""
SAID_BEFORE = 20_000
"""Tokens of an answer."""
MOST = 64 << 10
"""Bytes for a step of one request: a list of its tokens takes twelve times as much."""
THE_NEW = (
    "A step has a few new tokens for each request, at the end of its `token_ids`. Take those alone: a "
    "copy of the list costs as much as prompt and answer are long, at every step."
)
UNCHANGED = (
    "Plan and outcome are the scheduler's and the executor's, which may keep them, as a trace of the "
    "steps does. What take leaves out, it leaves out of its own lists."
)
NO_OTHER = (
    "An id names one request. A fork has a client that reads it too, or is aborted by its own id."
)
CROWD = "A step has as many requests as the scheduler lets in. Each that gained or failed has an output."


END = 100
SAID = [*tokens_of("abc"), END, *tokens_of("d")]


End = tuple[str, FinishReason | None, str | int | None]


def said_and_ended(part: ModuleType, first: int, stops: bool) -> End:
    """(text, finish_reason, stop_reason) of an answer that stops at "c", or ends with END.

    first: the id of the letter "a".
    """
    letters = from_far(decode, first) if first else decode
    bench = bench_of(
        part, "7.3", detokenizer=lambda: Detokenizer(letters), eos=frozenset({first + END})
    )
    note(f"token {first} is 'a', {first + 1} 'b', {first + 2} 'c', {first + END} ends a sequence")
    stop_ids = [first + 2] if stops else []
    said = [first + token for token in SAID]
    request = bench.say(said, max_tokens=len(SAID), stop_token_ids=stop_ids)
    bench.run()
    return bench.text(request), request.finish_reason, request.stop_reason


def right_end_of(first: int, stops: bool) -> End:
    return ("ab", FinishReason.STOP, first + 2) if stops else ("abc", FinishReason.STOP, None)


def told_apart_by(got: End, right: End, stops: bool) -> str:
    """What was missed, in a sentence."""
    if got[1] is not right[1] or (got[0] != right[0] and got[0].startswith(right[0])):
        mark = "stop token" if stops else "end-of-sequence token"
        return f"The request goes on after its {mark}."
    if got[0] != right[0]:
        return "The text is that of other tokens."
    return "stop_reason is not the token that it stopped at."


@task("7.3")
def test_ids_of_any_size_are_shown_and_end(part: ModuleType) -> None:
    """Text, stop tokens and end-of-sequence tokens beyond 24 bits are what they are."""
    for stops in (False, True):

        def is_right(first: int, stops: bool = stops) -> bool:
            return said_and_ended(part, first, stops) == right_end_of(first, stops)

        if not is_right(0) or is_right(FAR):
            continue  # if it is wrong with small ids, other tests say why
        first, until = first_wrong(is_right)
        got, right = said_and_ended(part, first, stops), right_end_of(first, stops)
        ends = f"stop token {first + 2}" if stops else f"end-of-sequence token {first + END}"
        why = f"{told_apart_by(got, right, stops)} {until}"
        expect_equal(got, right, f"text, finish_reason and stop_reason, with {ends}", why=why)


@task("7.3")
def test_a_token_of_a_long_request_copies_no_prompt(part: ModuleType) -> None:
    """What showing a token takes meanwhile does not grow with the tokens before it."""
    for prompt, said in ((LONG, 0), (1, SAID_BEFORE)):
        start_script()
        note(f"r0: {prompt} tokens of a prompt, {said} of an answer; then steps of one token each")
        desk = Desk()
        core = core_on(core_class(part.EngineCore, "7.3"), desk)
        request = queue(core, "r0", prompt=[0] * prompt)
        if said:
            core.take(desk.schedule(), StepOutcome([[0] * said]))
        # The list of tokens moves now and then, when it has grown: not twice in a few steps.
        peak = min(peak_of(core.step) for _ in range(3))
        if peak > MOST:
            problem = f"behind {prompt + said:,} tokens a step of one more takes {peak:,} bytes"
            length, line = longest_copy(request, core.step)
            copied = f": {length:,} of its `token_ids` are copied" * (length > 1)
            raise Fault(f"{problem}{copied}", why=THE_NEW, line=line)


class SlicesSeen(list[int]):
    """Tokens that know the longest part of them that was copied, and the part's line that it was for."""

    longest: tuple[int, tuple[str, int] | None] = (0, None)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(index, slice) and len(found) > self.longest[0]:
            self.longest = len(found), _line_of_the_part(sys._getframe())
        return found


def _line_of_the_part(frame: FrameType | None) -> tuple[str, int] | None:
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("labs."):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def longest_copy(request: Request, step: Callable[[], Any]) -> tuple[int, tuple[str, int] | None]:
    """How many of a request's tokens a step copies at once, and at which line of the part."""
    request.token_ids = seen = SlicesSeen(request.token_ids)
    step()
    return seen.longest


@task("7.3")
def test_answers_leave_nothing_behind(part: ModuleType) -> None:
    """Of a request that has ended by itself a step loop keeps nothing."""
    desk, number = Desk(), count()
    core = core_on(core_class(part.EngineCore, "7.3"), desk)

    def call() -> None:
        queue(core, f"r{next(number)}").max_tokens = 1
        core.step()

    expect_keeps_nothing(call, "a request that ends with its first token")


@task("7.4")
def test_a_crowd_gains_and_fails(part: ModuleType) -> None:
    """However many requests gain a token, or fail, each has its output in that step."""
    start_script()
    note(f"{MANY} requests are in one plan")
    desk = Desk()
    core = core_on(core_class(part.EngineCore, "7.4"), desk)
    requests = [queue(core, f"r{number}") for number in range(MANY)]
    got = len(core.step())
    expect_equal(got, MANY, "how many outputs a step returned", why=CROWD)
    outputs = core.take(StepPlan(), StepOutcome([], failed=list(requests)))
    expect_equal(
        len(outputs), MANY, "how many outputs take returned when all have failed", why=CROWD
    )
    expect_equal(len(desk.requests), 0, "how many are queued still", why=CROWD)
    expect_equal(bool(core.has_work), False, "has_work", why=CROWD)


def outputs_of(core: Any, desk: Desk, by_take: bool) -> list[RequestOutput]:
    """What one step for all requests returned, or `take` with the same plan and outcome."""
    outputs: list[RequestOutput] = (
        core.take(desk.schedule(), desk.result()) if by_take else core.step()
    )
    return outputs


@task("7.4")
def test_what_a_step_returned_stays(part: ModuleType) -> None:
    """The outputs of one step are no list that the next one fills."""
    for name in ("step", "take"):
        start_script()
        note(f"r0 and r1 gain a token by {name}, then r1 fails, and r0 gains another")
        desk = Desk()
        core = core_on(core_class(part.EngineCore, "7.4"), desk)
        for number in range(2):
            queue(core, f"r{number}")
        first = outputs_of(core, desk, name == "take")
        was = [output.request_id for output in first]
        core.take(StepPlan(), StepOutcome([], failed=[desk.requests["r1"]]))
        outputs_of(core, desk, name == "take")
        now = [output.request_id for output in first]
        what = f"whose outputs the first {name} had returned, after the next"
        expect_equal(now, was, what, why=BUFFER)


@task("7.4")
def test_plan_and_outcome_stay(part: ModuleType) -> None:
    """`take` changes neither the plan nor the outcome."""
    start_script()
    note("a plan has r0 and r1, and has failed r2; r1 fails in the step; then take")
    desk = Desk()
    core = core_on(core_class(part.EngineCore, "7.4"), desk)
    requests = [queue(core, f"r{number}") for number in range(3)]
    desk.finish(requests[2], FinishReason.ERROR)
    plan, outcome = desk.schedule(), StepOutcome([[0], []], failed=[requests[1]])
    plan.failed = [requests[2]]
    before = held_by(plan, outcome)
    core.take(plan, outcome)
    what = "scheduled and failed of the plan, token_ids and failed of the outcome, after take"
    expect_equal(held_by(plan, outcome), before, what, why=UNCHANGED)


def held_by(plan: StepPlan, outcome: StepOutcome) -> tuple[Any, ...]:
    scheduled = [item.request.request_id for item in plan.scheduled]
    failed = [[request.request_id for request in one.failed] for one in (plan, outcome)]
    return scheduled, failed[0], [list(tokens) for tokens in outcome.token_ids], failed[1]


@task("7.4")
def test_steps_leave_nothing_behind(part: ModuleType) -> None:
    """Of a request that is over, and of plans and outcomes, a step loop keeps nothing."""
    desk, number = Desk(), count()
    core = core_on(core_class(part.EngineCore, "7.4"), desk)

    def call() -> None:
        request = queue(core, f"r{next(number)}")
        core.step()
        core.take(StepPlan(), StepOutcome([], failed=[request]))

    expect_keeps_nothing(call, "a request that takes a step and fails")


@task("7.5")
def test_any_name_may_be_a_strangers(part: ModuleType) -> None:
    """abort answers False for a name that no request has, "" too, and True once one has it."""
    core = core_on(core_class(part.EngineCore, "7.5"), Desk())
    for name in ("stranger", ""):
        why = "A request id is any string. Ask whether one is alive that has it, and answer in a bool."
        expect_equal(core.abort(name), False, f"abort({name!r}) of a stranger", why=why)
        queue(core, name)
        expect_equal(core.abort(name), True, f"abort({name!r}) of a request", why=why)


@task("7.5")
def test_no_other_request_ends(part: ModuleType) -> None:
    """A request whose id begins with the aborted one's goes on, and so does a fork of it."""
    start_script()
    note("r1, r10 and r1-1 are alive, the last one a fork of r1; then abort('r1')")
    desk = Desk()
    core = core_on(core_class(part.EngineCore, "7.5"), desk)
    gone, _, fork = [queue(core, name) for name in ("r1", "r10", "r1-1")]
    fork.fork_of = gone
    expect_equal(core.abort(" r1 "), False, "what abort(' r1 ') returned", why=NO_OTHER)
    expect_equal(core.abort("r1"), True, "what abort returned")
    expect_equal(list(desk.requests), ["r10", "r1-1"], "who is queued after it", why=NO_OTHER)
    for name in ("r10", "r1-1"):
        expect_equal(core.abort(name), True, f"what abort({name!r}) returned then", why=NO_OTHER)


@task("7.5")
def test_aborts_leave_nothing_behind(part: ModuleType) -> None:
    """Of an aborted request nothing is kept, nor of one that was not there."""
    desk, number = Desk(), count()
    core = core_on(core_class(part.EngineCore, "7.5"), desk)

    def call() -> None:
        name = f"r{next(number)}"
        queue(core, name)
        core.abort(name)
        core.abort(name)

    expect_keeps_nothing(call, "a request that is aborted twice")
