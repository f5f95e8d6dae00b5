"""Random lives of several requests on one core, in a pool that is too small for all of them."""

from contextlib import suppress
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from grader.kit import Machine, expect
from grader.kit.toy import Settings
from grader.suites.engine.bench import NAN, Bench, bench_of, tokens_of
from grader.suites.engine.ends import right_end
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request

TOKENS = st.sampled_from([*tokens_of("ab"), *tokens_of("é"), *tokens_of("cdef"), NAN])
ONCE = "A request has at most one output a step, one last output, and none after it."

GAINED = (
    "Only requests that gained tokens or ended have an output: not one that was preempted, say."
)


class GivenUp(Exception):
    """A run that has shown another task's mistake, too late to reject it."""


class StepMachine(Machine):
    """Requests come while others run; some end with an error, all others by max_tokens."""

    grades = frozenset({"7.4"})
    task = "7.4"
    by_step = True
    least_budget = 2  # tokens a step, fewer than a prompt may have: it comes in chunks
    has_nan = True
    bench: Bench

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[Request, list[int]] = {}
        self.aborted: dict[Request, int] = {}
        self.over = False
        self.ending = False

    def claim(self, task: str, got: Any, expected: Any, what: str, why: str = "") -> None:
        """A run is over at the first claim that does not hold, of whichever task."""
        if got != expected:
            self.over = True
            if self.ending and task not in self.grades:
                raise GivenUp
        super().claim(task, got, expected, what, why)

    @initialize(
        num_blocks=st.integers(3, 8),
        budget=st.integers(2, 9),
        lag=st.integers(0, 1),
        static=st.booleans(),
        num_right=st.integers(0, 2),
        num_wrong=st.integers(0, 1),
    )
    def start(
        self,
        num_blocks: int,
        budget: int,
        lag: int,
        static: bool,
        num_right: int,
        num_wrong: int,
    ) -> None:
        lag = 0 if self.by_step else lag
        settings = Settings(
            num_blocks=num_blocks,
            block_size=2,
            token_budget=max(budget, self.least_budget),
            max_num_seqs=3,
            static=static and not lag,
        )
        self.bench = bench_of(self.part, self.task, settings, by_step=self.by_step, lag=lag)
        if num_right + num_wrong:
            self.bench.draft(num_right, num_wrong)

    @rule(
        said=st.lists(TOKENS, max_size=5),
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=7),
        max_tokens=st.integers(1, 6),
    )
    def say(self, said: list[int], prompt: list[int], max_tokens: int) -> None:
        said = [token for token in said if token != NAN or self.has_nan]
        if len(self.said) < 6:
            self.said[self.bench.say(said, prompt=prompt, max_tokens=max_tokens)] = said

    @precondition(lambda self: self.said)
    @rule()
    def step(self) -> None:
        self.check_outputs(self.bench.step())

    def check_outputs(self, outputs: list[RequestOutput]) -> None:
        names = [output.request_id for output in outputs]
        self.claim("7.4", len(names), len(set(names)), "outputs of a step, one a request", ONCE)
        for output in outputs:
            self.check_output(output)

    def check_output(self, output: RequestOutput) -> None:
        (request,) = [r for r in self.said if r.request_id == output.request_id]
        is_last = output is self.bench.of(request)[-1]
        name, ends = request.request_id, self.bench.ends(request)
        self.claim("7.4", len(ends) <= 1 and is_last, True, f"{name} has one end at most", ONCE)
        if output.finish_reason is not None:
            self.check_end(request)
        else:
            self.claim("7.4", bool(output.token_ids), True, f"{name} has gained tokens", GAINED)

    def check_end(self, request: Request) -> None:
        end = right_end(self.said[request], request.params, request.max_tokens)
        (reason,) = self.bench.ends(request)
        name, count = request.request_id, request.num_output_tokens
        if reason is FinishReason.ERROR:
            error = self.bench.of(request)[-1].error
            expect(error, f"{name} ends with an error, but has no message in `error`")
            if count < len(end.tokens) and self.needs_too_much(request):
                return  # the scheduler has ended it
        in_error = FinishReason.ERROR in (reason, end.reason) and count < request.max_tokens
        task = "7.4" if in_error else "7.3"
        self.claim(task, reason, end.reason, f"how {name} ended")
        if task == "7.3":
            self.claim("7.3", count, len(end.tokens), f"how many tokens {name} has")
        self.claim("7.4", tuple(request.output_token_ids), end.tokens, f"the tokens of {name}")
        told = tuple(token for output in self.bench.of(request) for token in output.token_ids)
        self.claim("7.3", told, end.tokens, f"the tokens in the outputs of {name}")
        self.claim("7.3", self.bench.text(request), end.text, f"the text of {name}")

    def needs_too_much(self, request: Request) -> bool:
        """Whether a request alone fills the pool."""
        settings = self.bench.toy.settings
        return request.num_tokens > settings.num_blocks * settings.block_size

    @invariant()
    def work_is_known(self) -> None:
        if hasattr(self, "bench"):
            alive = any(not request.is_finished for request in self.said)
            task = "7.5" if self.aborted else "7.4"
            self.claim(task, bool(self.bench.quiet.has_work), alive, "has_work")

    def teardown(self) -> None:
        """Every request comes to an end, and everything is given back."""
        if not self.over and self.said:
            self.ending = True
            with suppress(GivenUp):
                self.run_to_end()

    def run_to_end(self) -> None:
        for _ in range(100):
            if self.bench.is_over:
                break
            self.step()
        else:
            self.claim("7.3", "work after 100 steps", "none", "what is left in the end")
        for request in self.said.keys() - self.aborted.keys():
            ends = len(self.bench.ends(request))
            self.claim("7.4", ends, 1, f"last outputs of {request.request_id}", ONCE)
        self.bench.toy.check()


class LateMachine(StepMachine):
    """The same, driven by a loop that may keep a step in flight, with aborts in between."""

    by_step = False

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.abort_one(data.draw(st.sampled_from(list(self.said))))

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def abort_in_a_step(self, data: st.DataObject) -> None:
        seen = len(self.bench.outputs)
        self.bench.begin()
        self.abort(data)
        while len(self.bench.in_flight) > self.bench.lag:
            self.bench.take()
        self.check_outputs(self.bench.outputs[seen:])

    def abort_one(self, request: Request) -> None:
        alive = not request.is_finished
        result: Any
        try:
            result = self.bench.core.abort(request.request_id)
        except LookupError as error:
            result = error
        name = request.request_id
        self.claim("7.5", result, alive, f"what abort({name!r}) returned")
        if alive:
            self.aborted[request] = len(self.bench.of(request))
            self.claim("7.5", request.finish_reason, FinishReason.ABORT, f"how {name} ended")

    @invariant()
    def the_aborted_hear_nothing(self) -> None:
        for request, count in self.aborted.items():
            what = f"outputs of {request.request_id}, which was aborted"
            self.claim("7.5", len(self.bench.of(request)), count, what)


class AbortMachine(LateMachine):
    """What of it is about aborts. No request fails in it, which task 7.4 has to tell."""

    grades = frozenset({"7.5"})
    task = "7.5"
    least_budget = 64
    has_nan = False
