"""The engine on the part: the last test of every lab, once all others have passed."""

from types import ModuleType

import pytest

from grader.submission import Submission


@pytest.mark.whole
def test_tokens_are_those_on_the_reference(part: ModuleType, submission: Submission) -> None:
    """The engine answers on your part as it does on the reference."""
    from grader.kit.in_engine.labs import expect_the_engine_runs_on

    expect_the_engine_runs_on(part, submission.lab.key)
