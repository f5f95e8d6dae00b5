"""Lab 17's part in the engine: a learner's loop sends the steps, and its failures are theirs."""

from pathlib import Path

import torch

from tests.learner import faults_of, hand_in, hand_in_faulty
from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.request import FinishReason

PROMPTS = [[5, 6, 7], list(range(3, 40)), [9]]


def answers(folder: Path, **settings: object) -> list[list[int]]:
    engine = LLMEngine(model=str(folder), num_blocks=60, **settings)
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    requests = [engine.add_request(prompt, params)[0] for prompt in PROMPTS]
    while engine.has_work:
        engine.step()
        engine.check()
    engine.close()
    return [request.output_token_ids for request in requests]


def test_a_learners_loop_sends_the_steps_and_gives_the_same_tokens(
    labs: Path, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    folder = tiny_model("llama", tmp_path / "llama")
    hand_in(labs, "cuda_graphs")
    expected = answers(folder, mine="none")
    for overlap in ("on", "off"):
        assert answers(folder, mine="cuda_graphs", overlap=overlap) == expected


def test_a_loop_that_fails_ends_its_requests_and_is_named(labs: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    folder = tiny_model("llama", tmp_path / "llama")
    hand_in_faulty(labs, "cuda_graphs", "OverlappedLoop.step")
    engine = LLMEngine(model=str(folder), num_blocks=60, mine="cuda_graphs", overlap="on")
    faults_of("cuda_graphs").append(IndexError("boom"))
    [request] = engine.add_request([5, 6], SamplingParams(temperature=0, max_tokens=3))
    while engine.has_work:
        engine.step()
    assert request.finish_reason is FinishReason.ERROR
    assert request.error is not None
    assert "your part cuda_graphs failed: IndexError: boom" in request.error
    assert len(engine.generate([[5, 6]], temperature=0, max_tokens=3)) == 1
    engine.close()
