"""How far it is from the loop that runs an engine to the decision what a step computes."""

import sys
from pathlib import Path

import pytest

from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams


def test_the_loop_reaches_the_scheduler_in_four_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LLMEngine(model=str(tiny_model("llama", tmp_path / "llama")), num_blocks=20)
    engine.add_request([5, 6, 7], SamplingParams(temperature=0, max_tokens=2))
    scheduler = engine._machine.scheduler
    schedule, depths = scheduler.schedule, []

    def watched() -> object:
        frame, depth = sys._getframe(1), 1
        while frame.f_back is not None and frame.f_code is not here:
            frame, depth = frame.f_back, depth + 1
        depths.append(depth)
        return schedule()

    here = sys._getframe().f_code
    monkeypatch.setattr(scheduler, "schedule", watched)
    engine.step()  # as `EngineThread._work` calls it
    assert depths == [4]
