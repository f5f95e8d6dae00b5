"""The figure `tensor-parallel` is recorded from a ring, and from other designs as well."""

import json
import shutil
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from book.tools.traces import ROOT, as_text, recorder, reference
from tests.learner import hand_in

LAB = "tensor_parallel"
ROW_BYTES = 8192


def tracks(part: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(as_text(recorder("tensor-parallel").record(part)))["tracks"]
    return made


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return tracks(reference)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_layer_sends_two_all_reduces_of_a_row(recorded: dict[str, Any], size: int) -> None:
    sent = recorded[str(size)]["steps"][-1]["sent"]
    assert sent == [2 * 2 * (size - 1) * ROW_BYTES // size] * size


def test_every_chunk_is_whole_on_every_rank_after_the_last_round(recorded: dict[str, Any]) -> None:
    steps = recorded["4"]["steps"]
    last = max(number for number, step in enumerate(steps) if step["messages"])
    assert steps[last]["cells"] == [[[0, 1, 2, 3]] * 4] * 4
    assert [0, 1, 2, 3] not in steps[last - 4]["cells"][0]


def test_ranks_hold_a_share_each(recorded: dict[str, Any]) -> None:
    held = [[words for _, words in one] for one in recorded["4"]["holds"]]
    assert held[3][:2] == ["q of heads 24–31", "k, v of heads 6–7"]
    assert {one[-1] for one in held} == {"109 MB of weights"}
    assert recorded["1"]["holds"][0][-1][1] == "436 MB of weights"


def test_a_design_without_a_ring_can_be_recorded(labs: Path) -> None:
    folder = hand_in(labs, LAB)
    for file in (ROOT / "grader/known_right" / LAB / "by_direct_sends").glob("*.py"):
        shutil.copy(file, folder)

    def part(name: str) -> ModuleType:
        return import_module(f"labs.{name}")

    steps = tracks(part)["4"]["steps"]
    assert {(source, target) for step in steps for source, target, _ in step["messages"]} == {
        (source, target) for source in range(4) for target in range(4) if source != target
    }
    assert any("to another, a chunk" in step["say"] for step in steps)
