"""A step loop under test on the reference's scheduler and cache, with an executor that has a script.

    bench = bench_of(part, "7.3")
    request = bench.say("abc", max_tokens=2)      the model will say "abc", then dots without end
    bench.run()                                   step until there is no work
    bench.text(request), request.finish_reason

A letter is a token: 0 is "a". So is every other byte, and EOS, which has no text. NAN is a row of logits
that is not finite.

A bench drives the core in one of two ways: through `step`, which only task 7.4 is graded on, or with a
loop of its own that calls `take`. Such a loop may keep a step in flight, as the engine's overlapped one
does: then it takes the outcome of step n after step n + 1 has begun. Requests that a plan has failed do
not wait for that: they are taken over at once, with a plan of their own.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from types import ModuleType
from typing import Any

from grader.kit import expect, note, start_script, watch
from grader.kit.script import current_script
from grader.kit.toy import Settings, Toy
from grader.kit.toy_words import tell_plan
from grader.suites.engine.executor import (
    DOT,
    EOS,
    NAN,
    Record,
    Script,
    ScriptedExecutor,
    ScriptedStep,
    WatchedScheduler,
)
from grader.suites.engine.lending import core_class
from solutions.engine import Detokenizer, StopChecker
from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.contracts import Detokenizer as AnyDetokenizer
from yaie.core.output import RequestOutput
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request
from yaie.engine.step.late_stops import stop_checker

__all__ = ["DOT", "EOS", "MOST_STEPS", "NAN", "PLENTY", "Bench", "bench_of", "decode", "tokens_of"]

MOST_STEPS = 400
PLENTY = 20
A_FEW = 3
"""Dots behind what a model has to say: a request that does not end with it is over soon all the same."""
MESSAGE = (
    "Outputs leave the engine, perhaps for another process: plain data, and no Request. "
    "`RequestOutput.of` makes one."
)


def tokens_of(text: str) -> list[int]:
    """One token for each byte; "a" is 0."""
    return [(byte - ord("a")) % 256 for byte in text.encode()]


def decode(token_ids: Sequence[int]) -> str:
    known = [(token + ord("a")) % 256 for token in token_ids if token != EOS]
    return bytes(known).decode("utf-8", "replace")


def tell(output: RequestOutput) -> str:
    """r0: 'ab' [0, 1] ends: stop"""
    expect(
        isinstance(output, RequestOutput)
        and not any(isinstance(getattr(output, f.name), Request) for f in fields(output)),
        f"an output is {output!r:.80}",
        why=MESSAGE,
    )
    end = f" ends: {output.finish_reason}" if output.finish_reason is not None else ""
    return f"{output.request_id}: {output.text!r} {output.token_ids}{end}"


class Told:
    """The core as the script shows it: outputs in words."""

    def __init__(self, core: Any, outputs: list[RequestOutput]) -> None:
        self._core = core
        self._outputs = outputs

    def add_request(self, request: Request) -> None:
        self._core.add_request(request)

    def abort(self, request_id: str) -> bool:
        result: bool = self._core.abort(request_id)
        return result

    def step(self) -> list[str]:
        return self._keep(self._core.step())

    def take(self, plan: StepPlan, outcome: StepOutcome) -> list[str]:
        return self._keep(self._core.take(plan, outcome))

    def _keep(self, outputs: list[RequestOutput]) -> list[str]:
        told = [tell(output) for output in outputs]
        self._outputs += outputs
        return told


class Bench:
    """One core with its requests. outputs: all that it has returned, in order.

    Each begins a script of its own, so that a failure shows the calls on this core alone.

    eos: the tokens that end a sequence. by_step: through the core's own `step`. lag: steps that are in
    flight when the next one begins; 0 or 1, without `by_step`.
    """

    def __init__(
        self,
        kind: type,
        settings: Settings | None = None,
        *,
        detokenizer: Callable[[], AnyDetokenizer] = lambda: Detokenizer(decode),
        by_step: bool = False,
        lag: int = 0,
        eos: frozenset[int] = frozenset({EOS}),
    ) -> None:
        self.toy = Toy(settings or Settings())
        start_script()
        note(f"an engine with {self.toy.settings}")
        self.record = Record(strict=by_step)
        self.outputs: list[RequestOutput] = []
        self.scripts: dict[str, Script] = {}
        self.lag = lag
        self.in_flight: deque[tuple[StepPlan, ScriptedStep]] = deque()
        self.scheduler = WatchedScheduler(self.toy.scheduler, self.toy.cache, self.record)
        self.executor = ScriptedExecutor(self.scripts, self.record)
        checker = partial(stop_checker, StopChecker)
        self.quiet = kind(self.scheduler, self.executor, detokenizer, checker, eos)
        self.core = watch(Told(self.quiet, self.outputs), "core", self._describe)
        self._by_step = by_step

    # Requests.

    def say(
        self,
        said: str | Script,
        *,
        prompt: Sequence[int] = (0,),
        room: int | None = None,
        **params: Any,
    ) -> Request:
        """Queue a request that the model will answer with these letters or tokens.

        room: output tokens that fit into the context. Without it, and without max_tokens, there are a
        few more than the model has to say.
        """
        (request,) = self.toy.make(prompt)
        name = request.request_id
        self.scripts[name] = tokens_of(said) if isinstance(said, str) else list(said)
        if room is None and "max_tokens" not in params:
            params["max_tokens"] = min(len(self.scripts[name]) + A_FEW, PLENTY)
        fits = f", room for {room} tokens in the context" if room is not None else ""
        room = PLENTY if room is None else room
        note(f"{name}: {_about(said, prompt, params)}{fits}")
        request.params = SamplingParams(temperature=0.0, **params)
        request.max_tokens = min(request.params.max_tokens or room, room)
        self.core.add_request(request)
        return request

    def draft(self, num_right: int, num_wrong: int = 0, *, at_once: bool = False) -> None:
        """From now on each decode verifies this many drafts that are right, then so many wrong ones.

        at_once: the step that ends a prompt verifies some already.
        """

        def guess(request: Request) -> list[int]:
            begin = request.num_output_tokens
            right = [self.executor.said(request, begin + i) for i in range(num_right + num_wrong)]
            wrong = [(token + 1) % EOS for token in right[num_right:]]
            return right[:num_right] + wrong

        first = ", the first one too" if at_once else ""
        count = num_right + num_wrong
        note(f"from now on {count} drafts for each token to draw{first}, {num_right} of them right")
        self.scheduler.guess, self.scheduler.guess_at_once = guess, at_once

    # Steps.

    def step(self) -> list[RequestOutput]:
        """One step; what it returned. With a lag, that is the outcome of an earlier one."""
        seen = len(self.outputs)
        if self._by_step:
            self.core.step()
        else:
            self.begin()
            if len(self.in_flight) > self.lag:
                self.take()
        return self.outputs[seen:]

    def begin(self) -> StepPlan:
        """Plan a step, and send it on its way."""
        plan = self.scheduler.schedule()
        if plan.failed:
            alone = StepPlan(failed=list(plan.failed))
            plan.failed.clear()
            note(f"{current_script().name_of(alone)} is not executed: {tell_plan(alone)}")
            self.core.take(alone, StepOutcome())
        pending = self.executor.execute(plan)
        self.scheduler.advance(plan)
        note(f"{current_script().name_of(plan)} is on its way: {tell_plan(plan)}")
        current_script().after = self._describe(None)
        self.in_flight.append((plan, pending))
        return plan

    def take(self) -> None:
        """Have the core take over the outcome of the oldest step in flight."""
        plan, pending = self.in_flight.popleft()
        outcome = pending.result()
        failed = f", failed: {', '.join(r.request_id for r in outcome.failed)}" * bool(
            outcome.failed
        )
        note(f"{current_script().name_of(outcome)}: drew {outcome.token_ids}{failed}")
        self.core.take(plan, outcome)

    @property
    def is_over(self) -> bool:
        return not self.quiet.has_work and not self.in_flight

    def run(self) -> None:
        """Step until there is no work and nothing in flight."""
        for _ in range(MOST_STEPS):
            if self.quiet.has_work:
                self.step()
            elif self.in_flight:
                self.take()
            else:
                return
        expect(
            False,
            f"has_work is still true after {MOST_STEPS} steps",
            why="A request that is over must be forgotten, and one that is not must move on.",
        )

    # What came out.

    def text(self, request: Request) -> str:
        return "".join(output.text for output in self.of(request))

    def of(self, request: Request) -> list[RequestOutput]:
        return [output for output in self.outputs if output.request_id == request.request_id]

    def ends(self, request: Request) -> list[FinishReason]:
        """The reasons in a request's outputs: one, in the last of them, if all is well."""
        return [o.finish_reason for o in self.of(request) if o.finish_reason is not None]

    def _describe(self, told: Any) -> str:
        return "\n".join(self._tell(request) for request in self.toy.requests)

    def _tell(self, request: Request) -> str:
        end = f" ({request.finish_reason})" if request.is_finished else ""
        shown = self.text(request)
        return (
            f"{request.request_id}: {request.status.value}{end}, "
            f"output tokens {request.output_token_ids}, shown {shown!r}"
        )


def _about(said: str | Script, prompt: Sequence[int], params: dict[str, Any]) -> str:
    names = {NAN: "NaN", EOS: "EOS"}
    words = said if isinstance(said, str) else [names.get(token, token) for token in said]
    length = f", prompt {_listed(prompt)}" if len(prompt) > 1 else ""
    given = "".join(f", {key}={_few(value)}" for key, value in params.items())
    return f"the model will say {words!r}{length}{given}"


def _few(value: Any) -> str:
    """A parameter; of a long list its ends, and how many there are."""
    if isinstance(value, list | tuple) and len(value) > PLENTY:
        return f"[{value[0]}, {value[1]}, ..., {value[-1]}] ({len(value):,} of them)"
    return str(value)


def _listed(tokens: Sequence[int]) -> str:
    """[0] * 12, or all of them."""
    return f"[{tokens[0]}] * {len(tokens)}" if len(set(tokens)) == 1 else str(list(tokens))


def bench_of(
    part: ModuleType, task: str, settings: Settings | None = None, **options: Any
) -> Bench:
    """A bench for a test of `task`; what the part has not written of the others is lent to it."""
    return Bench(core_class(part.EngineCore, task), settings, **options)
