"""With `deterministic` on a GPU a request's tokens and log-probabilities are the same to the last bit,
alone and among others, however it was cut, cached or preempted, with graphs and without."""

from typing import Any

import pytest
import torch

from tests.models.tiny import tiny_model
from tests.worker.test_deterministic import (
    ASKED,
    Outcome,
    answer,
    assert_same,
    crowd,
    prompts,
    run,
)
from yaie import LLMEngine, SamplingParams
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.core.gemm import PlainWeight
from yaie.worker import invariant
from yaie.worker.deterministic import check_deterministic

SETTINGS: dict[str, Any] = {
    "deterministic": True,
    "backend": "triton",
    "dtype": "bfloat16",
    "mine": "none",
    "num_blocks": 400,
    "max_num_seqs": 32,
}


@pytest.fixture(scope="module", params=["tutor", "qwen3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "tutor":
        return "tutor"
    return str(tiny_model(request.param, tmp_path_factory.mktemp("models") / request.param))


def engine_of(model: str, **settings: Any) -> LLMEngine:
    return LLMEngine(**SETTINGS | {"model": model} | settings)


@pytest.fixture(scope="module")
def alone(model: str) -> Outcome:
    """Of the prompt that matters: steps launched kernel by kernel, nobody else there."""
    engine = engine_of(model, graphs="off")
    prompt, _ = prompts(engine)
    return answer(engine, prompt)


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", ["off", "lazy"])
@pytest.mark.parametrize("budget", [7, 2048])
def test_neighbours_chunks_and_graphs_change_no_bit(
    model: str, alone: Outcome, budget: int, graphs: str
) -> None:
    engine = engine_of(model, graphs=graphs, token_budget=budget)
    prompt, others = prompts(engine)
    crowd(engine, others)
    (beside,) = engine.add_request(prompt, ASKED)
    assert_same(run(engine, beside), alone)


@pytest.mark.gpu
def test_a_warm_cache_changes_no_bit(model: str, alone: Outcome) -> None:
    engine = engine_of(model, graphs="lazy")
    prompt, others = prompts(engine)
    answer(engine, prompt)
    crowd(engine, others[:4])
    (cached,) = engine.add_request(prompt, ASKED)
    assert_same(run(engine, cached), alone)
    assert cached.num_cached_tokens == 32


@pytest.mark.gpu
def test_preemption_changes_no_bit(model: str, alone: Outcome) -> None:
    engine = engine_of(model, graphs="lazy", num_blocks=5, watermark=0.0, prefix_caching=False)
    prompt, _ = prompts(engine)
    long = SamplingParams(seed=1, max_tokens=40, ignore_eos=True)
    engine.add_request(prompt[:31], long)
    (last,) = engine.add_request(prompt, ASKED)
    assert_same(run(engine, last), alone)
    assert last.num_preemptions > 0


@pytest.mark.gpu
def test_a_long_prompt_among_many_has_the_bits_that_it_has_alone(model: str) -> None:
    """Past one tile of rows, and past one part of the keys."""
    params = SamplingParams(temperature=0, max_tokens=4, logprobs=2, prompt_logprobs=1)
    told = []
    for company in (0, 20):
        engine = engine_of(model, token_budget=512)
        vocab = engine.model.adapter.vocab_size
        long = [3 + 7 * i % (vocab - 3) for i in range(min(300, engine.model.max_length - 8))]
        crowd(engine, [long[i : i + 9] for i in range(company)])
        (request,) = engine.add_request(long, params)
        drawn = run(engine, request)
        assert request.prompt_logprobs is not None
        told.append((drawn, [entry.logprob for entry in request.prompt_logprobs if entry]))
    assert_same(told[0][0], told[1][0])
    assert told[0][1] == told[1][1]


@pytest.mark.gpu
def test_without_the_setting_bits_do_change() -> None:
    """Or the tests above would see nothing. The tiny model is too small for that."""
    told = []
    for settings in ({}, {"token_budget": 7}):
        engine = engine_of("tutor", deterministic=False, graphs="off", **settings)
        prompt, others = prompts(engine)
        if settings:
            crowd(engine, others)
        told.append(answer(engine, prompt))
    assert not torch.equal(told[0][1], told[1][1])


@pytest.mark.parametrize(
    ("device", "backend"), [("cuda", "torch"), ("cuda", "cuda"), ("cpu", "cuda")]
)
def test_other_backends_are_refused(device: str, backend: str) -> None:
    wanted = "triton" if device == "cuda" else "torch"
    with pytest.raises(ConfigError, match=f"deterministic runs on backend {wanted}"):
        check_deterministic(EngineConfig(deterministic=True), backend, torch.device(device))


def test_models_that_libraries_compute_are_refused(tmp_path: Any) -> None:
    adapter = LLMEngine(
        model=str(tiny_model("gpt2", tmp_path / "gpt2")), num_blocks=8
    ).model.adapter
    with pytest.raises(ConfigError, match="Qwen3 families"):
        invariant.InvariantAdapter(adapter, Products())


class Products:
    """In PyTorch: sums that depend on the number of rows, unless one tile is used."""

    def __init__(self, mends: bool = True) -> None:
        self.is_mended, self._mends = False, mends

    def use_one_tile(self) -> None:
        self.is_mended = self._mends

    def in_float32(self, x: torch.Tensor, product: PlainWeight) -> torch.Tensor:
        rows = torch.stack([row @ product.weight.T for row in x]).float()
        return rows if self.is_mended or len(x) > 16 else rows + 1e-3

    takes = after_norm = gated = product = onto = None  # type: ignore[assignment]


@pytest.fixture
def plain_llama(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whose rows come out the same by themselves: the head alone is tried."""
    adapter: Any = LLMEngine(
        model=str(tiny_model("llama", tmp_path / "llama")), num_blocks=8
    ).model.adapter
    weight = torch.ones(adapter.vocab_size, adapter.config.hidden_size)
    monkeypatch.setattr(invariant, "_head_of", lambda adapter: PlainWeight(weight, None))
    monkeypatch.setattr(adapter, "forward", lambda ids, positions, attend: adapter.embedding[ids])
    return adapter


def test_one_tile_is_used_where_two_differ(plain_llama: Any) -> None:
    products: Any = Products()
    invariant.InvariantAdapter(plain_llama, products)
    assert products.is_mended


def test_a_gpu_on_which_one_tile_differs_too_is_refused(plain_llama: Any) -> None:
    products: Any = Products(mends=False)
    with pytest.raises(ConfigError, match="cannot be kept on this GPU"):
        invariant.InvariantAdapter(plain_llama, products)
