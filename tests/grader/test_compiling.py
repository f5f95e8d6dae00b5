"""What is compiled before a test's time begins."""

from pathlib import Path

import pytest

from grader.compiling import compile_others
from grader.machine import CUDA
from yaie.curriculum.manifest import ROOT, load_curriculum


def test_the_engine_finds_the_other_cuda_parts_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a compiler seconds, and the engine's test has ten for all that it does."""
    built: list[Path] = []
    monkeypatch.setattr("yaie.cuda.on_cpu.build.build", built.append)
    labs = load_curriculum()
    compile_others(labs["cuda_ops"])
    others = {lab.key for lab in labs.labs if CUDA in lab.verify} - {"cuda_ops"}
    assert len(others) >= 3
    assert set(built) == {ROOT / "solutions" / key for key in others}
