"""All tasks: what the interpreter runs must compile as well. Comes last in each task."""

from grader.kit.compiled import expect_compiles, for_tasks
from grader.submission import Submission


@for_tasks("11.1", "11.2", "11.3", "11.4", "11.5")
def test_the_kernels_compile(submission: Submission, id: str) -> None:
    """The kernels compile for a GPU too, which runs no Python."""
    expect_compiles(submission, id)
