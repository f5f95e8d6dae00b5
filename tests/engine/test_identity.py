"""Greedy tokens are transformers' own: for every family, however the engine schedules the work.

A family adds arithmetic, which chunks, batches and cached prefixes try: CI does that with half of them.
What interrupts and resumes requests it tries with one family of each way to know positions.
"""

import pytest
import torch

from tests.engine.exact import MAX_TOKENS, Case, assert_empty, case_of, outputs, run
from tests.engine.oracle import last_logits
from tests.marks import nightly_but
from tests.models.tiny import tiny_model
from yaie import SamplingParams
from yaie.core.batch import SamplingBatch, StepPlan

ALONE = 16
"""Each length at least once: one at a time, more prompts take long and show nothing else."""
FAMILIES = (
    "llama llama3-rope llama-yarn mistral qwen2 qwen3 gpt2 "
    "gemma2 gemma3 gemma3-linear gemma4 gemma4-31b gemma4-26b olmo2 olmo3 granite granite4-rope "
    "gpt_oss gpt_oss-20b gpt_oss-120b phi3 opt gpt_neox granite4 moe-qwen2"
).split()
ALL = ("tutor", *FAMILIES)
# Rotary and learned positions; windows in some layers; a model of transformers' own.
of_each_kind = pytest.mark.parametrize(
    "case", nightly_but(("llama", "gpt2", "gemma3", "phi3"), ALL), indirect=True, scope="module"
)
of_every_family = pytest.mark.parametrize(
    "case",
    nightly_but(("llama", "qwen3", "gpt2", "gemma3", "gpt_oss"), ALL),
    indirect=True,
    scope="module",
)


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    if request.param == "tutor":
        from yaie.models.tutor import TUTOR_PATH

        return case_of(TUTOR_PATH)
    return case_of(tiny_model(request.param, tmp_path_factory.mktemp("models") / request.param))


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
