"""Where in a part something is still to be written."""

import ast
from collections import defaultdict

from grader.cuda_source import BraceError, find_bodies
from grader.submission import Submission
from yaie.curriculum.progress import CUDA_SOURCES, source_files


def open_places(submission: Submission) -> dict[str, tuple[str, ...]]:
    """Task -> a line for each file: "labs/radix_tree/tree.py: insert (line 41), _walk (line 60)", every
    stub of the task that is still one.

    A stub is found by its message. What a learner has written over is not listed, whether it is right
    or not, and neither is a place outside of functions, which need not be filled.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for file in source_files(submission.folder):
        try:
            source = file.read_text("utf-8")
        except (OSError, ValueError):
            continue
        mark = f"{submission.lab.key} task "
        at = [
            (number, line.partition(mark)[2].partition(":")[0])
            for number, line in enumerate(source.splitlines(), 1)
            if mark in line and ": not implemented yet; see chapter" in line
        ]
        if not at:
            continue
        spans = _spans_in_cuda(source) if file.suffix in CUDA_SOURCES else spans_in_python(source)
        in_file: dict[str, list[str]] = defaultdict(list)
        for line, task in at:
            name = innermost(spans, line)
            in_file[task].append(f"{name} (line {line})" if name else f"line {line}")
        for task, places in in_file.items():
            found[task].append(f"{submission.shown(file)}: {', '.join(places)}")
    return {task: tuple(places) for task, places in found.items()}


def innermost(spans: list[tuple[int, int, str]], line: int) -> str:
    """The name of the function that begins last before a line and ends after it; "" if none does."""
    around = [span for span in spans if span[0] <= line <= span[1]]
    return max(around)[2] if around else ""


def spans_in_python(source: str) -> list[tuple[int, int, str]]:
    """First and last line of each function, from 1, and its name, with the class's before one such as
    `__call__`. A file that cannot be read as Python has none: the report says that on its own."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    return [
        (
            node.lineno,
            node.end_lineno or node.lineno,
            f"{parent.name}.{node.name}"
            if isinstance(parent, ast.ClassDef) and node.name.startswith("__")
            else node.name,
        )
        for parent in ast.walk(tree)
        for node in ast.iter_child_nodes(parent)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _spans_in_cuda(source: str) -> list[tuple[int, int, str]]:
    try:
        return [(body.begin + 1, body.end + 1, body.name) for body in find_bodies(source)]
    except BraceError:
        return []
