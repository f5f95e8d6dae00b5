"""A test run ends with a line on what it left out, and CI fails for what could be installed."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.left_out import MOST_REASONS, incomplete, summary

ROOT = Path(__file__).parents[1]
PLUGIN = """
from tests.left_out import LeftOut

def pytest_configure(config):
    config.pluginmanager.register(LeftOut())
"""
TESTS = """
import pytest

@pytest.mark.nightly
def test_of_the_night(): pass

def test_that_runs(): pass

@pytest.mark.skip(reason="needs a CUDA GPU, and this machine has none")
def test_on_a_gpu(): pass

def test_of_a_program():
    pytest.skip("frob is not installed")
"""


def run_of(folder: Path, *options: str, **environment: str) -> list[str]:
    """The lines of a run of four tests; one is deselected, and two are skipped."""
    (folder / "conftest.py").write_text(PLUGIN)
    (folder / "test_four.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = nightly\n")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "CI"))}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-m", "not nightly", *options, str(folder)],
        cwd=folder,
        env={
            **kept,
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            **environment,
        },
        capture_output=True,
        text=True,
    )
    assert ran.stderr == ""
    return ran.stdout.splitlines()


@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.nightly)])
def test_a_run_says_what_it_left_out_just_above_its_last_line(tmp_path: Path, workers: str) -> None:
    *_, line, last = run_of(tmp_path, "-p", "xdist", "-n", workers)
    assert line.startswith("Left out: 1 nightly (`make nightly`; ")
    assert "; 1 skipped (needs a CUDA GPU, and this machine has none)" in line
    assert "; 1 skipped (frob is not installed)" in line
    assert "1 passed, 2 skipped" in last


def test_ci_fails_for_what_could_have_been_installed(tmp_path: Path) -> None:
    *above, line, last = run_of(tmp_path, CI="true")
    assert "1 failed, 1 passed, 1 skipped" in last
    assert "frob" not in line
    assert any("frob is not installed (In CI this is a failure" in one for one in above)


def test_a_reason_that_lies_in_the_machine_is_none_to_fail_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CI", "true")
    assert not incomplete("needs a CUDA GPU, and this machine has none")
    assert not incomplete("oneDNN is not available")
    assert incomplete("needs nvcc, which is not installed")
    assert incomplete("no C++ compiler")
    monkeypatch.delenv("CI")
    assert not incomplete("no C++ compiler")


def test_the_line_is_short_whatever_was_skipped() -> None:
    assert summary(Counter(), Counter()) == ""
    reasons = Counter({f"reason {number}": number for number in range(1, MOST_REASONS + 3)})
    line = summary(reasons, Counter({"slow": 7}))
    assert line.startswith("Left out: 7 marked slow; 6 skipped (reason 6); ")
    assert line.endswith("; 3 skipped for other reasons, listed above.")
