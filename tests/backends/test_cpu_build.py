"""The C++ library is compiled once for all processes, and what fails is a KernelError."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from yaie.backends.cpu import build
from yaie.backends.cpu.library import Library
from yaie.core.errors import KernelError

COMPILER = """#!{python}
import os, sys, time
if "--version" in sys.argv:
    print("1.0")
    sys.exit()
with open({log!r}, "a") as log:
    log.write("x")
with open(sys.argv[sys.argv.index("-o") + 1], "w") as library:
    library.write("half")
    library.flush()
    while os.path.getsize({log!r}) < {together}:  # both compile at once
        time.sleep(0.01)
    time.sleep(0.2)
    library.write(" and half")
"""
ASK = "from yaie.backends.cpu.build import build; print(build().read_text())"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A letter for each run of a compiler that takes its time. The cache is empty."""
    log = tmp_path / "runs"
    log.touch()
    _compiler(tmp_path, monkeypatch, COMPILER, log=str(log), together=1)
    return log


def _compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, **values: object) -> None:
    program = folder / "compiler"
    program.write_text(text.format(python=sys.executable, **values))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(program))
    monkeypatch.setenv("YAIE_CACHE", str(folder / "cache"))


def test_what_was_compiled_is_not_compiled_again(runs: Path) -> None:
    path = build.build()
    assert path.read_text() == "half and half"
    assert build.build() == path
    assert runs.read_text() == "x"


@pytest.mark.nightly
def test_two_processes_that_start_at_once_do_not_disturb_each_other(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compiler(tmp_path, monkeypatch, COMPILER, log=str(runs), together=2)
    both = [
        subprocess.Popen([sys.executable, "-c", ASK], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=60)[0] for process in both]
    assert said == ["half and half\n"] * 2
    assert runs.read_text() == "xx"
    (kept,) = (tmp_path / "cache/cpp").iterdir()
    assert kept.suffix == ".so"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_is_told_what_it_waits_for_once(
    is_terminal: bool,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    for _ in range(2):
        build.build()
    said = "Compiling attention for this processor, once: a few seconds ...\n"
    assert capsys.readouterr().err == (said if is_terminal else "")


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "#!/bin/sh\necho 'plan.h:3: error: no such thing' >&2\nexit 1\n"
    _compiler(tmp_path, monkeypatch, text)
    with pytest.raises(KernelError, match=r"does not compile attention .* no such thing"):
        build.build()
    assert list((tmp_path / "cache/cpp").iterdir()) == []


def test_no_home_folder_is_a_sentence(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert build.build().exists()  # YAIE_CACHE is a place
    monkeypatch.delenv("YAIE_CACHE")
    with pytest.raises(KernelError, match=r"no home folder .* set YAIE_CACHE"):
        build.build()


def test_a_cache_that_cannot_be_a_folder_is_a_sentence(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file stands in its place")
    with pytest.raises(KernelError, match="cannot write"):
        build.build()


def test_a_library_that_cannot_be_loaded_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "cpu.so").write_text("none")
    with pytest.raises(KernelError, match=r"cpu\.so.*Delete it, or set YAIE_CACHE"):
        Library(tmp_path / "cpu.so")
