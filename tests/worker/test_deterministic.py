"""With `deterministic` a request's tokens and log-probabilities are the same to the last bit, whatever
runs beside it and however it was cut, cached or preempted."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.batch import SamplingBatch
from yaie.core.errors import ConfigError
from yaie.core.logprobs import TokenLogprob
from yaie.core.request import Request
from yaie.worker import deterministic

ASKED = SamplingParams(
    temperature=0.9,
    seed=5,
    max_tokens=12,
    logprobs=3,
    top_p=0.95,
    frequency_penalty=0.3,
    ignore_eos=True,
)
LENGTH = 37
FAMILIES = ["llama", "qwen2", "gpt2", "gpt_oss"]
"""Rows of gpt_oss meet at experts."""

Outcome = tuple[list[int], torch.Tensor]


@pytest.fixture(
    scope="module", params=[pytest.param("tutor", marks=pytest.mark.nightly), *FAMILIES]
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    if request.param == "tutor":
        return "tutor"
    return str(tiny_model(request.param, tmp_path_factory.mktemp("models") / request.param))


def engine_of(model: str, **settings: Any) -> LLMEngine:
    return LLMEngine(**{"model": model, "deterministic": True, "num_blocks": 200} | settings)


def prompts(engine: LLMEngine) -> tuple[list[int], list[list[int]]]:
    """The prompt that matters, and 15 others of ragged lengths."""
    rng = random.Random(2)
    vocab = engine.model.adapter.vocab_size

    def prompt(length: int) -> list[int]:
        return [rng.randrange(3, vocab) for _ in range(length)]

    return prompt(LENGTH), [prompt(rng.choice((1, 2, 5, 15, 17))) for _ in range(15)]


def crowd(engine: LLMEngine, others: list[list[int]]) -> None:
    for index, prompt in enumerate(others):
        params = SamplingParams(seed=index, max_tokens=1 + index % 5, ignore_eos=True)
        engine.add_request(prompt, params)


def numbers(entries: list[TokenLogprob | None]) -> torch.Tensor:
    rows = [(e.logprob, *(value for _, value in e.top)) for e in entries if e is not None]
    return torch.tensor(rows, dtype=torch.float64)


def run(engine: LLMEngine, request: Request) -> Outcome:
    while engine.has_work:
        engine.step()
        engine.check()
    assert request.error is None
    return request.output_token_ids, numbers(list(request.logprobs))


def answer(engine: LLMEngine, prompt: list[int], params: SamplingParams = ASKED) -> Outcome:
    (request,) = engine.add_request(prompt, params)
    return run(engine, request)


def assert_same(got: Outcome, wanted: Outcome) -> None:
    assert got[0] == wanted[0]
    assert torch.equal(got[1], wanted[1])


def test_neighbours_chunks_and_a_warm_cache_change_no_bit(model: str) -> None:
    engine = engine_of(model)
    prompt, others = prompts(engine)
    alone = answer(engine, prompt)
    crowd(engine, others[:4])
    (cached,) = engine.add_request(prompt, ASKED)
    assert_same(run(engine, cached), alone)
    assert cached.num_cached_tokens == 32

    engine = engine_of(model, token_budget=16)
    crowd(engine, others)
    (beside,) = engine.add_request(prompt, ASKED)
    assert_same(run(engine, beside), alone)


def test_preemption_changes_no_bit(model: str) -> None:
    engine = engine_of(model, num_blocks=5, watermark=0.0, prefix_caching=False)
    prompt, _ = prompts(engine)
    alone = answer(engine, prompt)
    long = SamplingParams(seed=1, max_tokens=40, ignore_eos=True)
    engine.add_request(prompt[:31], long)
    (last,) = engine.add_request(prompt, ASKED)
    assert_same(run(engine, last), alone)
    assert last.num_preemptions > 0


@pytest.mark.parametrize("budget", [5, 16, 2048])
def test_prompt_logprobs_are_the_same_bits_however_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, budget: int
) -> None:
    folder = tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=2)
    told = []
    for limit in (2048, budget):
        engine = engine_of(str(folder), token_budget=limit)
        prompt, others = prompts(engine)
        if limit != 2048:
            crowd(engine, others)
        (request,) = engine.add_request(prompt, params)
        run(engine, request)
        told.append(numbers(request.prompt_logprobs))
    assert torch.equal(*told)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return str(tiny_model("llama", tmp_path_factory.mktemp("models") / "llama"))


def test_bfloat16_keeps_its_bits_too(llama: str) -> None:
    engine = engine_of(llama, dtype="bfloat16")
    prompt, others = prompts(engine)
    alone = answer(engine, prompt)
    engine = engine_of(llama, dtype="bfloat16", token_budget=16)
    crowd(engine, others)
    assert_same(answer(engine, prompt), alone)


def test_without_the_setting_bits_do_change(llama: str) -> None:
    """Or the tests above would see nothing."""
    engine = engine_of(llama, deterministic=False)
    prompt, others = prompts(engine)
    alone = answer(engine, prompt)
    engine = engine_of(llama, deterministic=False, token_budget=16)
    crowd(engine, others)
    beside = answer(engine, prompt)
    assert beside[0] == alone[0]
    assert not torch.equal(beside[1], alone[1])


def test_siblings_of_a_prompt_are_single_requests(llama: str) -> None:
    params = SamplingParams(seed=3, n=2, max_tokens=6, logprobs=1, ignore_eos=True)
    engine = engine_of(llama)
    prompt, _ = prompts(engine)
    for sibling in engine.add_request(prompt, params):
        got = run(engine, sibling)
        single = SamplingParams(seed=sibling.seed, max_tokens=6, logprobs=1, ignore_eos=True)
        assert_same(got, answer(engine_of(llama), prompt, single))


def test_model_whose_rows_meet_runs_one_token_at_a_time(
    llama: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = LLMEngine(model=llama, num_blocks=8).model.adapter
    assert deterministic.TiledAdapter(adapter).tile == deterministic.TILE
    forward = adapter.forward
    monkeypatch.setattr(
        adapter, "forward", lambda *args: (hidden := forward(*args)) + 1e-3 * hidden.mean()
    )
    assert deterministic.TiledAdapter(adapter).tile == 1


@pytest.mark.parametrize("what", ["place", "neighbour"])
def test_a_place_in_the_tile_or_a_neighbour_is_enough(
    llama: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Each alone: rows that depend on their place but on no other row, and rows that depend on which
    others there are but not on where they stand."""
    adapter = LLMEngine(model=llama, num_blocks=8).model.adapter
    forward = adapter.forward

    def meeting(*args: Any) -> torch.Tensor:
        hidden: torch.Tensor = forward(*args)
        places = torch.arange(len(hidden), dtype=hidden.dtype)[:, None]
        return hidden + 1e-3 * (places if what == "place" else hidden.amax(0))

    monkeypatch.setattr(adapter, "forward", meeting)
    assert not deterministic.rows_are_independent(adapter)


def test_model_with_experts_runs_one_token_at_a_time(tmp_path: Path) -> None:
    folder = tiny_model("gpt_oss", tmp_path / "gpt_oss")
    adapter = LLMEngine(model=str(folder), num_blocks=8).model.adapter
    assert deterministic.TiledAdapter(adapter).tile == 1


def test_sampler_is_given_one_row_at_a_time(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(llama)
    part: Any = engine._machine.worker.sampler._sampler  # type: ignore[attr-defined]
    seen: list[int] = []
    sample = part.sample

    def watched(logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
        seen.append(len(logits))
        drawn: torch.Tensor = sample(logits, batch)
        return drawn

    monkeypatch.setattr(part, "sample", watched)
    engine.generate([[5], [6], [7]], temperature=0, max_tokens=2, ignore_eos=True)
    assert seen == [1] * 6


def test_kernels_are_refused(llama: str) -> None:
    with pytest.raises(ConfigError, match=r"deterministic.*torch"):
        engine_of(llama, backend="cuda")
