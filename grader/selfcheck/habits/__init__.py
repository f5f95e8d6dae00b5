"""Wrong and wasteful versions of the reference as people write them: a catalogue of habits.

A mutant changes one token, by any rule that can be thought of. A habit is a decision: to keep a buffer,
to cap a loop, to compare with `is`. Each is applied to every place of a reference where it fits, in the
solution regions of Python alone. A task's own tests are to catch 95% of those that fall into it.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from grader.selfcheck.habits import caps, costs, emptiness, keeping, keys, narrowing
from grader.selfcheck.habits.rule import Rule
from grader.selfcheck.mutant import Mutant
from grader.selfcheck.trees import changed, functions_at, sources_with_tasks, untouched
from yaie.curriculum.manifest import Lab
from yaie.curriculum.progress import CUDA_SOURCES

RULES: tuple[Rule, ...] = (
    *keeping.RULES, *narrowing.RULES, *caps.RULES, *keys.RULES, *emptiness.RULES, *costs.RULES
)  # fmt: skip


def habits_of(folder: Path, lab: Lab) -> Iterator[Mutant]:
    """Every habit in a lab's reference, file by file; `Mutant.change` begins with its name."""
    for path, text, task_at in sources_with_tasks(folder):
        if path.suffix not in CUDA_SOURCES and "@triton.jit" not in text:
            yield from habits_in(text, path.relative_to(folder).as_posix(), task_at)


def habits_in(text: str, file: str, task_at: dict[int, str]) -> Iterator[Mutant]:
    """task_at: the task of each line that may be changed, counted from 0."""
    tree = ast.parse(text)
    lines, functions = text.splitlines(), functions_at(tree)
    seen: Counter[tuple[str, str, str]] = Counter()
    made = set[str]()
    for index, node in enumerate(ast.walk(tree)):
        number = _line_of(node)
        if number not in task_at or index in untouched(tree):
            continue
        for rule in RULES:
            for words, apply in [] if rule.spares(node, tree) else rule.edits(node):
                source = changed(tree, index, apply)
                if source in made:
                    continue
                made.add(source)
                function, line = functions.get(number, ""), lines[number].strip()
                change = f"{rule.name}: {words}"
                seen[function, line, change] += 1
                count = seen[function, line, change]
                label = change if count == 1 else f"{change} ({count})"
                yield Mutant(file, function, line, label, task_at[number], source)


def _line_of(node: ast.AST) -> int:
    """From 0. A function's is that of its first statement behind the docstring: its body is the
    learner's, its first line is given."""
    if isinstance(node, ast.FunctionDef):
        written = node.body[1:] if ast.get_docstring(node) is not None else node.body
        return written[0].lineno - 1 if written else -1
    return getattr(node, "lineno", 0) - 1
