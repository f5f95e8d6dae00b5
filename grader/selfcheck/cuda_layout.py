"""Mutants of layout in CUDA C++: `layout_mutants.py` says what these are.

  q_stride                    another tensor's stride, another dimension's, the width of a row
  int64_t(blockIdx.x) * n     int(blockIdx.x) * n; the same where such a product is declared
  float sum = 0.0f            half sum = 0.0f, where the type has a narrower one at hand
  launch(.., stream, q, k)    launch(.., stream, k, q)

There is no parser: what comes out may not compile, and then is no mutant.
"""

import re
from collections import Counter
from collections.abc import Iterator

from grader.cuda_source import find_bodies, without_comments
from grader.selfcheck.mutant import LAYOUT, Mutant
from grader.selfcheck.strides import is_stride, others_for, width_among

NAME = re.compile(r"(?<![\w.])(?:[A-Za-z_]\w*\.)?[A-Za-z_]\w*(?![\w(])")
CAST = re.compile(r"\b(int64_t|long long|size_t)(?=\()|\((int64_t|long long|size_t)\)")
DECLARED = re.compile(r"\b(int64_t|long long|size_t)(?= \w+ = [^;]*\w\)? \* )")
ACCUMULATOR = re.compile(r"\bfloat(?= \w+(?:\[[^;=]*\])? = (?:0\.0f|\{\}|-INFINITY))")
LAUNCH = re.compile(r"\blaunch\(")
ALIKE = (
    {"q", "k", "v", "x", "residual", "queries", "keys", "values", "source", "target", "out"},
    {"tokens", "row", "d", "n", "dim", "heads", "kv_heads", "entries", "units", "num_pairs"},
)
"""Arguments of a kernel that may be taken for each other, by the names that kernels give them."""

Edit = tuple[str, int, int, str]
"""(what is changed, from which character to which, what stands there afterwards)."""


def layout_mutants_of_cuda(text: str, file: str, task_at: dict[int, str]) -> Iterator[Mutant]:
    """Every mutant of layout of a file. task_at: the lines of its solution regions, with their tasks."""
    lines, code = text.splitlines(), without_comments(text)
    begins = [0]
    for line in text.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    functions = _functions(text)
    seen: Counter[tuple[str, str, str]] = Counter()
    edits = [(n, edit) for n in sorted(task_at) for edit in _edits(code, begins, n, functions)]
    edits += [(n, edit) for n, edit in _swaps(code, begins) if n in task_at]
    for number, (change, begin, end, new) in edits:
        function, line = functions.get(number, ("", ""))[0], lines[number].strip()
        label = f"{LAYOUT}{change}"
        seen[function, line, label] += 1
        if (count := seen[function, line, label]) > 1:
            label = f"{label} ({count})"
        yield Mutant(file, function, line, label, task_at[number], text[:begin] + new + text[end:])


def _functions(text: str) -> dict[int, tuple[str, str]]:
    """For each line the outermost function around it: its name, and its code with its parameters."""
    lines = without_comments(text).splitlines()
    found: dict[int, tuple[str, str]] = {}
    for body in find_bodies(text):
        first = body.begin
        while first and not re.search(r"[;{}]\s*$|^\s*$", lines[first - 1]):
            first -= 1
        code = "\n".join(lines[first : body.end + 1])
        for number in range(body.begin, body.end + 1):
            found.setdefault(number, (body.name, code))
    return found


def _edits(
    code: str, begins: list[int], number: int, functions: dict[int, tuple[str, str]]
) -> Iterator[Edit]:
    begin, end = begins[number], begins[number + 1]
    line = code[begin:end]
    names = NAME.findall(functions.get(number, ("", ""))[1])
    for found in NAME.finditer(line):
        if not is_stride(found[0]) or found[0] == "int64_t":
            continue
        at = begin + found.start(), begin + found.end()
        for other in others_for(found[0], names):
            yield f"{found[0]} -> {other}", *at, other
        if width := width_among(names):
            yield f"{found[0]} -> {width}", *at, width
    if " * " in line:
        for found in CAST.finditer(line):
            new = "int" if found[1] else "(int)"
            yield f"{found[0]} -> {new}", begin + found.start(), begin + found.end(), new
        for found in DECLARED.finditer(line):
            yield f"{found[0]} -> int", begin + found.start(), begin + found.end(), "int"
    for found in ACCUMULATOR.finditer(line):
        yield "float -> half", begin + found.start(), begin + found.end(), "__half"


def _swaps(code: str, begins: list[int]) -> Iterator[tuple[int, Edit]]:
    """(line, edit) for arguments of a kernel that stand side by side and look alike."""
    for found in LAUNCH.finditer(code):
        spans = _arguments(code, found.end())
        texts = [code[begin:end] for begin, end in spans]
        if "stream" not in texts:
            continue
        after = texts.index("stream") + 1
        for first in range(after, len(spans) - 1):
            one, other = texts[first], texts[first + 1]
            if one != other and _looks(one) == _looks(other):
                (begin, middle), (resume, end) = spans[first], spans[first + 1]
                new = other + code[middle:resume] + one
                number = max(n for n, start in enumerate(begins) if start <= begin)
                yield number, (f"swap {one} and {other}", begin, end, new)


def _arguments(code: str, begin: int) -> list[tuple[int, int]]:
    """Where each argument of a call begins and ends, after the parenthesis that opens it."""
    spans, depth, start = [], 0, begin
    for at in range(begin, len(code)):
        depth += (code[at] in "([{") - (code[at] in ")]}")
        if (code[at] == "," and depth == 0) or depth < 0:
            text = code[start:at]
            spans.append((start + len(text) - len(text.lstrip()), start + len(text.rstrip())))
            start = at + 1
        if depth < 0:
            break
    return spans


def _looks(argument: str) -> str:
    """Of what kind an argument is, as far as its text tells; itself, if it does not."""
    if argument.startswith("("):
        return "pointer"
    if "stride" in argument:
        return "stride"
    kinds = (str(number) for number, names in enumerate(ALIKE) if argument in names)
    return next(kinds, argument)
