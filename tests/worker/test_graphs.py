"""Replayed decode steps on a GPU: the tokens and log-probabilities of steps launched one by one."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.constrained import PERSON, schema
from tests.learner import hand_in
from yaie import LLMEngine, SamplingParams
from yaie.core.errors import ConfigError
from yaie.core.request import FailureKind, Request

pytestmark = pytest.mark.gpu
WISHES: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.8},
    {"temperature": 1.0, "top_p": 0.9, "top_k": 40},
    {"temperature": 0.9, "logprobs": 3},
    {"temperature": 0.7, "frequency_penalty": 0.4, "repetition_penalty": 1.1},
    {"temperature": 1.0, "min_tokens": 6, "stop": ("e",)},
    {"temperature": 1.0, "constraint": schema(PERSON)},
    {"temperature": 0.0, "prompt_logprobs": 1},
]


def engine_with(**settings: Any) -> LLMEngine:
    """The tutor with a few sizes of graphs."""
    few = {"max_num_seqs": 12, "token_budget": 96, "num_blocks": 200, "mine": "none"}
    return LLMEngine(model="tutor", device="cuda", **{**few, "dtype": "float32", **settings})


def served(engine: LLMEngine, count: int = 40) -> list[Any]:
    """What requests of every kind get, which come while others run; every ninth is given up."""
    rng = random.Random(0)
    requests: list[Request] = []
    for number in range(count):
        prompt = [rng.randrange(5, 400) for _ in range(rng.choice((1, 3, 15, 16, 17, 40, 130)))]
        if number % 3 == 2:
            prompt = requests[-1].token_ids[: requests[-1].num_prompt_tokens] + prompt[:5]
        params = SamplingParams(
            **WISHES[number % len(WISHES)], max_tokens=rng.randint(1, 40), seed=number
        )
        requests += engine.add_request(prompt, params)
        for _ in range(rng.randint(0, 2)):
            engine.step()
        if number % 9 == 8:
            engine.abort(requests[-1].request_id)
    while engine.has_work:
        engine.step()
        engine.check()
    kept = [request for at, request in enumerate(requests) if at % 9 != 8]
    return [(r.output_token_ids, r.logprobs, r.finish_reason) for r in kept]


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "recompute": {"num_blocks": 30, "watermark": 0.0},
    "swap": {"num_blocks": 30, "watermark": 0.0, "preemption": "swap", "swap_space": 0.1},
    "in order": {"overlap": "off"},
    "cuda": {"backend": "cuda"},
    "static": {"batching": "static"},
    "drafts": {"speculate": "ngram", "num_drafts": 3},
}


@pytest.mark.parametrize("name", CASES)
def test_replayed_steps_are_equal_to_launched_ones(name: str) -> None:
    """To the last bit, log-probabilities included; without padding the tokens are the same."""
    settings = CASES[name]
    replayed = served(engine_with(graphs="on", **settings))
    assert replayed == served(engine_with(graphs="padded", **settings))
    unpadded = served(engine_with(graphs="off", **settings))
    assert [tokens for tokens, *_ in replayed] == [tokens for tokens, *_ in unpadded]


def test_half_precision_is_equal_to_the_last_bit_as_well() -> None:
    settings = {"dtype": "bfloat16"}
    replayed = served(engine_with(graphs="on", **settings))
    assert replayed == served(engine_with(graphs="padded", **settings))
    assert replayed == served(engine_with(graphs="lazy", **settings))


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """The kernels that Triton compiles, from now on."""
    triton = pytest.importorskip("triton")
    names: list[str] = []

    def note(**told: Any) -> None:
        names.append(getattr(told.get("fn"), "name", "?"))

    triton.knobs.runtime.jit_post_compile_hook = note
    yield names
    triton.knobs.runtime.jit_post_compile_hook = None


def test_nothing_is_compiled_after_the_start(compiled: list[str]) -> None:
    engine = engine_with(token_budget=300)
    compiled.clear()
    served(engine, 80)
    assert compiled == []


WAITING = """

_sample = Sampler.sample


def _waits(self, logits, batch):
    if batch.temperature.max().item() > 5:
        raise ValueError
    return _sample(self, logits, batch)


Sampler.sample = _waits
"""


def test_a_part_that_cannot_be_captured_runs_and_the_start_says_so(
    labs: Path,
) -> None:
    hand_in(labs, "triton_sampling", WAITING)
    expected = served(engine_with(graphs="off"))
    engine = engine_with(mine="triton_sampling")
    assert "your part triton_sampling cannot be captured" in engine.info.decode_note
    assert served(engine) == expected
    with pytest.raises(ConfigError, match="cannot be captured"):
        engine_with(mine="triton_sampling", graphs="on")


def test_out_of_memory_costs_a_prompt_and_nobody_else() -> None:
    engine = engine_with(num_blocks=2000, token_budget=8192, max_num_seqs=4)
    alone = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)
    [request] = engine.add_request([5, 6, 7], alone)
    while engine.has_work:
        engine.step()
    [running] = engine.add_request([5, 6, 7], alone)
    engine.step()
    engine.step()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**20) / total)
    try:
        # Together more tokens than a recorded step holds: those are launched, and take memory.
        victims = [engine.add_request([token] * 1900, alone)[0] for token in (8, 9, 10)]
        while engine.has_work:
            engine.step()
            engine.check()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert running.output_token_ids == request.output_token_ids
    for victim in victims:
        assert (victim.failure, len(victim.output_token_ids)) == (FailureKind.MEMORY, 0)
    [later] = engine.add_request([8] * 1900, alone)
    while engine.has_work:
        engine.step()
    assert len(later.output_token_ids) == 60


def test_a_learners_recordings_are_replayed(labs: Path) -> None:
    hand_in(labs, "cuda_graphs")
    expected = served(engine_with(graphs="on"))
    engine = engine_with(graphs="on", mine="cuda_graphs")
    assert {part.lab for part in engine.parts if part.is_yours} == {"cuda_graphs"}
    assert served(engine) == expected
