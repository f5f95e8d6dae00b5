"""Gradings made by hand, so that reports can be tested without grading anything."""

from collections.abc import Sequence

from grader.verdict import Explanation, LabResult, TaskResult, TestResult, Verdict
from yaie.curriculum.manifest import load_curriculum

RADIX_TREE = load_curriculum()["radix_tree"]
CRASH = Explanation(
    "The part can be read as Python.", "SyntaxError: bad", where="radix_tree/node.py, line 1"
)
WRONG = Explanation(
    claim="After any script of inserts, the tree finds exactly what was filed.",
    problem="how many blocks insert says were there already: not as expected",
    expected="2",
    got="3",
    script=("tree = RadixTree(block_size=1)", "tree.insert([0, 1], [0, 1])  # -> (3, node1)"),
    before="0 blocks, 0 of them evictable",
    after="2 blocks, 2 of them evictable",
    why="Only whole blocks count.",
)
SLOW = Explanation("Locks count.", "It was still running after 10 seconds.\nReally.")


def graded(
    task: str, verdict: Verdict, why: Explanation | None = None, waits_for: str = ""
) -> TestResult:
    return TestResult(f"radix_tree/test_x.py::test_{task}", task, verdict, 0.25, waits_for, why)


def result_of(*tests: TestResult, only: Sequence[str] = (), **more: object) -> LabResult:
    """A grading of the radix tree with these tests; digest "d", 3.2 seconds."""
    tasks = tuple(
        TaskResult(task, tuple(test for test in tests if test.task == task.id))
        for task in RADIX_TREE.tasks
        if not only or task.id in only
    )
    values = {"digest": "d", "seconds": 3.2, "only": tuple(only), **more}
    return LabResult(RADIX_TREE, tasks, **values)  # type: ignore[arg-type]


def mixed() -> LabResult:
    """One of every verdict."""
    return result_of(
        graded("4.1", Verdict.PASSED),
        graded("4.2", Verdict.PASSED),
        graded("4.2", Verdict.FAILED, WRONG),
        graded("4.3", Verdict.NOT_IMPLEMENTED, waits_for="4.2"),
        graded("4.4", Verdict.FAILED, SLOW),
        graded("4.5", Verdict.NOT_VERIFIED, Explanation("c", "Needs a GPU.")),
        output="\x1b[31mprinted\x1b[0m\n",
        replay=(".venv/bin/python .yaie/scratch/radix_tree_4_2.py",),
    )


def complete(**more: object) -> LabResult:
    return result_of(*(graded(task.id, Verdict.PASSED) for task in RADIX_TREE.tasks), **more)


def broken() -> LabResult:
    return result_of(problem=CRASH)
