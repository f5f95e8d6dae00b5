"""Greedy tokens are transformers' own: for every family, however the engine schedules the work.

A family adds arithmetic, which chunks, batches and cached prefixes try: CI does that with half of them.
What interrupts and resumes requests it tries with one family of each way to know positions.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.engine.oracle import greedy, last_logits, make_prompts
from tests.marks import nightly_but
from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.batch import SamplingBatch, StepPlan
from yaie.core.request import Request

MAX_TOKENS = 17
"""One more than a block has: every output crosses a boundary."""
NUM_PROMPTS = 64
SPARE_PROMPTS = 4
ALONE = 16
"""Each length at least once: one at a time, more prompts take long and show nothing else."""
ROUNDING = 1e-4
FAMILIES = (
    "llama llama3-rope llama-yarn mistral qwen2 qwen3 gpt2 "
    "gemma2 gemma3 phi3 opt gpt_neox olmo2 gpt_oss granite4 moe-qwen2"
).split()
ALL = ("tutor", *FAMILIES)
# Rotary and learned positions; windows, in a model of transformers' own.
of_each_kind = pytest.mark.parametrize(
    "case", nightly_but(("llama", "gpt2", "gemma3"), ALL), indirect=True, scope="module"
)
of_every_family = pytest.mark.parametrize(
    "case",
    nightly_but(("llama", "qwen3", "gpt2", "gemma3", "gpt_oss"), ALL),
    indirect=True,
    scope="module",
)


@dataclass
class Case:
    folder: Path
    prompts: list[list[int]]
    expected: list[list[int]]

    def engine(self, **settings: object) -> LLMEngine:
        # On the CPU even where there is a GPU: that is where the expected tokens come from.
        settings = {"num_blocks": 1024, "device": "cpu", **settings}
        return LLMEngine(model=str(self.folder), **settings)


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    torch.set_num_threads(1)
    if request.param == "tutor":
        from yaie.models.tutor import TUTOR_PATH

        folder = TUTOR_PATH
    else:
        folder = tiny_model(request.param, tmp_path_factory.mktemp("models") / request.param)
    prompts = make_prompts(NUM_PROMPTS + SPARE_PROMPTS, vocab=256)
    expected, margins = greedy(folder, prompts, MAX_TOKENS)
    decided = [i for i, margin in enumerate(margins) if margin > ROUNDING][:NUM_PROMPTS]
    assert len(decided) == NUM_PROMPTS
    return Case(folder, [prompts[i] for i in decided], [expected[i] for i in decided])


def run(engine: LLMEngine, prompts: list[list[int]]) -> list[Request]:
    """Add every prompt, step to the end, and check every invariant after every step."""
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)
    requests = [engine.add_request(prompt, params)[0] for prompt in prompts]
    while engine.has_work:
        engine.step()
        engine.check()
    return requests


def assert_empty(engine: LLMEngine) -> None:
    """No block is used but by the tree, and evicting everything returns them all."""
    stats = engine.stats()
    assert stats["used_blocks"] == 0
    engine.reset_prefix_cache()
    assert engine.stats()["free_blocks"] == stats["total_blocks"]
    engine.check()


def outputs(requests: list[Request]) -> list[list[int]]:
    return [request.output_token_ids for request in requests]


@of_each_kind
def test_one_by_one(case: Case) -> None:
    engine = case.engine()
    prompts = case.prompts[:ALONE]
    answers = [outputs(run(engine, [prompt]))[0] for prompt in prompts]
    assert answers == case.expected[:ALONE]
    assert_empty(engine)


@of_every_family
def test_logits_are_within_1e_4_of_transformers(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the step that ends each prompt, with chunks and decodes of others in the same batch."""
    engine = case.engine(token_budget=64)
    seen: dict[str, torch.Tensor] = {}
    plans: list[StepPlan] = []
    engine.tell_plans(plans.append)
    sampler = engine._machine.worker.sampler
    sample = sampler.sample

    def recording(logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
        requests = [item.request for item in plans[-1].scheduled if item.samples]
        for request, row in zip(requests, logits, strict=True):
            seen.setdefault(request.request_id, row.clone())
        return sample(logits, batch)

    monkeypatch.setattr(sampler, "sample", recording)
    requests = run(engine, case.prompts[:24])
    expected = last_logits(case.folder, case.prompts[:24])
    for request, wanted in zip(requests, expected, strict=True):
        assert (seen[request.request_id] - wanted).abs().max() < 1e-4


@of_every_family
def test_all_at_once(case: Case) -> None:
    engine = case.engine()
    assert outputs(run(engine, case.prompts)) == case.expected
    assert_empty(engine)


@of_each_kind
def test_all_at_once_without_prefix_caching(case: Case) -> None:
    engine = case.engine(prefix_caching=False)
    assert outputs(run(engine, case.prompts)) == case.expected
    assert_empty(engine)


@of_every_family
def test_token_budget_of_16(case: Case) -> None:
    engine = case.engine(token_budget=16)
    assert outputs(run(engine, case.prompts)) == case.expected
    assert_empty(engine)


@of_each_kind
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_pool_so_small_that_requests_are_preempted(case: Case, preemption: str) -> None:
    swap_space = 0.01 if preemption == "swap" else 0.0
    engine = case.engine(
        num_blocks=22, preemption=preemption, swap_space=swap_space, max_num_seqs=16, watermark=0.0
    )
    requests = run(engine, case.prompts)
    assert sum(request.num_preemptions for request in requests) >= 10
    assert outputs(requests) == case.expected
    assert_empty(engine)


@of_every_family
def test_second_time_finds_the_prefix_cached(case: Case) -> None:
    engine = case.engine()
    run(engine, case.prompts)
    again = run(engine, case.prompts)
    assert outputs(again) == case.expected
    for request in again:
        reusable = (request.num_prompt_tokens - 1) // engine.config.block_size
        assert request.num_cached_tokens == reusable * engine.config.block_size
    assert_empty(engine)


@of_each_kind
def test_aborts_in_between_disturb_nobody(case: Case) -> None:
    engine = case.engine(num_blocks=48, token_budget=64)
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)
    requests = [engine.add_request(prompt, params)[0] for prompt in case.prompts]
    doomed = requests[::3]
    for request in doomed:
        engine.abort(request.request_id)
        for _ in range(3):
            engine.step()
            engine.check()
    while engine.has_work:
        engine.step()
        engine.check()
    for request, expected in zip(requests, case.expected, strict=True):
        if request not in doomed:
            assert request.output_token_ids == expected
    assert_empty(engine)


@of_each_kind
def test_static_batching_gives_the_same_tokens(case: Case) -> None:
    engine = case.engine(batching="static", max_num_seqs=16)
    assert outputs(run(engine, case.prompts)) == case.expected
    assert_empty(engine)
