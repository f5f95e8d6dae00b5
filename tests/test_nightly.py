"""`make nightly` writes down what it ran."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import nightly
from tests.nightly import Run, counts, last, told, write

ONE = Run("2026-01-31T02:00Z", "0123456789", "3.11.7", 200, 1, 2, 63, "failed")
REPORT = """<?xml version="1.0"?><testsuites><testsuite name="pytest" errors="1" failures="2"
skipped="3" tests="10" time="1.5"/></testsuites>"""


def test_a_run_is_a_line_below_a_header_and_the_last_one_is_told(tmp_path: Path) -> None:
    record = tmp_path / "nightly.tsv"
    assert last(record) is None
    assert told(record) == "nightly (`make nightly`; never recorded)"
    write(ONE, record)
    write(Run("2026-02-01T02:00Z", "abcdef0123+", "3.12.1", 201, 0, 2, 61, "passed"), record)
    header, first, second = record.read_text().splitlines()
    assert header.split("\t") == [
        "began", "commit", "python", "passed", "failed", "skipped", "minutes", "ended",
    ]  # fmt: skip
    assert first.split("\t") == [
        "2026-01-31T02:00Z", "0123456789", "3.11.7", "200", "1", "2", "63", "failed",
    ]  # fmt: skip
    assert second.endswith("passed")
    assert told(record) == "nightly (`make nightly`; last: 2026-02-01, abcdef0123+, passed)"


def test_the_counts_are_pytests(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    assert counts(report) == (0, 0, 0)  # it ended before it could write one
    report.write_text(REPORT)
    assert counts(report) == (4, 3, 3)


@pytest.fixture
def told_to_run(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would be run; what is installed is left alone."""
    commands: list[list[str]] = []

    def run(command: list[str], **options: object) -> SimpleNamespace:
        if "pytest" not in command:
            return real(command, **options)
        assert options["env"]["CI"] == "1"  # type: ignore[index]
        [report] = [word for word in command if word.startswith("--junitxml=")]
        Path(report.partition("=")[2]).write_text(REPORT)
        commands.append(command)
        return SimpleNamespace(returncode=1)

    real = subprocess.run
    monkeypatch.setattr(nightly, "missing", list)
    monkeypatch.setattr(nightly, "install", lambda _client: None)
    monkeypatch.setattr(nightly, "install_ray", lambda: None)
    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_all_of_them_make_a_line_and_a_part_makes_none(
    told_to_run: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Run] = []
    monkeypatch.setattr(nightly, "write", written.append)
    monkeypatch.setattr(nightly, "commit", lambda: "0123456789")
    assert nightly.main(["tests/judges"]) == 1
    assert written == []
    assert nightly.main([]) == 1
    [one] = written
    assert (one.passed, one.failed, one.skipped, one.ended) == (4, 3, 3, "failed")
    part, everything = told_to_run
    assert part == [*everything[:-1], part[-2], "tests/judges"]
    assert everything[everything.index("-m", 3) :][:2] == ["-m", "nightly"]


def test_a_changed_checkout_is_not_the_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def git(*arguments: str) -> None:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@x"]
        subprocess.run([*command, *arguments], check=True, capture_output=True)

    record = tmp_path / "tests/nightly.tsv"
    record.parent.mkdir()
    (tmp_path / "code.py").touch()
    record.touch()
    for arguments in (["init"], ["add", "."], ["commit", "-m", "one"]):
        git(*arguments)
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.setattr(nightly, "RECORD", record)
    record.write_text("a line that was not committed yet")
    assert len(nightly.commit()) == 10
    (tmp_path / "code.py").write_text("changed")
    assert nightly.commit().endswith("+")


def test_what_the_system_lacks_is_said_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(nightly, "run", lambda _: pytest.fail("it ran"))
    monkeypatch.setattr(nightly, "install", lambda _: pytest.fail("it installed"))
    assert nightly.main([]) == 2
    said = capsys.readouterr().err
    assert "openssl is not here: apt install openssl\n" in said
    assert "a C++ compiler is not here: apt install g++\n" in said


def test_what_is_shown_at_a_runs_end_costs_no_import_of_torch() -> None:
    code = "import sys, tests.left_out; sys.exit('torch' in sys.modules)"
    root = Path(__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], cwd=root).returncode == 0
