"""Benchmarks are run as commands: in this process, on a tiny random model."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran, Yaie, _own_state, tiny_folder, yaie

__all__ = ["_own_state", "tiny_folder", "yaie"]


@pytest.fixture
def measured(yaie: Yaie, tmp_path: Path) -> Any:
    """Run `yaie bench throughput ...`; what it said, and its file."""

    def run(*arguments: str) -> tuple[Ran, dict[str, Any]]:
        file = tmp_path / "figures.json"
        ran = yaie("bench", "throughput", *arguments, "--json", str(file))
        assert ran.code == 0, ran.err
        return ran, json.loads(file.read_text())

    return run
