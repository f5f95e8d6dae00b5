"""`--step-seconds`: prompts are cut smaller beside requests that generate."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from yaie import EngineConfig, LLMEngine, SamplingParams
from yaie.core.batch import StepPlan
from yaie.core.step import StepResult
from yaie.engine.step.pacer import LEAST_CHUNK, StepPacer
from yaie.server.engine import engine_for
from yaie.server.settings import ServerSettings

Make = Callable[..., LLMEngine]


@pytest.fixture
def make(tiny_folder: str) -> Iterator[Make]:
    """An engine on the tiny model with these settings."""
    before = torch.get_num_threads()
    base = {"model": tiny_folder, "device": "cpu", "mine": "none", "num_blocks": 64}
    yield lambda **settings: LLMEngine(EngineConfig(**{**base, **settings}))
    torch.set_num_threads(before)


def test_a_long_prompt_is_cut_beside_a_stream_and_tokens_stay_the_same(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine where a step takes as many seconds as it has tokens."""
    stepped = StepPacer.stepped

    def by_tokens(pacer: StepPacer, plan: StepPlan, result: StepResult, seconds: float) -> None:
        stepped(pacer, plan, result, float(sum(item.num_tokens for item in plan.scheduled)))

    monkeypatch.setattr(StepPacer, "stepped", by_tokens)
    asked = [([5 + i % 40 for i in range(60)], 12), ([7 + i % 50 for i in range(100)], 4)]

    def run(limit: float) -> tuple[list[list[int]], int]:
        engine = make()
        if limit:
            engine.machine_parts.pace(limit)
        longest: list[int] = []
        (first,) = engine.add_request(asked[0][0], _greedy(asked[0][1]))
        engine.step()
        engine.step()
        engine.tell_plans(lambda plan: longest.append(max(i.num_tokens for i in plan.scheduled)))
        (second,) = engine.add_request(asked[1][0], _greedy(asked[1][1]))
        while engine.has_work:
            engine.step()
        return [first.token_ids, second.token_ids], max(longest)

    whole, most = run(0.0)
    cut, least = run(1e-9)
    assert most == 100
    assert least <= LEAST_CHUNK + 1
    assert cut == whole


def _greedy(count: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)


@pytest.mark.parametrize(
    ("settings", "limits"),
    [({}, [0.03]), ({"chunked_prefill": False}, []), ({"batching": "static"}, [])],
)
def test_a_server_limits_the_steps_of_an_engine_that_may_cut_prompts(
    make: Make, settings: dict[str, Any], limits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make(**settings)
    loaded: Callable[..., LLMEngine] = lambda config, launch: engine  # noqa: E731
    monkeypatch.setattr("yaie.engine.llm_engine.LLMEngine", loaded)
    server = ServerSettings(step_seconds=0.03, engine_process=False)
    driver: Any = engine_for(engine.config, server)._driver
    observers = driver._load().machine_parts.hooks.observers
    assert [one.limit for one in observers if isinstance(one, StepPacer)] == limits
