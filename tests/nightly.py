"""Runs every test marked `nightly`, and writes down how it ended.

    make nightly                      # all of them, with a line in tests/nightly.tsv
    make nightly ARGS=tests/judges    # some of them, without a line

First it looks for what the system must have (a C++ compiler, Chromium, openssl, nvcc). Then it makes the
environments of the judges and clients that these tests run, in `.judges`. The line says when it began
(UTC), on which commit, with which Python, how many tests passed, failed and were skipped, how long it
took, and how it ended.
"""

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
from yaie.core.locks import locked

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "nightly.tsv"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# As CI runs the others.
PYTEST = ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder", "--reruns", "1", "-rfEsR")
ENDS = {0: "passed", 1: "failed", 2: "interrupted", 5: "no tests"}
"""By pytest's exit status; another one is an error."""


@dataclass(frozen=True, slots=True)
class Run:
    """A line of the record. began: UTC, "2026-01-31T02:00Z". commit: short, "+" if it had changes."""

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


def run(arguments: list[str]) -> Run:
    """Run the tests; what they print is seen as it comes."""
    began, start, on = datetime.now(timezone.utc), time.monotonic(), commit()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", *PYTEST, "-m", "nightly", f"--junitxml={report}",
                   *arguments]  # fmt: skip
        try:
            status = subprocess.run(command, cwd=ROOT, env={**os.environ, "CI": "1"}).returncode
        except KeyboardInterrupt:  # pytest has got it too, and has ended
            status = 2
        passed, failed, skipped = counts(report)
    return Run(
        began=f"{began:%Y-%m-%dT%H:%MZ}",
        commit=on,
        python=platform.python_version(),
        passed=passed,
        failed=failed,
        skipped=skipped,
        minutes=round((time.monotonic() - start) / 60),
        ended=ENDS.get(status, f"status {status}"),
    )


def write(one: Run, record: Path = RECORD) -> None:
    """Add its line, below a header that says what the columns are."""
    with locked(record), record.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, [field.name for field in fields(Run)], delimiter="\t", lineterminator="\n"
        )
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(asdict(one))


def last(record: Path = RECORD) -> dict[str, str] | None:
    """The newest line, by column."""
    if not record.exists():
        return None
    with record.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file, delimiter="\t"))
    return lines[-1] if lines else None


def told(record: Path = RECORD) -> str:
    """For the line on what a run has left out."""
    run = last(record)
    how = f"last: {run['began'][:10]}, {run['commit']}, {run['ended']}" if run else "never recorded"
    return f"nightly (`make nightly`; {how})"


def main(arguments: list[str]) -> int:
    """The exit status: 0 if all passed, 2 if something must be installed first."""
    if lacking := missing():
        print(*lacking, sep="\n", file=sys.stderr)
        return 2
    for client in clients():
        print(f"{client}: its environment", flush=True)
        install(client)
    print("cluster: its environment", flush=True)
    install_ray()
    ran = run(arguments)
    if not arguments:
        write(ran)
        print(f"Written down in {RECORD.relative_to(ROOT)}: commit it.")
    return 0 if ran.ended == "passed" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
