"""A step loop under test on the reference's scheduler and cache, with a model that says what it is told.

    bench = bench_of(part, "7.3")
    request = bench.say("abc", max_tokens=2)      the model will answer "abc", then dots without end
    bench.run()                                   step until there is no work
    bench.text(request), request.finish_reason

A letter is a token: 0 is "a". So is every other byte, and EOS, which has no text. NAN is a row of logits
that is not finite.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor

from grader.kit import expect, expect_equal, note, watch
from grader.kit.toy import Settings, Toy
from grader.suites.engine.lending import core_class
from solutions.engine import Detokenizer, StopChecker
from yaie.core.batch import SamplingBatch, StepPlan
from yaie.core.contracts import Detokenizer as AnyDetokenizer
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request, RequestOutput

EOS = 256
NAN = -1
DOT = (ord(".") - ord("a")) % 256
MOST_STEPS = 400
PLENTY = 20

Script = Sequence[int]


def tokens_of(text: str) -> list[int]:
    """One token for each byte; "a" is 0."""
    return [(byte - ord("a")) % 256 for byte in text.encode()]


def decode(token_ids: Sequence[int]) -> str:
    known = [(token + ord("a")) % 256 for token in token_ids if token != EOS]
    return bytes(known).decode("utf-8", "replace")


def tell(output: RequestOutput) -> str:
    """r0: 'ab' [0, 1] ends: stop"""
    end = f" ends: {output.finish_reason}" if output.finish_reason is not None else ""
    return f"{output.request.request_id}: {output.text!r} {output.token_ids}{end}"


@dataclass(slots=True)
class Work:
    """What the step loop had the model do."""

    schedules: int = 0
    runs: int = 0
    samples: int = 0


class Model:
    """Runner and sampler: one-hot logits [num_sampling, EOS + 1] of what each request is to say next.

    strict: say what is wrong with how they are called, which is for task 7.4 to learn.
    """

    def __init__(self, toy: Toy, scripts: dict[str, Script], work: Work, strict: bool) -> None:
        self._toy = toy
        self._strict = strict
        self._scripts = scripts
        self._work = work
        self._logits: Tensor | None = None
        self.meanwhile: Callable[[], object] | None = None

    def run(self, plan: StepPlan) -> Tensor:
        self._work.runs += 1
        expect(
            plan.scheduled or not self._strict,
            "the runner was called with a plan that schedules nothing",
            why="There is nothing to compute: the model needs at least one token.",
        )
        tokens = self._toy.runner.run(plan)
        sampling = [item.request for item in plan.scheduled if item.samples]
        said = [self._next(*pair) for pair in zip(sampling, tokens, strict=True)]
        if self.meanwhile is not None:
            self.meanwhile()
        logits = torch.zeros(len(said), EOS + 1)
        for row, token in enumerate(said):
            logits[row, token if token != NAN else slice(None)] = 9.0 if token != NAN else torch.nan
        self._logits = logits
        return logits

    def _next(self, request: Request, token: int) -> int:
        script = self._scripts.get(request.request_id)
        if script is None:
            return token
        index = request.num_output_tokens
        return script[index] if index < len(script) else DOT

    def sampling_batch(self, requests: Sequence[Request]) -> SamplingBatch:
        return cast(SamplingBatch, [request.request_id for request in requests])

    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        """Greedy. Overwrites the logits, as a sampler may."""
        self._work.samples += 1
        if self._strict:
            self._check_call(logits, batch)
        rows, logits[:] = logits.clone(), 0.0
        valid = rows.isfinite().all(dim=-1)
        return torch.where(valid, (rows == 9.0).long().argmax(dim=-1), -1)

    def _check_call(self, logits: Tensor, batch: SamplingBatch) -> None:
        expect(
            logits is self._logits,
            "the sampler was not given the logits of this step's run, all of them",
            why="It draws for everybody in one call.",
        )
        expect_equal(
            len(cast(list[str], batch)),
            len(logits),
            "rows in the sampling batch, of as many logits",
            why="There is a row of logits for each scheduled request that samples, and for no other: "
            "the chunk of a prompt that goes on has none.",
        )


class Turned:
    """A scheduler whose plans have the last request first; everything else is the reference's."""

    def __init__(self, scheduler: Any, work: Work, turn: bool) -> None:
        self._scheduler = scheduler
        self._work = work
        self._turn = turn

    def schedule(self) -> StepPlan:
        self._work.schedules += 1
        plan: StepPlan = self._scheduler.schedule()
        if self._turn:
            plan.scheduled.reverse()
        return plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)


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
        outputs = self._core.step()
        self._outputs += outputs
        return [tell(output) for output in outputs]


class Bench:
    """One core with its requests. outputs: all that it has returned, in order.

    turned: plans have the last request first.
    """

    def __init__(
        self,
        kind: type,
        settings: Settings | None = None,
        *,
        detokenizer: Callable[[], AnyDetokenizer] = lambda: Detokenizer(decode),
        turned: bool = False,
        strict: bool = False,
    ) -> None:
        self.toy = Toy(settings or Settings())
        self.work = Work()
        self.outputs: list[RequestOutput] = []
        self.scripts: dict[str, Script] = {}
        self.model = Model(self.toy, self.scripts, self.work, strict)
        scheduler = Turned(self.toy.scheduler, self.work, turned)
        self.quiet = kind(scheduler, self.model, self.model, detokenizer, StopChecker, {EOS})
        self.core = watch(Told(self.quiet, self.outputs), "core", self._describe)

    def say(self, said: str | Script, *, prompt: Sequence[int] = (0,), **params: Any) -> Request:
        """Queue a request that the model will answer with these letters or tokens."""
        name = f"r{len(self.toy.requests)}"
        self.scripts[name] = tokens_of(said) if isinstance(said, str) else list(said)
        note(f"{name}: {self._about(said, prompt, params)}")
        return self._queue(prompt, params)

    def add(self, prompt: Sequence[int], **params: Any) -> Request:
        """Queue a request that the toy model answers by what it finds in the cache."""
        note(f"r{len(self.toy.requests)}: prompt of {len(prompt)} tokens, {params}")
        return self._queue(prompt, params)

    def _about(self, said: str | Script, prompt: Sequence[int], params: dict[str, Any]) -> str:
        names = {NAN: "NaN", EOS: "EOS"}
        words = said if isinstance(said, str) else [names.get(token, token) for token in said]
        length = f", prompt of {len(prompt)} tokens" if len(prompt) > 1 else ""
        given = "".join(f", {key}={value}" for key, value in params.items())
        return f"the model will say {words!r}{length}{given}"

    def _queue(self, prompt: Sequence[int], params: dict[str, Any]) -> Request:
        (request,) = self.toy.make(prompt)
        request.params = SamplingParams(temperature=0.0, **params)
        request.max_tokens = request.params.max_tokens or PLENTY
        self.core.add_request(request)
        return request

    def step(self) -> list[RequestOutput]:
        """One step; what it returned."""
        seen = len(self.outputs)
        self.core.step()
        return self.outputs[seen:]

    def run(self) -> None:
        """Step until there is no work."""
        for _ in range(MOST_STEPS):
            if not self.quiet.has_work:
                return
            self.step()
        expect(
            False,
            f"has_work is still true after {MOST_STEPS} steps",
            why="A request that is over must be forgotten, and one that is not must move on.",
        )

    def text(self, request: Request) -> str:
        return "".join(output.text for output in self.of(request))

    def of(self, request: Request) -> list[RequestOutput]:
        return [output for output in self.outputs if output.request is request]

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


def bench_of(
    part: ModuleType, task: str, settings: Settings | None = None, **options: Any
) -> Bench:
    """A bench for a test of `task`; what the part has not written of the others is lent to it."""
    return Bench(core_class(part.EngineCore, task), settings, strict=task == "7.4", **options)
