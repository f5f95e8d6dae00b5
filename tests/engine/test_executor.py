"""Plans go to a worker as data; masks, log-probabilities and failures come to their requests."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from yaie import LLMEngine, SamplingParams
from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.constraint import Constraint
from yaie.core.logprobs import TokenLogprob
from yaie.core.request import FailureKind, Request, RequestStatus
from yaie.core.step import Arrays, Fault, StepInput, StepMasks, StepResult
from yaie.engine import build
from yaie.engine.asks.base import Vocabulary
from yaie.engine.step.encoder import StepEncoder
from yaie.engine.step.executor import StepExecutor
from yaie.engine.step.explaining import StepFaultError
from yaie.engine.step.failures import CORRUPTED
from yaie.engine.step.hooks import Hooks

VOCAB = 20


class Handle:
    """A step that a worker has begun, with a result given beforehand."""

    def __init__(self, calls: list[Any], result: StepResult) -> None:
        self._calls = calls
        self._result = result

    def mask(self, masks: StepMasks) -> None:
        """See the contract."""
        self._calls.append(masks)

    def result(self) -> StepResult:
        """See the contract."""
        self._calls.append("result")
        return self._result


class ScriptedWorker:
    """Gives one result after the other. calls: what it was sent and asked, in order."""

    def __init__(self, *results: StepResult) -> None:
        self.calls: list[Any] = []
        self._results = deque(results)

    def execute(self, step: StepInput) -> Handle:
        """See the contract."""
        self.calls.append(step)
        return Handle(self.calls, self._results.popleft())

    def close(self) -> None:
        """See the contract."""


class Matcher:
    """Allows these tokens. num_seen: of the request's output, at the last call."""

    def __init__(self, request: Request, *allowed: int) -> None:
        self.error: str | None = None
        self.num_seen = -1
        self._request = request
        self._allowed = allowed

    def fill_ahead(self, rows: np.ndarray, drafts: Sequence[int]) -> None:
        """As the engine's own."""
        assert len(rows) == 1 + len(drafts)
        self.num_seen = self._request.num_output_tokens
        rows[:] = 0
        for token in self._allowed:
            rows[:, token // 8] |= 1 << token % 8


class Told:
    """A PlanStage that keeps the plans it is told of."""

    def __init__(self) -> None:
        self.plans: list[StepPlan] = []

    def extend(self, plan: StepPlan) -> None:
        """See PlanStage."""
        self.plans.append(plan)


def executor_of(worker: ScriptedWorker, told: Told | None = None) -> StepExecutor:
    hooks = Hooks([] if told is None else [told])
    return StepExecutor(worker, StepEncoder(8, Vocabulary(VOCAB)), VOCAB, hooks)


def request_of(name: str = "a", prompt: tuple[int, ...] = (1, 2), **params: Any) -> Request:
    request = Request(name, list(prompt), SamplingParams(**params))
    request.status = RequestStatus.RUNNING
    return request


def plan_of(*requests: Request, samples: bool = True) -> StepPlan:
    return StepPlan([ScheduledRequest(request, 0, 2, [3], samples) for request in requests])


def tells(token: int) -> TokenLogprob:
    return TokenLogprob(token, -1.0)


def told(row: int, *tokens: int) -> Arrays:
    """The same of tokens of a row, as a worker does."""
    count = len(tokens)
    none = np.zeros(count, np.int32)
    return {
        "rows": np.full(count, row, np.int32),
        "token_ids": np.array(tokens, np.int32),
        "logprobs": np.full(count, -1, np.float32),
        "ranks": none,
        "counts": none,
        "top_ids": np.zeros((count, 0), np.int32),
        "top_logprobs": np.zeros((count, 0), np.float32),
    }


def test_plan_of_nothing_is_sent_to_no_worker() -> None:
    worker, told = ScriptedWorker(), Told()
    executor = executor_of(worker, told)
    failed = request_of()
    outcome = executor.execute(StepPlan(failed=[failed])).result()
    assert (outcome.token_ids, outcome.failed) == ([], [])
    assert worker.calls == []
    assert [plan.failed for plan in told.plans] == [[failed]]


def test_plan_that_only_moves_blocks_is_sent() -> None:
    worker = ScriptedWorker(StepResult(0))
    executor_of(worker).execute(StepPlan(swap_out=[(1, 2)])).result()
    assert worker.calls[0].swap_out.tolist() == [[1, 2]]


def test_execute_returns_before_the_result_is_asked_for() -> None:
    worker, told = ScriptedWorker(StepResult(0, [[7]])), Told()
    plan = plan_of(request_of())
    sent = executor_of(worker, told).execute(plan)
    assert [type(call) for call in worker.calls] == [StepInput]
    assert told.plans == [plan]
    assert sent.result().token_ids == [[7]]


# --- masks ---


def test_masks_are_made_when_the_result_is_wanted_and_the_token_before_is_known() -> None:
    worker = ScriptedWorker(StepResult(0, [[4], [5], [6]]))
    requests = [request_of(name) for name in "abc"]
    for request, allowed in ((requests[0], (0, 9, 19)), (requests[2], (8,))):
        request.matcher = Matcher(request, *allowed)
    sent = executor_of(worker).execute(plan_of(*requests))
    requests[0].token_ids.append(9)
    sent.result()
    step, masks, asked = worker.calls
    assert asked == "result"
    assert masks.step == step.step
    assert masks.seats.tolist() == [step.seats[0], step.seats[2]]
    bits = np.unpackbits(masks.bits, axis=1, bitorder="little")[:, :VOCAB]
    assert [np.flatnonzero(row).tolist() for row in bits] == [[0, 9, 19], [8]]
    assert requests[0].matcher.num_seen == 1


def test_masks_are_sent_once() -> None:
    worker = ScriptedWorker(StepResult(0, [[4]]))
    request = request_of()
    request.matcher = Matcher(request, 4)
    sent = executor_of(worker).execute(plan_of(request))
    sent.send_masks()
    sent.send_masks()
    sent.result()
    assert sum(isinstance(call, StepMasks) for call in worker.calls) == 1


def test_request_that_has_ended_may_draw_anything() -> None:
    """Its matcher may be at an end, and what it draws goes nowhere."""
    worker = ScriptedWorker(StepResult(0, [[4]]))
    request = request_of()
    request.matcher = Matcher(request)
    sent = executor_of(worker).execute(plan_of(request))
    request.status = RequestStatus.FINISHED
    sent.result()
    assert worker.calls[1].bits.tolist() == [[255, 255, 255]]
    assert request.matcher.num_seen == -1


def test_step_without_constrained_draws_gets_no_masks() -> None:
    worker = ScriptedWorker(StepResult(0), StepResult(1, [[4]]))
    executor = executor_of(worker)
    request = request_of()
    request.matcher = Matcher(request, 4)
    executor.execute(plan_of(request, samples=False)).result()
    executor.execute(plan_of(request_of("b"))).result()
    assert not any(isinstance(call, StepMasks) for call in worker.calls)


# --- what comes back ---


def test_logprobs_are_noted_with_the_tokens_they_belong_to() -> None:
    worker = ScriptedWorker(StepResult(0, [[4], [5, 6]], extras={"logprobs": told(1, 5, 6)}))
    requests = [request_of("a"), request_of("b", logprobs=0)]
    executor_of(worker).execute(plan_of(*requests)).result()
    assert requests[0].logprobs == []
    assert requests[1].logprobs == [tells(5), tells(6)]


def test_request_that_has_ended_notes_nothing_more() -> None:
    worker = ScriptedWorker(StepResult(0, [[4]], [0], extras={"logprobs": told(0, 4)}))
    request = request_of(logprobs=0)
    sent = executor_of(worker).execute(plan_of(request))
    request.status = RequestStatus.FINISHED
    assert sent.result().failed == []
    assert (request.logprobs, request.error, request.failure) == ([], None, None)


def test_corrupted_rows_fail_with_a_reason_those_that_draw_nothing_too() -> None:
    worker = ScriptedWorker(StepResult(0, [[4], []], [0, 2]))
    chunk, drawing, broken = (request_of(name) for name in "abc")
    plan = plan_of(chunk, drawing, broken)
    plan.scheduled[0].samples = False
    outcome = executor_of(worker).execute(plan).result()
    assert outcome.token_ids == [[4], []]
    assert outcome.failed == [chunk, broken]
    for request in outcome.failed:
        assert (request.error, request.failure) == (CORRUPTED, FailureKind.CORRUPTED)
    assert drawing.error is None


def test_matcher_that_cannot_go_on_is_the_reason() -> None:
    worker = ScriptedWorker(StepResult(0, [[]], [0]))
    request = request_of()
    request.matcher = Matcher(request)
    request.matcher.error = "the grammar leaves nothing"
    (failed,) = executor_of(worker).execute(plan_of(request)).result().failed
    assert (failed.error, failed.failure) == ("the grammar leaves nothing", FailureKind.CONSTRAINT)


def test_fault_is_raised_with_its_place() -> None:
    fault = Fault("division by zero", "sampler", "labs/sampler/sampler.py:12")
    worker = ScriptedWorker(StepResult(0, fault=fault))
    with pytest.raises(
        StepFaultError, match=r"division by zero \(labs/sampler/sampler.py:12\)"
    ) as error:
        executor_of(worker).execute(plan_of(request_of())).result()
    assert error.value.fault is fault


def noted(request: Request, *pieces: tuple[int, list[int]]) -> None:
    """Steps that start somewhere in its prompt have told of these tokens."""
    results = [
        StepResult(number, extras={"prompt_logprobs": told(0, *tokens)})
        for number, (_, tokens) in enumerate(pieces)
    ]
    executor = executor_of(ScriptedWorker(*results))
    for start, _ in pieces:
        item = ScheduledRequest(request, start, 2, [3], False)
        executor.execute(StepPlan([item])).result()


def test_prompt_logprobs_are_put_together_from_chunks() -> None:
    request = request_of(prompt=(1, 2, 3, 4, 5), prompt_logprobs=0)
    noted(request, (0, [2, 3]), (2, [4, 5]))
    assert request.prompt_logprobs == [None, *map(tells, (2, 3, 4, 5))]


def test_recomputed_prompt_tells_nothing_twice() -> None:
    request = request_of(prompt=(1, 2, 3, 4, 5), prompt_logprobs=0)
    noted(request, (0, [2, 3]), (0, [2]), (1, [3, 4, 5]))
    assert request.prompt_logprobs == [None, *map(tells, (2, 3, 4, 5))]


def test_prompt_that_began_in_the_cache_cannot_be_told(caplog: pytest.LogCaptureFixture) -> None:
    request = request_of(prompt=(1, 2, 3, 4, 5), prompt_logprobs=0)
    noted(request, (2, [4, 5]))
    assert request.failure is FailureKind.ENGINE
    assert "failed on this request alone (RuntimeError)" in (request.error or "")
    assert "2 cached tokens" in caplog.text


# --- with the overlapped loop ---


def test_first_of_overlapped_steps_is_masked_before_the_second_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker in this thread, as on a GPU, computes the second as soon as it is sent."""
    lark = Constraint("lark", "start: /[a-z ]{12}/")
    params = SamplingParams(temperature=1.0, seed=4, max_tokens=20, constraint=lark)

    def answers(**settings: Any) -> list[list[int]]:
        engine = LLMEngine(num_blocks=32, threads=1, **settings)
        drawn = []
        for prompt in ("Is a block a page?", "Is it?"):
            (request,) = engine.add_request(prompt, params)
            while engine.has_work:
                engine.step()
                engine.check()
            drawn.append(request.output_token_ids)
        engine.close()
        return drawn

    in_order = answers(overlap="off")
    assert answers(overlap="on") == in_order
    monkeypatch.setattr(build, "ThreadedWorker", lambda worker, num_threads: worker)
    assert answers(overlap="on") == in_order
