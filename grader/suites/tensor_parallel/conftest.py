"""Shares are graded in task 20.1 and lent to all others; real ranks are started once."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from grader.kit.rank_processes import RankProcesses
from grader.recorder import task_of
from grader.submission import Submission
from grader.suites.tensor_parallel.bench import shares_lent


@pytest.fixture(autouse=True)
def lent(part: ModuleType, request: pytest.FixtureRequest) -> Iterator[None]:
    """The reference's shares, where they are not what is graded."""
    if task_of(request.node) == "20.1":
        yield
        return
    with shares_lent():
        yield


@pytest.fixture(scope="session")
def processes(submission: Submission) -> Iterator[RankProcesses]:
    """Up to four ranks as processes, over gloo."""
    ranks = RankProcesses(submission, 4)
    yield ranks
    ranks.stop()
