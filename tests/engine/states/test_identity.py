"""A model whose layers keep a state answers as transformers' does, however its work is scheduled."""

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.exact import MAX_TOKENS, ROUNDING, Case, assert_empty, outputs, run
from tests.engine.oracle import last_logits
from tests.engine.states.cases import GREEDY, finish, interleave, of_each_kind, of_one
from tests.marks import nightly_but
from tests.models.tiny import AMPLIFIED
from yaie import SamplingParams
from yaie.core.batch import SamplingBatch, StepPlan
from yaie.core.request import FailureKind
from yaie.worker.states import StatefulWorker

ALONE = 16
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"backend": "torch"},
    {"token_budget": 16},
    {"token_budget": 24, "block_size": 4},
    {"overlap": "on", "token_budget": 40, "max_num_seqs": 5},
    {"policy": "lpm", "max_num_seqs": 4},
    {"prefix_caching": False},
    {"overlap": "on"},
    {"batching": "static", "max_num_seqs": 16},
    {"chunked_prefill": False},
)
"""Of which CI tries the first ones."""


@of_one
def test_one_by_one(case: Case) -> None:
    engine = case.engine()
    answers = [outputs(run(engine, [prompt]))[0] for prompt in case.prompts[:ALONE]]
    assert answers == case.expected[:ALONE]
    assert_empty(engine)


@of_each_kind
def test_in_chunks_and_with_cached_prefixes(case: Case) -> None:
    engine = case.engine(token_budget=40)
    assert outputs(run(engine, case.prompts)) == case.expected
    again = run(engine, case.prompts)
    assert outputs(again) == case.expected
    assert {request.num_cached_tokens for request in again} == {0, 64, 96}
    assert_empty(engine)


@of_one
@pytest.mark.parametrize("settings", nightly_but(SETTINGS[:6], SETTINGS), ids=str)
def test_together_and_again(case: Case, settings: dict[str, Any]) -> None:
    engine = case.engine(**settings)
    assert outputs(run(engine, case.prompts)) == case.expected
    assert outputs(run(engine, case.prompts)) == case.expected
    assert_empty(engine)
    engine.close()


@of_each_kind
@pytest.mark.parametrize("overlap", ["on", "off"])
def test_preempted(case: Case, overlap: str) -> None:
    engine = case.engine(num_blocks=22, max_num_seqs=16, watermark=0.0, overlap=overlap)
    requests = run(engine, case.prompts)
    assert sum(request.num_preemptions for request in requests) >= 5
    assert outputs(requests) == case.expected
    assert_empty(engine)
    engine.close()


@of_each_kind
def test_logits_are_those_of_transformers(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
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
    for request, wanted in zip(requests, last_logits(case.folder, case.prompts[:24]), strict=True):
        most = AMPLIFIED.get(case.folder.name, ROUNDING)
        assert (seen[request.request_id] - wanted).abs().max() < most


@of_one
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_siblings_of_a_prompt_answer_alike(case: Case, prefix_caching: bool) -> None:
    engine = case.engine(prefix_caching=prefix_caching)
    longest = max(range(len(case.prompts)), key=lambda i: len(case.prompts[i]))
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True, n=3)
    requests = engine.add_request(case.prompts[longest], params)
    finish(engine)
    assert outputs(requests) == [case.expected[longest]] * 3
    reused = [request.num_cached_tokens for request in requests]
    assert reused == ([0, 96, 96] if prefix_caching else [0, 0, 0])


@of_one
def test_seats_of_requests_that_ended_in_mid_flight_serve_others(case: Case) -> None:
    """The last step of one that a stop token ends is computed beside the first of the next."""
    engine = case.engine(overlap="on", max_num_seqs=2, prefix_caching=False)
    pairs = list(zip(case.prompts, case.expected, strict=True))
    stops = [
        SamplingParams(
            temperature=0, max_tokens=MAX_TOKENS, stop_token_ids=(tokens[3],), ignore_eos=True
        )
        for _, tokens in pairs
    ]
    requests = [
        engine.add_request(prompt, params)[0]
        for (prompt, _), params in zip(pairs, stops, strict=True)
    ]
    finish(engine)
    for request, (_, tokens) in zip(requests, pairs, strict=True):
        assert request.output_token_ids == tokens[: tokens.index(tokens[3]) + 1]
    engine.close()


@of_one
def test_what_a_seat_held_before_a_hit_is_not_read(case: Case) -> None:
    """Not even where it is NaN, as from a request that went wrong."""
    engine = case.engine()
    run(engine, case.prompts)
    worker = engine.machine_parts.worker
    assert isinstance(worker, StatefulWorker)
    for one in chain(*worker.states.layers):
        one[: worker.batch.nobody] = float("nan")
    again = run(engine, case.prompts)
    assert outputs(again) == case.expected
    assert max(request.num_cached_tokens for request in again) == 96


@of_one
def test_a_step_without_memory_ends_its_requests_and_no_others(case: Case) -> None:
    """Those that answer may not be computed again: their states have moved on."""
    engine = case.engine(token_budget=256)
    adapter = engine.model.adapter
    forward = adapter.forward

    def limited(token_ids: torch.Tensor, *more: Any) -> torch.Tensor:
        hidden: torch.Tensor = forward(token_ids, *more)
        if len(token_ids) > 60:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return hidden

    adapter.forward = limited
    [first] = engine.add_request(case.prompts[0], GREEDY)
    engine.step()
    [victim] = engine.add_request(list(range(5, 100)), GREEDY)
    finish(engine)
    assert first.failure is victim.failure is FailureKind.MEMORY
    assert outputs(run(engine, case.prompts[:3])) == case.expected[:3]


@pytest.mark.nightly
@pytest.mark.parametrize("case", ["lfm2", "qwen3_5", "granite4-h"], indirect=True, scope="module")
@pytest.mark.parametrize("graphs", ["padded", "off"])
def test_kernels_in_padded_steps_give_the_same_tokens(case: Case, graphs: str) -> None:
    """In the interpreter, which takes a second a token."""
    engine = case.engine(
        backend="triton", graphs=graphs, num_blocks=40, max_num_seqs=4, token_budget=16
    )
    chosen = [at for at, prompt in enumerate(case.prompts) if len(prompt) in (2, 17)][:4]
    params = replace(GREEDY, max_tokens=5)
    requests = [engine.add_request(case.prompts[at], params)[0] for at in chosen]
    finish(engine)
    assert outputs(requests) == [case.expected[at][:5] for at in chosen]


@of_one
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_any_interleaving_gives_the_tokens_of_a_lone_run(case: Case, data: st.DataObject) -> None:
    """Requests come, go and come back; blocks and budget are few."""
    interleave(case, data)


@pytest.mark.nightly
@pytest.mark.parametrize("case", ["lfm2", "qwen3_5", "granite4-h"], indirect=True, scope="module")
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_many_interleavings_do(case: Case, data: st.DataObject) -> None:
    interleave(case, data)
