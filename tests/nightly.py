"""Runs the tests marked `nightly`, part after part, and writes down how each ended.

    make nightly                        # all parts, with a line each in tests/nightly.tsv
    make nightly PART=judges            # one of them, with its line
    make nightly ARGS=tests/judges -x   # some tests, without a line

A part takes at most an hour on two cores. First comes a look for what the system must have (a C++
compiler, Chromium, openssl, nvcc), then the environments of the judges and clients that a part's tests
run, in `.judges`. Tests marked `quiet` come last, one after the other: they measure how long things
take. A line says when a part began (UTC), on which commit, with which Python, how many
tests passed, failed and were skipped, how long it took, and how it ended.
"""

import argparse
import csv
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from shutil import which

from tests.cluster.install import install as install_ray
from tests.judges.clients.install import MINIMUM, clients, install
from tests.run import command
from yaie.system.locks import locked

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "nightly.tsv"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PARTS: dict[str, tuple[str, ...]] = {
    "book": ("tests/book", "tests/web"),
    "judges": ("tests/judges",),
    "cluster": ("tests/cluster",),
    "engine": ("tests/engine", "tests/worker"),
    "programs": ("tests/cli", "tests/setup"),
}
"""The folders of each; `rest` has the others."""
REST = "rest"
INTERRUPTED, NO_TESTS = 2, 5
ENDS = {0: "passed", 1: "failed", INTERRUPTED: "interrupted", NO_TESTS: "no tests"}
"""By pytest's exit status; another one is an error."""


@dataclass(frozen=True, slots=True)
class Run:
    """A line of the record. part: of the tests. began: UTC, "2026-01-31T02:00Z". commit: short, "+" if
    it had changes."""

    part: str
    began: str
    commit: str
    python: str
    passed: int
    failed: int
    skipped: int
    minutes: int
    ended: str


def missing() -> list[str]:
    """What the system lacks, each with what to do."""
    # With it comes PyTorch, which a run of other tests, that asks for `told`, should not wait for.
    from yaie.cuda.nvcc import INSTALL, find_host_compiler, find_nvcc

    needed: list[tuple[str, Callable[[], object], str]] = [
        ("git", lambda: which("git"), "apt install git"),
        ("openssl", lambda: which("openssl"), "apt install openssl"),
        ("a C++ compiler", find_host_compiler, "apt install g++"),
        ("Chromium", lambda: any(map(which, BROWSERS)), "apt install chromium"),
        ("nvcc", find_nvcc, INSTALL),
        ("npm", lambda: which("npm"), "apt install npm (Node.js 18 or later)"),
        ("ip", lambda: which("ip"), "apt install iproute2"),
        ("unshare", lambda: which("unshare"), "apt install util-linux"),
        ("Python 3.11", lambda: sys.version_info >= MINIMUM, "make nightly PYTHON=python3.11"),
    ]
    return [f"{name} is not here: {fix}" for name, there, fix in needed if not there()]


def commit() -> str:
    """Of the checkout. The record itself may have a line that is not committed yet."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    record = f":!{RECORD.relative_to(ROOT)}"
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", record)
    return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")


def counts(report: Path) -> tuple[int, int, int]:
    """(passed, failed, skipped) of pytest's XML report; zeros if it was not written."""
    if not report.exists():
        return 0, 0, 0
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    tests, failures, errors, skipped = (
        sum(int(suite.get(name, 0)) for suite in suites)
        for name in ("tests", "failures", "errors", "skipped")
    )
    return tests - failures - errors - skipped, failures + errors, skipped


def paths(part: str) -> list[str]:
    """What pytest collects for a part."""
    if part != REST:
        return list(PARTS[part])
    taken = {path for own in PARTS.values() for path in own}
    here = sorted((ROOT / "tests").iterdir())
    found = [f"tests/{one.name}" for one in here if one.is_dir() or one.match("test_*.py")]
    return [path for path in found if path not in taken and not path.endswith("__pycache__")]


def run(part: str, arguments: list[str]) -> Run:
    """Run the tests; what they print is seen as it comes."""
    began, start, on = datetime.now(timezone.utc), time.monotonic(), commit()
    passed = failed = skipped = 0
    statuses: list[int] = []
    for chosen in (("-m", "nightly and not quiet"), ("-m", "nightly and quiet", "-n0")):
        status, found = _tested(*chosen, *arguments)
        passed, failed, skipped = passed + found[0], failed + found[1], skipped + found[2]
        if status != NO_TESTS:
            statuses.append(status)
        if status == INTERRUPTED:
            break
    status = max(statuses, default=NO_TESTS)
    return Run(
        part=part,
        began=f"{began:%Y-%m-%dT%H:%MZ}",
        commit=on,
        python=platform.python_version(),
        passed=passed,
        failed=failed,
        skipped=skipped,
        minutes=round((time.monotonic() - start) / 60),
        ended=ENDS.get(status, f"status {status}"),
    )


def _tested(*words: str) -> tuple[int, tuple[int, int, int]]:
    """Pytest's exit status, and its counts."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        asked = command(f"--junitxml={report}", *words)
        try:
            status = subprocess.run(asked, cwd=ROOT, env={**os.environ, "CI": "1"}).returncode
        except KeyboardInterrupt:  # pytest has got it too, and has ended
            status = INTERRUPTED
        return status, counts(report)


def write(one: Run, record: Path = RECORD) -> None:
    """Add its line, below a header that says what the columns are."""
    with locked(record), record.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, [field.name for field in fields(Run)], delimiter="\t", lineterminator="\n"
        )
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(asdict(one))


def newest(record: Path = RECORD) -> list[dict[str, str]]:
    """The newest line of each part, by column; the oldest of them first."""
    if not record.exists():
        return []
    with record.open(encoding="utf-8", newline="") as file:
        lines = {line["part"]: line for line in csv.DictReader(file, delimiter="\t")}
    return sorted(lines.values(), key=lambda line: line["began"])


def told(record: Path = RECORD) -> str:
    """For the line on what a run has left out."""
    runs = newest(record)
    ended = {run["part"]: run["ended"] for run in runs}
    wrong = [f"{part} {how}" for part, how in ended.items() if how != "passed"]
    wrong += [f"{part} never run" for part in (*PARTS, REST) if part not in ended]
    how = ", ".join(wrong) if runs else "never recorded"
    since = f"since {runs[0]['began'][:10]}: " if runs else ""
    return f"nightly (`make nightly`; {since}{how or 'all parts passed'})"


def prepare(*parts: str) -> None:
    """Make the environments that the tests of these parts run programs from."""
    if "judges" in parts:
        for client in clients():
            print(f"{client}: its environment", flush=True)
            install(client)
    if "cluster" in parts:
        print("cluster: its environment", flush=True)
        install_ray()


def main(arguments: list[str]) -> int:
    """The exit status: 0 if all passed, 2 if something must be installed first."""
    parser = argparse.ArgumentParser("make nightly", description=__doc__.partition("\n")[0])
    parser.add_argument("--part", choices=[*PARTS, REST], help="only this one")
    asked, options = parser.parse_known_args(arguments)
    if lacking := missing():
        print(*lacking, sep="\n", file=sys.stderr)
        return 2
    if options and asked.part is None:
        prepare(*PARTS)
        return 0 if run("", options).ended == "passed" else 1
    passed = True
    for part in [asked.part] if asked.part else [*PARTS, REST]:
        print(f"\n{part}: {' '.join(paths(part))}", flush=True)
        prepare(part)
        ran = run(part, [*paths(part), *options])
        write(ran)
        passed = passed and ran.ended == "passed"
        if ran.ended == "interrupted":
            return 130
    print(f"Written down in {RECORD.relative_to(ROOT)}: commit it.")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
