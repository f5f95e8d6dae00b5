"""Where commands can neither print nor write: a full device, no home folder, a disk that runs full."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Yaie
from tests.disk import files_below, nothing_fits
from tests.server.fake_engine import FakeEngine
from yaie.cli.chat_history import open_history
from yaie.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
COMMANDS = [
    *("serve", "chat", "generate", "doctor", "build-kernels", "bench", "lab"),
    *(f"bench {name}" for name in ("throughput", "latency", "memory", "prefix", "ladder")),
    *(f"bench {name}" for name in ("overhead", "soak", "bookkeeping", "kernels")),
    *(f"lab {name}" for name in ("grade", "watch", "hint", "reset")),
]


def into(sink: str, command: str) -> tuple[int, str]:
    """Exit status, and what came on stderr. sink: a redirection, or what it is piped into."""
    ran = subprocess.run(
        ["bash", "-c", f'{sys.executable} -m {command} {sink}; exit "${{PIPESTATUS[0]}}"'],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return ran.returncode, ran.stderr


@needs_full
@pytest.mark.parametrize("command", ["yaie --help", "yaie lab", "grader hint sampler --again"])
def test_output_into_a_full_device_is_a_sentence(command: str) -> None:
    code, err = into("> /dev/full", command)
    assert (code, err) == (
        2,
        "Error: the output could not be written: No space left on device\n",
    )


@pytest.mark.nightly
@needs_full
@pytest.mark.parametrize("command", ["--help", "--version", *(f"{c} --help" for c in COMMANDS)])
@pytest.mark.parametrize("sink", ["> /dev/full", "| head -1 > /dev/null", ">&-", "2>&-"])
def test_no_command_shows_a_traceback_to_a_sink(command: str, sink: str) -> None:
    code, err = into(sink, f"yaie {command}")
    assert code in ((2,) if "full" in sink else (0, 1))
    assert len(err.splitlines()) <= 1


@needs_full
@pytest.mark.parametrize("command", [["chat"], ["generate", "hello"]])
def test_an_answer_that_cannot_be_shown_ends_the_command(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch, command: list[str], tmp_path: Path
) -> None:
    (tmp_path / "typed").write_text("abc\nabc\n")
    with (
        FULL.open("w") as stdout,
        (tmp_path / "typed").open() as stdin,
        (tmp_path / "err").open("w") as stderr,
    ):
        monkeypatch.setattr("sys.argv", ["yaie", *command])
        for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
            monkeypatch.setattr(f"sys.{name}", stream)
        with pytest.raises(SystemExit) as ended:
            main()
        sys.stderr.flush()
    assert ended.value.code == 2
    said = (tmp_path / "err").read_text().splitlines()
    assert said[-1] == "Error: the output could not be written: No space left on device"


def test_a_chat_without_a_place_for_its_memory_goes_on(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    ran = yaie("chat", stdin="abc\n")
    assert (ran.code, ran.out) == (0, "cba\n")
    assert ran.err.count("not remembered: cannot write") == 1
    history = open_history()
    history.append_string("kept for now")
    assert history.get_strings() == ["kept for now"]


def test_a_chat_without_a_home_folder_goes_on(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("XDG_STATE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    ran = yaie("chat", stdin="abc\n")
    assert (ran.code, ran.out) == (0, "cba\n")
    assert "there is no home folder" in ran.err


def test_the_model_of_the_last_time_is_whole_or_the_one_before(
    yaie: Yaie, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    yaie("chat", "some/model")
    nothing_fits(monkeypatch)
    assert yaie("chat", "another/model").code == 0
    assert files_below(tmp_path / "state/yaie") == {"last_model": b"some/model"}


@needs_full
def test_a_line_that_the_history_cannot_keep_is_known_for_this_chat(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "state/yaie").mkdir(parents=True)
    (tmp_path / "state/yaie/chat_history").symlink_to(FULL)
    history = open_history()
    history.append_string("typed")
    assert history.get_strings() == ["typed"]


@pytest.mark.parametrize("bench", ["latency", "bookkeeping", "kernels", "soak"])
def test_figures_that_could_not_be_kept_are_refused_before_they_are_measured(
    yaie: Yaie, tmp_path: Path, bench: str
) -> None:
    (tmp_path / "file").touch()
    ran = yaie("bench", bench, "--json", str(tmp_path / "file" / "x.json"))
    assert ran.code == 2
    assert ran.err.startswith(f"Error: cannot write {tmp_path}/file/x.json: Not a directory")


def test_figures_for_which_the_disk_has_run_full_meanwhile_are_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from yaie.bench.report import save
    from yaie.core.errors import ConfigError

    nothing_fits(monkeypatch)
    with pytest.raises(ConfigError, match=r"cannot write .*x.json: No space left"):
        save(str(tmp_path / "x.json"), {})
    assert files_below(tmp_path) == {}
