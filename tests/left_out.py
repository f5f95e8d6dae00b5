"""What a test run has left out, in a line at its end. In CI nothing is left out that can be installed.

`conftest.py` registers `LeftOut` as a plugin. A test may be skipped for what a machine is: it has no
GPU, or another system. In CI a skip for any other reason, such as a missing program, is a failure.
"""

import os
import re
from collections import Counter
from typing import Any

import pytest

from tests.nightly import told

MACHINE = re.compile(
    r"needs a CUDA GPU|needs two GPUs|there is a GPU|needs Linux's /proc|needs SIGTERM|only g\+\+ tells"
    r"|needs the CPU build of torch|oneDNN is not available|needs Python 3\.\d+"
    r"|can be had: "
    r"|could not import '(resource|triton)'"  # there is none for Windows, for macOS
)
"""Reasons that no installation would remove."""
MOST_REASONS = 4


def incomplete(reason: str) -> bool:
    """Whether CI fails for a skip with this reason."""
    return bool(os.environ.get("CI")) and MACHINE.search(reason) is None


def skip_reason(report: Any) -> str:
    """Of a test's or a file's report; empty if it was not skipped, or was expected to fail."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return ""
    detail = report.longrepr
    text = detail[2] if isinstance(detail, tuple) else str(detail)
    return str(text).removeprefix("Skipped: ").partition("\n")[0]


def kind(item: pytest.Item) -> str:
    """Why a test was not selected, as far as its marks tell."""
    marks = (mark for mark in ("nightly", "gpu", "slow") if item.get_closest_marker(mark))
    return next(marks, "not selected")


class LeftOut:
    """Counts, and writes the line. Beside other workers it is theirs that know what was deselected."""

    def __init__(self) -> None:
        self.deselected: Counter[str] = Counter()

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.deselected.update(map(kind, items))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["deselected"] = dict(self.deselected)

    @pytest.hookimpl(optionalhook=True)  # it is xdist's
    def pytest_testnodedown(self, node: Any) -> None:
        """Each worker collects everything, so that any one's counts are those of the run."""
        self.deselected |= Counter(getattr(node, "workeroutput", {}).get("deselected", {}))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self) -> Any:
        self._refuse((yield).get_result())

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self) -> Any:
        self._refuse((yield).get_result())

    def _refuse(self, report: Any) -> None:
        reason = skip_reason(report)
        if reason and incomplete(reason):
            report.outcome = "failed"
            report.longrepr = (
                f"{reason} (In CI this is a failure: let .ci/run install what is missing, or add the "
                "reason to MACHINE in tests/left_out.py if that cannot be installed.)"
            )

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)  # below the list of skips
    def pytest_terminal_summary(self, terminalreporter: Any) -> Any:
        yield
        # A file that is skipped as a whole is reported by each worker.
        skips = {
            (report.nodeid, reason)
            for report in terminalreporter.stats.get("skipped", [])
            if (reason := skip_reason(report))
        }
        if line := summary(Counter(reason for _, reason in skips), self.deselected):
            terminalreporter.write_line(line)


def summary(skipped: Counter[str], deselected: Counter[str]) -> str:
    """One line, or none if nothing was left out."""
    known = {"nightly": told(), "gpu": "marked gpu", "slow": "marked slow"}
    parts = [f"{count} {known.get(why, why)}" for why, count in deselected.most_common()]
    parts += [f"{count} skipped ({why})" for why, count in skipped.most_common(MOST_REASONS)]
    if others := sum(skipped.values()) - sum(n for _, n in skipped.most_common(MOST_REASONS)):
        parts.append(f"{others} skipped for other reasons, listed above")
    return f"Left out: {'; '.join(parts)}." if parts else ""
