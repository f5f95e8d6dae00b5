"""Whatever a call for one request raises ends that request alone, in either loop."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.constrained import PERSON, schema
from tests.engine.oracle import make_prompts
from tests.models.tiny import VOCAB, tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.errors import EngineDeadError
from yaie.core.output import RequestOutput
from yaie.core.request import FailureKind, FinishReason, Request
from yaie.engine.asks import min_tokens
from yaie.engine.asks.logprobs import Logprobs
from yaie.engine.asks.pooling import Pooling
from yaie.engine.asks.prompt_logprobs import PromptLogprobs
from yaie.engine.drafting.drafter import Drafter
from yaie.engine.drafting.models import ModelProposer
from yaie.engine.drafting.ngrams import NgramProposer
from yaie.engine.step import encoder

PARAMS = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
OTHERS = [[9] * 17, [5, 6, 7], *make_prompts(2, VOCAB, seed=8)]
VICTIM = [(3 * i) % 200 + 20 for i in range(40)]


class PanicException(BaseException):
    """As a library in Rust raises."""


class Broken:
    """In the place of a detokenizer or a stop checker; fails in one method, from a call on."""

    def __init__(self, own: Any, method: str, at: int) -> None:
        self._own, self._method, self._left = own, method, at

    def _run(self, method: str, *args: Any) -> Any:
        if method == self._method:
            self._left -= 1
            if self._left <= 0:
                raise PanicException(method)
        return getattr(self._own, method)(*args)

    def push(self, given: Any) -> Any:
        return self._run("push", given)

    def flush(self) -> Any:
        return self._run("flush")


class Injection:
    """Makes calls raise that concern the victim, and no other request."""

    def __init__(self, engine: LLMEngine, patch: pytest.MonkeyPatch) -> None:
        self.engine, self.patch = engine, patch
        self.victim: Request | None = None
        self.num_raised = 0

    def replace(self, owner: Any, name: str, at: int = 1) -> None:
        """Of the calls of owner.name with the victim among their arguments, the `at`th raises, and those
        after it."""
        own, seen = getattr(owner, name), [0]

        def raising(*args: Any, **options: Any) -> Any:
            if any(self._is_of_victim(arg) for arg in args):
                seen[0] += 1
                if seen[0] >= at:
                    self.num_raised += 1
                    raise RuntimeError("injected")
            return own(*args, **options)

        self.patch.setattr(owner, name, raising)

    def _is_of_victim(self, arg: Any) -> bool:
        if isinstance(arg, list | tuple):
            return any(map(self._is_of_victim, arg))
        return self.victim is not None and self.victim in (arg, getattr(arg, "request", None))

    def matcher(self, name: str, value: Any = None) -> None:
        """The victim's matcher returns this, or raises if it is None."""
        assert self.victim is not None

        def call(*_: Any) -> Any:
            self.num_raised += 1
            if value is None:
                raise PanicException("injected")
            return value

        self.patch.setattr(self.victim.matcher, name, call)

    def text(self, name: str, method: str, at: int = 1) -> None:
        """The victim's detokenizer or stop checker fails."""
        assert self.victim is not None
        loop: Any = self.engine._machine.core.inner  # type: ignore[union-attr]
        output = getattr(loop, "_core", loop)._live[self.victim.request_id]
        isolated = getattr(output, name)
        self.patch.setattr(isolated, "_own", Broken(isolated._own, method, at))


Inject = Callable[[Injection], None]
PERSONAL = {"constraint": schema(PERSON)}

# By name: what the victim asks for, what makes a call raise, whether that is before its first token.
CALLS: dict[str, tuple[dict[str, Any], Inject, bool]] = {
    "encoding what it asks for": (
        {"min_tokens": 3}, lambda i: i.replace(min_tokens, "too_early"), True
    ),
    "encoding a seed beyond 64 bits": (
        {}, lambda i: setattr(i.victim, "seed", 2**70), True
    ),
    "encoding who tells of prompts": (
        {"prompt_logprobs": 1}, lambda i: i.replace(PromptLogprobs, "wants"), True
    ),
    "encoding who is pooled, later": (
        {"pooling": "last"}, lambda i: i.replace(Pooling, "wants", at=2), True
    ),
    "forced tokens": (PERSONAL, lambda i: i.matcher("forced"), True),
    "forced tokens that are none": (PERSONAL, lambda i: i.matcher("forced", [2**40]), True),
    "forced tokens beyond the vocabulary": (PERSONAL, lambda i: i.matcher("forced", [VOCAB]), True),
    "masks": (PERSONAL, lambda i: i.matcher("fill_ahead"), True),
    "log-probabilities": (
        {"logprobs": 2}, lambda i: i.replace(Logprobs, "note"), True
    ),
    "log-probabilities, later": (
        {"logprobs": 2}, lambda i: i.replace(Logprobs, "note", at=3), False
    ),
    "log-probabilities of the prompt": (
        {"prompt_logprobs": 1}, lambda i: i.replace(PromptLogprobs, "note"), True
    ),
    "hidden states": ({"pooling": "mean"}, lambda i: i.replace(Pooling, "note"), True),
    "detokenizer": ({}, lambda i: i.text("detokenizer", "push"), False),
    "detokenizer, at its last token": ({}, lambda i: i.text("detokenizer", "push", 12), False),
    "detokenizer, at its end": ({}, lambda i: i.text("detokenizer", "flush"), False),
    "stop strings": ({"stop": "xyz"}, lambda i: i.text("stop_checker", "push", 2), False),
    "stop strings, at its end": ({"stop": "xyz"}, lambda i: i.text("stop_checker", "flush"), False),
    "late stop strings": (
        {"stop": "xyz", "min_tokens": 4}, lambda i: i.text("stop_checker", "push", 6), False
    ),
}  # fmt: skip
GUESSES: dict[str, tuple[dict[str, Any], Inject, bool]] = {
    "n-grams": ({}, lambda i: i.replace(NgramProposer, "_of"), True),
    "n-grams, later": ({}, lambda i: i.replace(NgramProposer, "_of", at=3), False),
    "how often drafts were right": ({}, lambda i: i.replace(Drafter, "_of"), True),
    "what was right of drafts": ({}, lambda i: i.replace(Drafter, "_learn"), False),
}
"""Of an engine that guesses."""
SIZES: dict[str, Any] = {"num_blocks": 60, "token_budget": 32}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module", params=["off", "on"], ids=["plain", "overlapped"])
def engine(folder: Path, request: pytest.FixtureRequest) -> Iterator[LLMEngine]:
    """One for all calls: it must go on whatever came before."""
    engine = LLMEngine(model=str(folder), **SIZES, overlap=request.param)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def expected(engine: LLMEngine) -> list[list[int]]:
    """What the others say undisturbed."""
    return [request.output_token_ids for request in run(engine, None)[0]]


def run(
    engine: LLMEngine, injection: Injection | None, inject: Inject = lambda _: None, **params: Any
) -> tuple[list[Request], list[RequestOutput]]:
    """The others' requests, and the victim's outputs. It comes when some of the others generate."""
    engine.reset_prefix_cache()
    others = [engine.add_request(prompt, PARAMS)[0] for prompt in OTHERS[:2]]
    told: list[RequestOutput] = []
    for _ in range(3):
        engine.step()
    if injection is not None:
        asked = {"temperature": 0, "max_tokens": 12, "ignore_eos": True, **params}
        (injection.victim,) = engine.add_request(VICTIM, SamplingParams(**asked))
        inject(injection)
    others += [engine.add_request(prompt, PARAMS)[0] for prompt in OTHERS[2:]]
    while engine.has_work:
        outputs = engine.step()
        engine.check()
        if injection is not None:
            assert injection.victim is not None
            told += [one for one in outputs if one.request_id == injection.victim.request_id]
    return others, told


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_raises_ends_its_request_alone(
    engine: LLMEngine, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert_alone(engine, expected, Injection(engine, monkeypatch), *CALLS[name], name)


@pytest.fixture(scope="module")
def guessing(folder: Path) -> LLMEngine:
    return LLMEngine(model=str(folder), **SIZES, speculate="ngram", num_drafts=3)


@pytest.mark.parametrize("name", GUESSES)
def test_a_guess_that_raises_ends_its_request_alone(
    guessing: LLMEngine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    expected = [request.output_token_ids for request in run(guessing, None)[0]]
    assert_alone(guessing, expected, Injection(guessing, monkeypatch), *GUESSES[name])


def assert_alone(
    engine: LLMEngine,
    expected: list[list[int]],
    injection: Injection,
    params: dict[str, Any],
    inject: Inject,
    is_early: bool,
    name: str = "",
) -> None:
    failed = engine.stats()["failed_requests"]
    others, told = run(engine, injection, inject, **params)
    victim = injection.victim
    assert victim is not None
    assert [one.finish_reason for one in told if one.finish_reason] == [FinishReason.ERROR]
    assert victim.finish_reason is FinishReason.ERROR
    is_matchers = name in ("forced tokens", "masks")
    kind = FailureKind.CONSTRAINT if is_matchers else FailureKind.ENGINE
    assert told[-1].failure is kind
    assert told[-1].exception is not None
    assert told[-1].exception.status == (400 if is_matchers else 500)
    assert "injected" not in (told[-1].error or "")  # the log has it
    assert [request.output_token_ids for request in others] == expected
    stats = engine.stats()
    assert stats["used_blocks"] == 0
    assert stats["failed_requests"] == failed + 1
    if is_early:  # what the steps before had computed may stay: of 40 tokens, one chunk
        assert sum(len(one.token_ids) for one in told) == 0
        again = Request("again", VICTIM, PARAMS)
        assert engine._machine.cache.cached_tokens(again) < 32


def test_the_calls_are_those_of_requests_that_would_go_on(engine: LLMEngine) -> None:
    """Undisturbed, each victim comes to its end: what the test above sees is the injection."""
    for params, _, _ in CALLS.values():
        asked = {"temperature": 0, "max_tokens": 12, "ignore_eos": True, **params}
        (request,) = engine.add_request(VICTIM, SamplingParams(**asked))
        while engine.has_work:
            engine.step()
        assert request.finish_reason in (FinishReason.LENGTH, FinishReason.STOP)


def test_a_draft_models_place_that_raises_ends_its_request_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LLMEngine(
        model=str(folder), num_blocks=60, speculate="draft", draft_model=str(folder), num_drafts=2
    )
    expected = [request.output_token_ids for request in run(engine, None)[0]]
    injection = Injection(engine, monkeypatch)
    inject: Inject = lambda i: i.replace(ModelProposer, "_key", at=2)  # noqa: E731
    others, told = run(engine, injection, inject)
    assert injection.num_raised == 1
    assert told[-1].failure is FailureKind.ENGINE
    assert [request.output_token_ids for request in others] == expected
    assert engine.stats()["used_blocks"] == 0


@pytest.mark.parametrize("value", [2**31, 2**63 - 1, 2**63, 2**200])
def test_numbers_beyond_any_array_do_no_harm(engine: LLMEngine, value: int) -> None:
    """Set on parameters that were checked before: whatever lets them through, the engine holds."""
    requests = []
    for name in ("min_tokens", "top_k", "truncate_prompt_tokens", "seed"):
        params = SamplingParams(temperature=0, max_tokens=6)
        object.__setattr__(params, name, value)
        requests += engine.add_request([5, 6, 7], params)
    params = SamplingParams(temperature=0, max_tokens=6, logprobs=1)
    object.__setattr__(params, "logprobs", value)
    (last,) = engine.add_request([5, 6, 7], params)
    while engine.has_work:
        engine.step()
        engine.check()
    assert [request.error for request in requests] == [None] * 4
    assert requests[0].num_output_tokens == 6
    assert last.finish_reason in (FinishReason.LENGTH, FinishReason.ERROR)
    assert engine.stats()["used_blocks"] == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, EngineDeadError("a rank is lost")])
def test_what_is_nobodys_own_passes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=40)

    def raising(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(encoder, "_extras", raising)
    engine.add_request([5, 6], PARAMS)
    with pytest.raises((KeyboardInterrupt, EngineDeadError)):
        engine.step()


def test_what_fails_for_all_and_for_none_alone_is_shared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LLMEngine(model=str(folder), num_blocks=40)
    made = encoder.new_seats

    def raising(requests: Any, *args: Any) -> Any:
        if len(requests) > 1:
            raise RuntimeError("together")
        return made(requests, *args)

    monkeypatch.setattr(encoder, "new_seats", raising)
    engine.add_request([5, 6], PARAMS)
    engine.add_request([5, 7], PARAMS)
    with pytest.raises(RuntimeError, match="together"):
        engine.step()
