"""All tasks: what the interpreter runs must compile as well. Comes last in each task."""

from grader.kit.compiled import expect_compiles, for_tasks
from grader.submission import Submission


@for_tasks("12.1", "12.2", "12.3", "12.4", "12.5")
def test_the_kernels_compile(submission: Submission, id: str) -> None:
    """The kernels compile for a GPU too, which runs no Python."""
    expect_compiles(submission, id)
