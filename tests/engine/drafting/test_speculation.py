"""An engine that guesses gives what it gives without, whatever the guesses are worth."""

import random
from collections.abc import Sequence

import pytest
import torch

from tests.engine.constrained import PERSON, schema
from tests.engine.mixed import LONG, POOLS, add_all, close, run
from tests.models.tiny import VOCAB, tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.errors import ConfigError
from yaie.core.request import FinishReason, Request
from yaie.engine import build

ROUND = SamplingParams(
    temperature=0, max_tokens=120, ignore_eos=True, logit_bias={9: 90.0, 10: 90.0}
)
"""Two tokens that nothing outweighs: what was said before is said again."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return str(tiny_model("llama", tmp_path_factory.mktemp("models") / "llama"))


class Oracle:
    """Knows what each request will say, and tells it, or something else, or part of it."""

    known: dict[str, list[int]] = {}  # noqa: RUF012, the test's

    is_free = True

    def __init__(self, make_index: object = None, isolation: object = None) -> None:
        self._rng = random.Random(0)

    def propose(self, asked: Sequence[tuple[Request, int]]) -> list[Sequence[int]]:
        return [self._of(request, most) for request, most in asked]

    def _of(self, request: Request, most: int) -> Sequence[int]:
        coming = self.known[request.request_id][request.num_tokens :][:most]
        kind = self._rng.randrange(4)
        if kind == 0:
            return [self._rng.randrange(VOCAB) for _ in range(most)]
        if kind == 1:
            return []
        if kind == 2 and coming:
            coming = [*coming]
            coming[self._rng.randrange(len(coming))] = self._rng.randrange(VOCAB)
        return coming


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> type[Oracle]:
    monkeypatch.setattr(build, "NgramProposer", Oracle)
    return Oracle


def same(requests: list[Request], wanted: list[Request]) -> None:
    for one, other in zip(requests, wanted, strict=True):
        assert one.token_ids == other.token_ids
        assert (one.finish_reason, one.stop_reason) == (other.finish_reason, other.stop_reason)
        assert close(one.logprobs, other.logprobs)
        assert close(one.prompt_logprobs, other.prompt_logprobs)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("num_drafts", [1, 5])
def test_tokens_texts_and_ends_equal_those_without(
    folder: str, oracle: type[Oracle], pool: str, num_drafts: int
) -> None:
    plain = LLMEngine(model=folder, **POOLS[pool])
    wanted = add_all(plain)
    texts = run(plain)
    oracle.known = {request.request_id: request.token_ids for request in wanted}
    engine = LLMEngine(model=folder, speculate="ngram", num_drafts=num_drafts, **POOLS[pool])
    requests = add_all(engine)
    assert run(engine) == texts
    same(requests, wanted)
    stats = engine.stats()
    assert 0 < stats["accepted_draft_tokens"] < stats["draft_tokens"]
    assert stats["used_blocks"] == 0
    if POOLS[pool]["num_blocks"] == 11:
        assert stats["preemptions"] >= 2


@pytest.mark.parametrize("num_drafts", [3, None])
def test_ngrams_of_a_text_that_repeats_save_steps(folder: str, num_drafts: int | None) -> None:
    plain = LLMEngine(model=folder, num_blocks=60)
    wanted = plain.generate([LONG, LONG[5:30]], ROUND)
    engine = LLMEngine(model=folder, num_blocks=60, speculate="ngram", num_drafts=num_drafts)
    assert engine.generate([LONG, LONG[5:30]], ROUND) == wanted
    stats = engine.stats()
    assert stats["accepted_draft_tokens"] > 0
    if num_drafts:
        assert stats["steps"] < 0.7 * plain.stats()["steps"]
        assert stats["generation_tokens"] == plain.stats()["generation_tokens"]


def test_aborts_disturb_no_one_else(folder: str, oracle: type[Oracle]) -> None:
    quiet = LLMEngine(model=folder, num_blocks=300)
    wanted = add_all(quiet)
    run(quiet)
    oracle.known = {request.request_id: request.token_ids for request in wanted}
    engine = LLMEngine(model=folder, speculate="ngram", num_drafts=4, num_blocks=300)
    requests = add_all(engine)
    doomed = requests[::3]
    run(engine, lambda step: step <= len(doomed) and engine.abort(doomed[step - 1].request_id))
    for request, other in zip(requests, wanted, strict=True):
        if request.finish_reason is not FinishReason.ABORT:
            assert request.token_ids == other.token_ids
    assert any(request.finish_reason is FinishReason.ABORT for request in doomed)
    assert engine.stats()["used_blocks"] == 0


@pytest.mark.parametrize("min_tokens", [0, 12])
def test_grammar_holds_through_drafts(folder: str, oracle: type[Oracle], min_tokens: int) -> None:
    plain = LLMEngine(model=folder, num_blocks=300)
    asked = [
        SamplingParams(seed=seed, max_tokens=90, constraint=schema(PERSON), min_tokens=min_tokens)
        for seed in range(6)
    ]
    wanted = [plain.add_request([9, 8, 7], params)[0] for params in asked]
    texts = run(plain)
    oracle.known = {request.request_id: request.token_ids for request in wanted}
    engine = LLMEngine(model=folder, speculate="ngram", num_drafts=4, num_blocks=300)
    requests = [engine.add_request([9, 8, 7], params)[0] for params in asked]
    assert run(engine) == texts
    same(requests, wanted)
    assert engine.stats()["accepted_draft_tokens"] > 20


def test_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ConfigError, match="overlap 'on' does not go with speculate 'ngram'"):
        LLMEngine(speculate="ngram", overlap="on")
    with pytest.raises(ConfigError, match="num_drafts needs speculate"):
        LLMEngine(num_drafts=3)
    with pytest.raises(ConfigError, match="num_drafts must be at least 1"):
        LLMEngine(speculate="ngram", num_drafts=0)
