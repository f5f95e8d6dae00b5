"""A step for which the device has no memory: its prompts end with an error that invites another try."""

from typing import Any

import pytest
import torch

from yaie import LLMEngine, SamplingParams
from yaie.core.errors import EngineOverloadedError
from yaie.core.output import RequestOutput
from yaie.core.request import FailureKind, FinishReason, Request

PARAMS = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


def limit(engine: LLMEngine, most: int) -> None:
    """Let the model have memory for so many tokens at once."""
    adapter = engine.model.adapter
    forward = type(adapter).forward

    def limited(token_ids: torch.Tensor, *more: Any) -> torch.Tensor:
        if len(token_ids) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        hidden: torch.Tensor = forward(adapter, token_ids, *more)
        return hidden

    adapter.forward = limited


def finish(engine: LLMEngine) -> list[RequestOutput]:
    outputs = []
    while engine.has_work:
        outputs += engine.step()
        engine.check()
    return outputs


def alone(prompt: list[int]) -> list[int]:
    engine = LLMEngine(num_blocks=64, mine="none")
    [request] = engine.add_request(prompt, PARAMS)
    finish(engine)
    return request.output_token_ids


@pytest.mark.parametrize("overlap", ["on", "off"])
def test_a_long_prompt_ends_and_whoever_answers_goes_on(overlap: Any) -> None:
    engine = LLMEngine(num_blocks=64, mine="none", overlap=overlap)
    limit(engine, 40)
    [first] = engine.add_request([9, 8, 7], PARAMS)
    for _ in range(4):
        engine.step()
    [victim] = engine.add_request(list(range(10, 100)), PARAMS)
    outputs = finish(engine)
    assert first.output_token_ids == alone([9, 8, 7])
    last = [output for output in outputs if output.request_id == victim.request_id][-1]
    assert last.finish_reason is FinishReason.ERROR
    assert last.failure is FailureKind.MEMORY
    assert isinstance(last.exception, EngineOverloadedError)
    assert "no memory left for this prompt" in str(last.exception)
    short = list(range(10, 40))
    [after] = engine.add_request(short, PARAMS)
    finish(engine)
    assert after.output_token_ids == alone(short)


def test_a_prompt_in_chunks_loses_what_it_had_and_leaves_no_block() -> None:
    """Its first chunk fits, beside nobody; its second comes with another prompt."""
    engine = LLMEngine(num_blocks=64, mine="none", token_budget=48, prefix_caching=False)
    limit(engine, 47)
    requests: list[Request] = []
    for length in (60, 30):
        requests += engine.add_request(list(range(10, 10 + length)), PARAMS)
    finish(engine)
    assert [request.failure for request in requests] == [FailureKind.MEMORY, None]
    assert requests[1].output_token_ids == alone(list(range(10, 40)))
    assert engine.stats()["used_blocks"] == 0
