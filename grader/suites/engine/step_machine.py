"""Random lives of several requests on one core, in a pool that is too small for all of them."""

from contextlib import suppress
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from grader.kit import Machine, expect
from grader.kit.toy import Settings
from grader.suites.engine.bench import NAN, Bench, bench_of, tokens_of
from grader.suites.engine.ends import right_end
from yaie.core.request import FinishReason, Request, RequestOutput

TOKENS = st.sampled_from([*tokens_of("ab"), *tokens_of("é"), *tokens_of("cdef"), NAN])
ONCE = "A request gains at most one token a step, has one last output, and none after it."


class GivenUp(Exception):
    """A run that has shown somebody else's mistake, too late to reject it."""


class StepMachine(Machine):
    """Requests come while others run; some end with an error, all others by max_tokens."""

    grades = frozenset({"7.4"})
    task = "7.4"
    least_budget = 2  # tokens a step, fewer than a prompt may have: it comes in chunks
    has_nan = True
    bench: Bench

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[Request, list[int]] = {}
        self.over = False
        self.ending = False

    def claim(self, task: str, got: Any, expected: Any, what: str, why: str = "") -> None:
        """A run is over at the first claim that does not hold, whosever it is."""
        if got != expected:
            self.over = True
            if self.ending and task not in self.grades:
                raise GivenUp
        super().claim(task, got, expected, what, why)

    @initialize(
        num_blocks=st.integers(3, 8),
        budget=st.integers(2, 9),
        turned=st.booleans(),
        static=st.booleans(),
    )
    def start(self, num_blocks: int, budget: int, turned: bool, static: bool) -> None:
        settings = Settings(
            num_blocks=num_blocks,
            block_size=2,
            token_budget=max(budget, self.least_budget),
            max_num_seqs=3,
            static=static,
        )
        self.bench = bench_of(self.part, self.task, settings, turned=turned)

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
        samples = self.bench.work.samples
        outputs = self.bench.step()
        self.claim("7.4", self.bench.work.samples - samples <= 1, True, "one sampler call at most")
        names = [output.request.request_id for output in outputs]
        self.claim("7.4", sorted(set(names)), sorted(names), "who has an output in this step", ONCE)
        for output in outputs:
            self.check_output(output)

    def check_output(self, output: RequestOutput) -> None:
        ends = self.bench.ends(output.request)
        is_last = output is self.bench.of(output.request)[-1]
        name = output.request.request_id
        self.claim("7.4", len(ends) <= 1 and is_last, True, f"{name} has one end at most", ONCE)
        if output.finish_reason is not None:
            self.check_end(output.request)

    def check_end(self, request: Request) -> None:
        end = right_end(self.said[request], request.params, request.max_tokens)
        (reason,) = self.bench.ends(request)
        name, count = request.request_id, request.num_output_tokens
        if reason is FinishReason.ERROR:
            expect(request.error, f"{name} ends with an error, but has no message in `error`")
            if count < len(end.tokens) and self.needs_too_much(request):
                return  # the scheduler has ended it
        in_error = FinishReason.ERROR in (reason, end.reason) and count < request.max_tokens
        task = "7.4" if in_error else "7.3"
        self.claim(task, reason, end.reason, f"how {name} ended")
        if task == "7.3":
            self.claim("7.3", count, len(end.tokens), f"how many tokens {name} has")
        self.claim("7.4", tuple(request.output_token_ids), end.tokens, f"the tokens of {name}")
        told = tuple(token for output in self.bench.of(request) for token in output.token_ids)
        self.claim("7.4", told, end.tokens, f"the tokens in the outputs of {name}")
        self.claim("7.3", self.bench.text(request), end.text, f"the text of {name}")

    def needs_too_much(self, request: Request) -> bool:
        """Whether a request alone fills the pool."""
        settings = self.bench.toy.settings
        return request.num_tokens > settings.num_blocks * settings.block_size

    @invariant()
    def work_is_known(self) -> None:
        if hasattr(self, "bench"):
            alive = any(not request.is_finished for request in self.said)
            self.claim("7.4", bool(self.bench.quiet.has_work), alive, "has_work")

    def teardown(self) -> None:
        """Everybody comes to an end, and everything is given back."""
        if not self.over and self.said:
            self.ending = True
            with suppress(GivenUp):
                self.run_to_end()

    def run_to_end(self) -> None:
        for _ in range(100):
            if not self.bench.quiet.has_work:
                break
            self.step()
        else:
            self.claim("7.3", "work after 100 steps", "none", "what is left in the end")
        self.bench.toy.check()


class AbortMachine(StepMachine):
    """And some are aborted, between steps or in the middle of one."""

    grades = frozenset({"7.5"})
    task = "7.5"
    least_budget = 64
    has_nan = False

    def __init__(self) -> None:
        super().__init__()
        self.aborted: dict[Request, int] = {}

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.abort_one(data.draw(st.sampled_from(list(self.said))))

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def abort_in_a_step(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(list(self.said)))
        self.bench.model.meanwhile = lambda: self.abort_one(request)
        self.step()
        self.bench.model.meanwhile = None

    def abort_one(self, request: Request) -> None:
        alive = not request.is_finished
        result: Any = self.bench.core.abort(request.request_id)
        name = request.request_id
        self.claim("7.5", result, alive, f"what abort({name!r}) returned")
        if alive:
            self.aborted[request] = len(self.bench.of(request))
            self.claim("7.5", request.finish_reason, FinishReason.ABORT, f"how {name} ended")

    @invariant()
    def nobody_hears_of_the_aborted(self) -> None:
        for request, count in self.aborted.items():
            what = f"outputs of {request.request_id}, which was aborted"
            self.claim("7.5", len(self.bench.of(request)), count, what)
