"""`make nightly` writes down what it ran."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import nightly
from tests.nightly import PARTS, REST, Run, counts, newest, paths, told, write

ONE = Run("judges", "2026-01-31T02:00Z", "0123456789", "3.11.7", 200, 1, 2, 63, "failed")
REPORT = """<?xml version="1.0"?><testsuites><testsuite name="pytest" errors="1" failures="2"
skipped="3" tests="10" time="1.5"/></testsuites>"""


def test_a_part_is_a_line_below_a_header(tmp_path: Path) -> None:
    record = tmp_path / "nightly.tsv"
    assert newest(record) == []
    write(ONE, record)
    header, first = record.read_text().splitlines()
    assert header.split("\t") == [
        "part", "began", "commit", "python", "passed", "failed", "skipped", "minutes", "ended",
    ]  # fmt: skip
    assert first.split("\t") == [
        "judges", "2026-01-31T02:00Z", "0123456789", "3.11.7", "200", "1", "2", "63", "failed",
    ]  # fmt: skip


def test_what_is_not_green_or_never_ran_is_told(tmp_path: Path) -> None:
    record = tmp_path / "nightly.tsv"
    assert told(record) == "nightly (`make nightly`; never recorded)"
    for part in (*PARTS, REST):
        write(replace(ONE, part=part, ended="passed"), record)
    assert told(record) == "nightly (`make nightly`; since 2026-01-31: all parts passed)"
    write(replace(ONE, began="2026-02-01T02:00Z"), record)
    assert told(record) == "nightly (`make nightly`; since 2026-01-31: judges failed)"
    write(replace(ONE, began="2026-02-02T02:00Z", ended="passed"), record)
    assert told(record).endswith("all parts passed)")
    record.unlink()
    write(ONE, record)
    assert told(record).endswith(
        "judges failed, "
        + ", ".join(f"{part} never run" for part in (*PARTS, REST) if part != "judges")
        + ")"
    )


def test_every_folder_and_file_of_tests_is_in_one_part() -> None:
    here = nightly.ROOT / "tests"
    found = Counter(path for part in (*PARTS, REST) for path in paths(part))
    assert {path for path, count in found.items() if count > 1} == set()
    tests = {file.relative_to(nightly.ROOT) for file in here.rglob("test_*.py")}
    missed = {
        str(file)
        for file in tests
        if not any(Path(path) == file or Path(path) in file.parents for path in found)
    }
    assert missed == set()


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


def test_each_part_makes_a_line_and_other_tests_make_none(
    told_to_run: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Run] = []
    monkeypatch.setattr(nightly, "write", written.append)
    monkeypatch.setattr(nightly, "commit", lambda: "0123456789")
    assert nightly.main(["tests/judges"]) == 1
    assert written == []
    assert nightly.main(["--part=judges", "-x"]) == 1
    assert nightly.main([]) == 1
    assert [one.part for one in written] == ["judges", *PARTS, REST]
    assert {(one.passed, one.failed, one.skipped, one.ended) for one in written} == {
        (8, 6, 6, "failed")
    }
    some, quiet, part, *others = told_to_run
    assert some[-1] == quiet[-1] == "tests/judges"
    assert part[-2:] == ["tests/judges", "-x"]
    marks = [one[one.index("-m", 3) + 1] for one in (some, quiet, part, *others)]
    assert marks == ["nightly and not quiet", "nightly and quiet"] * (2 + len(PARTS) + 1)
    assert all(("-n0" in one) == ("nightly and quiet" in one) for one in told_to_run)


def test_a_part_that_is_not_there_is_named(
    told_to_run: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        nightly.main(["--part=judge"])
    assert "choose from" in capsys.readouterr().err
    assert told_to_run == []


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
    monkeypatch.setattr(nightly, "run", lambda *_: pytest.fail("it ran"))
    monkeypatch.setattr(nightly, "install", lambda _: pytest.fail("it installed"))
    assert nightly.main([]) == 2
    said = capsys.readouterr().err
    assert "openssl is not here: apt install openssl\n" in said
    assert "a C++ compiler is not here: apt install g++\n" in said


def test_what_is_shown_at_a_runs_end_costs_no_import_of_torch() -> None:
    code = "import sys, tests.left_out; sys.exit('torch' in sys.modules)"
    root = Path(__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], cwd=root).returncode == 0
