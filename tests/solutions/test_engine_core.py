"""EngineCore on the real scheduler and cache, with an executor that notices wrong K and V.

What its lab asks of it, the lab's own suite tests. Here it runs with steps in flight and drafts, on
pools that are too small, and says what a model without any cache says.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from grader.kit.toy import VOCAB, Settings, Toy, toy_output
from solutions.engine import Detokenizer, EngineCore, StopChecker
from yaie.core.output import RequestOutput
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request, RequestStatus

EOS = VOCAB - 1
LETTERS = "abcdefgh"


def decode(token_ids: Sequence[int]) -> str:
    """Token 0 is "a" and so on; the end-of-sequence token has no text."""
    return "".join(LETTERS[token] for token in token_ids if token != EOS)


class Bench:
    """The step loop on a toy engine. `settings.ahead` steps are in flight when the next one begins."""

    def __init__(self, settings: Settings) -> None:
        self.toy = Toy(settings)
        self.outputs: list[RequestOutput] = []
        self.core = EngineCore(
            self.toy.scheduler,
            self.toy.executor,
            lambda: Detokenizer(decode),
            StopChecker,
            {EOS},
        )

    def add(self, prompt: Sequence[int], max_tokens: int = 12, **params: Any) -> Request:
        (request,) = self.toy.make(prompt, max_tokens)
        request.params = SamplingParams(**params)
        self.core.add_request(request)
        return request

    def step(self) -> None:
        self.begin()
        self.take()

    def begin(self) -> None:
        self.toy.begin()

    def take(self) -> None:
        """Take over all steps in flight but those that the next one may be ahead of."""
        flights = self.toy.in_flight
        most = self.toy.settings.ahead if flights[-1].plan.scheduled else 0
        while len(flights) > most:
            flight = flights.pop(0)
            self.outputs += self.core.take(flight.plan, flight.pending.result())
            self.toy.check()

    def run_to_end(self) -> None:
        for _ in range(300):
            if not self.core.has_work and not self.toy.in_flight:
                return
            self.step()
        raise AssertionError("no end")

    def text(self, request: Request) -> str:
        return "".join(o.text for o in self.outputs if o.request_id == request.request_id)


def answer(prompt: Sequence[int], count: int = 12) -> list[int]:
    """What the model says, up to its end-of-sequence token."""
    said = toy_output(prompt, count)
    return said[: said.index(EOS) + 1] if EOS in said else said


WAYS = pytest.mark.parametrize("ahead", [0, 1])
DRAFTS = pytest.mark.parametrize("drafts", [0, 1, 3])
PROMPTS = [[i % 3, 1, 2, *[i % 2] * i] for i in range(12)]


@WAYS
@DRAFTS
@pytest.mark.parametrize("num_host_blocks", [0, 30])
def test_answers_are_those_of_a_model_without_cache(
    ahead: int, drafts: int, num_host_blocks: int
) -> None:
    settings = Settings(
        num_blocks=13,
        block_size=2,
        num_host_blocks=num_host_blocks,
        token_budget=7,
        ahead=ahead,
        drafts=drafts,
    )
    bench = Bench(settings)
    requests = [bench.add(prompt) for prompt in PROMPTS]
    bench.run_to_end()
    for request, prompt in zip(requests, PROMPTS, strict=True):
        right = answer(prompt)
        assert request.output_token_ids == right
        assert bench.text(request) == decode(right)
        ended = right[-1] == EOS
        assert request.finish_reason is (FinishReason.STOP if ended else FinishReason.LENGTH)
    assert sum(request.num_preemptions for request in requests) > 0
    bench.toy.check_empty()


@WAYS
@DRAFTS
def test_stop_string_is_found_at_the_token_that_completes_it(ahead: int, drafts: int) -> None:
    bench = Bench(Settings(ahead=ahead, drafts=drafts))
    prompt = next(p for p in PROMPTS if EOS not in toy_output(p, 6))
    said = decode(toy_output(prompt, 6))
    stop = said[3:5]
    request = bench.add(prompt, stop=[stop])
    bench.run_to_end()
    end = said.index(stop)
    assert (bench.text(request), request.stop_reason) == (said[:end], stop)
    assert request.num_output_tokens == end + len(stop)


@WAYS
@DRAFTS
def test_prompt_that_goes_on_from_a_finished_answer_finds_right_keys_and_values(
    ahead: int, drafts: int
) -> None:
    bench = Bench(Settings(block_size=2, num_blocks=64, ahead=ahead, drafts=drafts))
    for prompt in PROMPTS:
        first = bench.add(prompt)
        bench.run_to_end()
        longer = [*first.token_ids, *toy_output(first.token_ids, 4)]
        second = bench.add(longer, 4)
        bench.run_to_end()
        assert second.output_token_ids == answer(longer, 4)
        assert second.num_cached_tokens > 0


def crowded(ahead: int, num_host_blocks: int) -> Bench:
    """Three requests that do not fit together; the last is computed in chunks, late, or preempted."""
    settings = Settings(
        num_blocks=7,
        num_host_blocks=num_host_blocks,
        token_budget=5,
        prefix_caching=False,
        ahead=ahead,
    )
    bench = Bench(settings)
    for start in range(3):
        bench.add([start] * (4 + start), ignore_eos=True)
    return bench


MOMENTS: dict[str, Callable[[Request], bool]] = {
    "queued": lambda request: request.status is RequestStatus.WAITING,
    "mid-prefill": lambda request: 0 < request.num_computed_tokens < request.num_prompt_tokens,
    "decoding": lambda request: request.num_output_tokens > 1,
    "in flight": lambda request: request.num_output_placeholders > 0,
    "preempted": lambda request: request.status is RequestStatus.PREEMPTED,
    "preempted in flight": lambda request: (
        request.status is RequestStatus.PREEMPTED and request.num_in_flight > 0
    ),
    "swapped": lambda request: request.status is RequestStatus.SWAPPED,
}


def one_that_is(bench: Bench, moment: str) -> Request:
    """Step until a request stands there, be it in the middle of a step; of several the last."""
    for _ in range(60):
        for act in (bench.begin, bench.take):
            for request in reversed(bench.toy.requests):
                if MOMENTS[moment](request):
                    return request
            act()
    raise AssertionError(f"no request is ever {moment}")


@pytest.mark.parametrize(
    ("moment", "ahead"),
    [(moment, ahead) for moment in MOMENTS for ahead in (0, 1) if ahead or "flight" not in moment],
)
def test_abort_returns_every_block_and_disturbs_no_other(moment: str, ahead: int) -> None:
    bench = crowded(ahead, num_host_blocks=12 if moment == "swapped" else 0)
    victim = one_that_is(bench, moment)
    before = len(bench.outputs)
    assert bench.core.abort(victim.request_id)
    bench.toy.check()
    assert not bench.core.abort(victim.request_id)
    bench.run_to_end()
    assert all(output.request_id != victim.request_id for output in bench.outputs[before:])
    assert victim.finish_reason is FinishReason.ABORT
    for request in bench.toy.requests:
        if request is not victim:
            prompt = request.token_ids[: request.num_prompt_tokens]
            assert request.output_token_ids == toy_output(prompt, 12)
    assert bench.toy.blocks.num_free == 7


@WAYS
def test_request_that_can_never_run_is_reported_once(ahead: int) -> None:
    bench = Bench(Settings(num_blocks=2, ahead=ahead))
    too_long, other = bench.add([0] * 9), bench.add([1] * 3, 2, ignore_eos=True)
    bench.run_to_end()
    failed = [o for o in bench.outputs if o.request_id == too_long.request_id]
    assert [(o.finish_reason, o.error) for o in failed] == [(FinishReason.ERROR, too_long.error)]
    assert other.output_token_ids == toy_output([1] * 3, 2)
