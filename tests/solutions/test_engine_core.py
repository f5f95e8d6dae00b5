"""EngineCore on the real scheduler and cache, with a model that says what the test tells it to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from grader.kit.toy import Settings, Toy, toy_output
from solutions.engine import Detokenizer, EngineCore, StopChecker
from yaie.core.batch import SamplingBatch, StepPlan
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request, RequestOutput, RequestStatus

EOS = 9
LETTERS = "abcdefgh."
NAN = -1


def decode(token_ids: Sequence[int]) -> str:
    """Token 0 is "a" and so on; the end-of-sequence token has no text."""
    return "".join(LETTERS[token] for token in token_ids if token != EOS)


@dataclass
class Bench:
    """The step loop. `script` holds the tokens of requests that do not follow the toy model."""

    settings: Settings = field(default_factory=Settings)
    script: dict[str, str | list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.toy = Toy(self.settings)
        self.core = EngineCore(
            self.toy.scheduler, self, self, lambda: Detokenizer(decode), StopChecker, {EOS}
        )
        self.outputs: list[RequestOutput] = []

    def add(self, prompt: Sequence[int], **params: object) -> Request:
        sampling = SamplingParams(**params)  # type: ignore[arg-type]
        index = len(self.toy.requests)
        request = Request(f"r{index}", list(prompt), sampling, arrival=index)
        request.max_tokens = sampling.max_tokens or 20
        self.toy.requests.append(request)
        self.core.add_request(request)
        return request

    def say(self, text: str | list[int], **params: object) -> Request:
        """A request whose output is scripted."""
        self.script[f"r{len(self.toy.requests)}"] = text
        return self.add([0], **params)

    def step(self) -> list[RequestOutput]:
        outputs = self.core.step()
        self.toy.check()
        self.outputs += outputs
        return outputs

    def run_to_end(self) -> None:
        for _ in range(200):
            if not self.core.has_work:
                return
            self.step()
        raise AssertionError("no end")

    def text(self, request: Request) -> str:
        return "".join(output.text for output in self.outputs if output.request is request)

    # What EngineCore sees of the model: a runner and a sampler.

    def run(self, plan: StepPlan) -> Tensor:
        tokens = self.toy.runner.run(plan)
        sampling = [item.request for item in plan.scheduled if item.samples]
        return torch.tensor(
            [self._token(*pair) for pair in zip(sampling, tokens, strict=True)], dtype=torch.int64
        )

    def _token(self, request: Request, token: int) -> int:
        script = self.script.get(request.request_id)
        if script is None:
            return token
        said = script[request.num_output_tokens]
        return LETTERS.index(said) if isinstance(said, str) else said

    def sampling_batch(self, requests: Sequence[Request]) -> SamplingBatch:
        return None  # type: ignore[return-value]

    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        return logits


def test_output_is_one_token_a_step_and_the_reason_comes_with_the_last() -> None:
    bench = Bench()
    request = bench.say("abc", max_tokens=3)
    bench.run_to_end()
    assert [output.text for output in bench.outputs] == ["a", "b", "c"]
    assert [output.token_ids for output in bench.outputs] == [[0], [1], [2]]
    assert [o.finish_reason for o in bench.outputs] == [None, None, FinishReason.LENGTH]
    assert (request.status, request.finish_reason) == (RequestStatus.FINISHED, FinishReason.LENGTH)


def test_end_of_sequence_ends_the_output_and_is_not_shown() -> None:
    bench = Bench()
    request = bench.say([0, 1, EOS])
    bench.run_to_end()
    assert bench.text(request) == "ab"
    assert (request.finish_reason, request.stop_reason) == (FinishReason.STOP, None)


def test_end_of_sequence_can_be_ignored() -> None:
    bench = Bench()
    request = bench.say([0, EOS, 1], ignore_eos=True, max_tokens=3)
    bench.run_to_end()
    assert (bench.text(request), request.finish_reason) == ("ab", FinishReason.LENGTH)


@pytest.mark.parametrize("ignore_eos", [True, False])
def test_stop_token_ends_the_output_and_is_named_but_not_shown(ignore_eos: bool) -> None:
    bench = Bench()
    request = bench.say("abc", stop_token_ids=[2], ignore_eos=ignore_eos)
    bench.run_to_end()
    assert bench.text(request) == "ab"
    assert (request.finish_reason, request.stop_reason) == (FinishReason.STOP, 2)


def test_stop_token_in_the_last_place_counts_as_stop() -> None:
    bench = Bench()
    request = bench.say("abc", stop_token_ids=[2], max_tokens=3)
    bench.run_to_end()
    assert request.finish_reason is FinishReason.STOP


def test_stop_string_ends_the_output_before_it_across_tokens() -> None:
    bench = Bench()
    request = bench.say("abcdeffff", stop=["de"])
    bench.run_to_end()
    assert bench.text(request) == "abc"
    assert (request.finish_reason, request.stop_reason) == (FinishReason.STOP, "de")
    assert request.num_output_tokens == 5


def test_start_of_a_stop_string_is_held_back_until_it_is_decided() -> None:
    bench = Bench()
    bench.say("abcf", stop=["bcd"], max_tokens=4)
    bench.run_to_end()
    assert [output.text for output in bench.outputs] == ["a", "", "", "bcf"]


def test_stop_string_in_the_last_place_beats_length() -> None:
    bench = Bench()
    request = bench.say("abc", stop=["c"], max_tokens=3)
    bench.run_to_end()
    assert (bench.text(request), request.finish_reason) == ("ab", FinishReason.STOP)
    assert request.stop_reason == "c"


@pytest.mark.parametrize("tokens", [[0, 1], [0, 1, EOS]])
def test_text_held_back_is_shown_when_the_output_ends_otherwise(tokens: list[int]) -> None:
    bench = Bench()
    request = bench.say(tokens, stop=["bc"], max_tokens=len(tokens))
    bench.run_to_end()
    assert bench.text(request) == "ab"


def test_first_token_time_is_that_of_the_first_token() -> None:
    bench = Bench()
    request = bench.say("abc", max_tokens=3)
    bench.step()
    first = request.first_token_time
    bench.run_to_end()
    assert first is not None
    assert request.first_token_time == first


def test_chunk_of_a_prompt_gives_no_output() -> None:
    bench = Bench(Settings(token_budget=4))
    bench.add([0] * 10, max_tokens=1)
    assert [len(bench.step()) for _ in range(3)] == [0, 0, 1]


def test_step_without_work_does_nothing() -> None:
    bench = Bench()
    assert not bench.core.has_work
    assert bench.step() == []


def test_row_that_is_not_finite_ends_its_request_with_an_error_and_no_other() -> None:
    bench = Bench()
    sick, well = bench.say([0, NAN]), bench.say("abcd", max_tokens=4)
    bench.run_to_end()
    assert (sick.finish_reason, sick.output_token_ids) == (FinishReason.ERROR, [0])
    assert "not finite" in (sick.error or "")
    assert bench.text(well) == "abcd"
    last = [output for output in bench.outputs if output.request is sick][-1]
    assert (last.token_ids, last.text, last.finish_reason) == ([], "", FinishReason.ERROR)


def test_first_token_that_is_not_finite_leaves_no_block_behind() -> None:
    bench = Bench()
    bench.script["r0"] = [NAN]
    sick = bench.add([0] * 8)
    bench.run_to_end()
    assert sick.first_token_time is None
    assert bench.toy.cache.stats()["cached_blocks"] == 0


def test_request_that_can_never_run_is_reported_once() -> None:
    bench = Bench(Settings(num_blocks=2))
    too_long, other = bench.add([0] * 9, max_tokens=1), bench.add([1] * 3, max_tokens=2)
    bench.run_to_end()
    failed = [output for output in bench.outputs if output.request is too_long]
    assert [output.finish_reason for output in failed] == [FinishReason.ERROR]
    assert bench.text(other) == decode(toy_output([1] * 3, 2))


def test_abort_of_an_unknown_or_finished_request_says_so() -> None:
    bench = Bench()
    request = bench.say("a", max_tokens=1)
    bench.run_to_end()
    assert not bench.core.abort("nobody")
    assert not bench.core.abort(request.request_id)
    assert request.finish_reason is FinishReason.LENGTH


def crowded(num_host_blocks: int = 0) -> Bench:
    """Three requests that do not fit together; the last is computed in chunks, late, or preempted."""
    settings = Settings(
        num_blocks=7, num_host_blocks=num_host_blocks, token_budget=5, prefix_caching=False
    )
    bench = Bench(settings)
    for start in range(3):
        bench.add([start] * (4 + start), max_tokens=12)
    return bench


def is_mid_prefill(request: Request) -> bool:
    return 0 < request.num_computed_tokens < request.num_prompt_tokens


MOMENTS: dict[str, Callable[[Request], bool]] = {
    "queued": lambda request: request.status is RequestStatus.WAITING,
    "mid-prefill": is_mid_prefill,
    "decoding": lambda request: request.num_output_tokens > 1,
    "preempted": lambda request: request.status is RequestStatus.PREEMPTED,
    "swapped": lambda request: request.status is RequestStatus.SWAPPED,
}


def somebody(bench: Bench, moment: str) -> Request:
    """Step until a request stands there; of several the last."""
    for _ in range(60):
        for request in reversed(bench.toy.requests):
            if MOMENTS[moment](request):
                return request
        bench.step()
    raise AssertionError(f"nobody is ever {moment}")


@pytest.mark.parametrize("moment", MOMENTS)
def test_abort_returns_every_block_and_disturbs_nobody(moment: str) -> None:
    bench = crowded(num_host_blocks=12 if moment == "swapped" else 0)
    victim = somebody(bench, moment)
    before = len(bench.outputs)
    assert bench.core.abort(victim.request_id)
    bench.toy.check()
    assert not bench.core.abort(victim.request_id)
    bench.run_to_end()
    assert all(output.request is not victim for output in bench.outputs[before:])
    assert victim.finish_reason is FinishReason.ABORT
    for request in bench.toy.requests:
        if request is not victim:
            prompt = request.token_ids[: request.num_prompt_tokens]
            assert request.output_token_ids == toy_output(prompt, 12)
    assert bench.toy.blocks.num_free == 7
