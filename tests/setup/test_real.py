"""Set-ups on other Pythons: where an interpreter is looked for, and what is said without one."""

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.setup import real
from tests.setup.real import RUNNING, TORCH, chosen, main, runs

SPACE = 15 * 10**9


def test_this_interpreter_runs_and_a_stand_in_does_not(tmp_path: Path) -> None:
    assert runs(Path(sys.executable), RUNNING)
    assert not runs(Path(sys.executable), "3.1")
    stand_in = tmp_path / "python3.10"  # as pyenv's, of a version that is not chosen
    stand_in.write_text("#!/bin/sh\necho 'pyenv: python3.10: command not found' >&2\nexit 127\n")
    stand_in.chmod(0o755)
    assert not runs(stand_in, "3.10")
    assert not runs(tmp_path / "nowhere", "3.10")


def test_what_cannot_be_had_is_said_and_the_next_one_is_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = {"3.10": Path("/a/python3.10"), "3.12": Path("/a/python3.12"), "3.11": Path("/a/python")}
    monkeypatch.setattr(real, "find", here.get)
    monkeypatch.setattr(real, "RUNNING", "3.9")
    assert list(chosen()) == ["3.10", "3.12"]
    none = "Python {}: none is here, and none could be fetched\n"
    assert capsys.readouterr().out == none.format("3.14") + none.format("3.13")


def test_a_failure_on_one_python_is_told_and_the_others_are_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail_on_3_10(python: str, _interpreter: Path, folder: Path) -> str:
        assert folder.is_dir()
        if python == "3.10":
            real.do([sys.executable, "-c", "print('why'); raise SystemExit(1)"])
        return "2 packages"

    monkeypatch.setattr(real, "chosen", lambda: {"3.10": Path("a"), "3.13": Path("b")})
    monkeypatch.setattr(real, "light", fail_on_3_10)
    assert main([]) == 1
    said = capsys.readouterr()
    assert said.out == "Python 3.13: 2 packages\n"
    assert "Python 3.10 failed: " in said.err
    assert "why" in said.err


def test_what_pytorch_brings_along_is_left_out() -> None:
    pins = ["torch==2.13.0", "triton==3.7.1", "nvidia-cublas==13.1", "cuda-bindings==13.4"]
    assert all(TORCH.match(pin) for pin in pins)
    assert not any(TORCH.match(pin) for pin in ["torchmetrics==1.0", "numpy==2.4.6"])


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(2 * 3600)
def test_make_setup_works_on_the_oldest_and_the_newest_other_python() -> None:
    if not chosen():
        pytest.skip("no other Python can be had: none is here, and none could be fetched")
    if shutil.disk_usage(tempfile.gettempdir()).free < SPACE:
        pytest.skip("no space for another environment can be had: 15 GB must be free")
    assert main(["--whole"]) == 0
