"""Coding agents, unmodified, carry a tool loop of three turns through against `yaie serve`.

Each has an empty home and environment, in a network namespace of its own: nothing leaves the machine.
What it is given by a real model it gets here by demand (`agents/between.py`).
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.judges.agents.inside import TURNS
from tests.judges.agents.install import install
from tests.judges.agents.programs import AGENTS

Json = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    install()


def results_in(body: Json) -> int:
    """How many results of tools a request's history has."""
    turns = body.get("messages") or body.get("input") or []
    blocks = [block for turn in turns for block in _blocks(turn)]
    return sum(block.get("role") == "tool" for block in turns) + sum(
        block.get("type") in ("tool_result", "function_call_output") for block in blocks
    )


def _blocks(turn: Json) -> list[Json]:
    content = turn.get("content")
    inner = (
        [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    )
    return [turn, *inner]


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="needs network namespaces")
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_carries_a_loop_of_tools_through(name: str, tmp_path: Path) -> None:
    out = tmp_path / "told.json"
    inside = [sys.executable, "-m", "tests.judges.agents.inside", name, str(out)]
    subprocess.run(["unshare", "-rn", *inside], check=True, timeout=800)
    told = json.loads(out.read_text("utf-8"))
    assert told["status"] == 0, told["said"]
    turns = [
        one
        for one in told["passed"]
        if one["path"] == AGENTS[name].path and one["body"].get("tools")
    ]
    assert [one["status"] for one in turns] == [200] * len(turns)
    assert [results_in(one["body"]) for one in turns][: TURNS + 1] == list(range(TURNS + 1))
