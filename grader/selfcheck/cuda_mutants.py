"""Small wrong versions of CUDA C++: a token is changed or a statement deleted, line by line.

There is no parser here: only what can be told from one line of formatted code is changed. Binary
operators stand between spaces; a statement that ends where its line does begins there too. What comes
out may not compile; such a mutant does not count, and `checks.py` learns that by compiling it.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator

from grader.cuda_source import find_bodies, without_comments
from grader.selfcheck.mutant import Mutant

SWAPS = {
    " < ": " <= ",
    " <= ": " < ",
    " > ": " >= ",
    " >= ": " > ",
    " == ": " != ",
    " != ": " == ",
    " + ": " - ",
    " - ": " + ",
    " * ": " / ",
    " / ": " * ",
    " % ": " / ",
    " && ": " || ",
    " || ": " && ",
    " & ": " | ",
    " | ": " & ",
    " ^ ": " | ",
    " << ": " >> ",
    " >> ": " << ",
    " += ": " -= ",
    " -= ": " += ",
    " *= ": " /= ",
    " /= ": " *= ",
    " >>= ": " <<= ",
    " <<= ": " >>= ",
}
OPERATOR = re.compile("|".join(re.escape(f" {name} ") for name in map(str.strip, SWAPS)))
NUMBER = re.compile(r"(?<![\w.])(\d+\.?\d*(?:e[+-]?\d+)?)(f?)(?![\w.])")
MINUS = re.compile(r"(?:(?<=[(,?:=] )|(?<=[(])|(?<=return ))-(?=[A-Za-z_(\d])")
NOT = re.compile(r"!(?!=)(?=[\w(])")
BOOLEAN = re.compile(r"\b(true|false)\b")
EXTREME = re.compile(r"\b(f?)(min|max)(f?)\(")
CONDITION = re.compile(r"\b(if|while) \(")
RETURN = re.compile(r"return [^;]+;")
STATUS = re.compile(r"\s*(int error = 0|return error);")
"""What only hands CUDA's status on: the CPU runtime raises instead, and no test can tell."""
NO_SHARED = re.compile(r"(?<=\s)0(?=,(?: stream\b|$))")
"""The bytes of dynamic shared memory of a launch that has none; one more byte does no harm."""
STATEMENT_ENDS = (";", "{", "}", ":")

Edit = tuple[str, str]
"""(what is changed, the line afterwards)."""


def mutants_of_cuda(text: str, file: str, task_at: dict[int, str]) -> Iterator[Mutant]:
    """Every mutant of a file. task_at: the lines of its solution regions, each with its task."""
    lines = text.splitlines()
    code = without_comments(text).splitlines()
    functions: dict[int, str] = {}
    for body in find_bodies(text):  # outer ones first: a block inside belongs to the function
        for number in range(body.begin, body.end + 1):
            functions.setdefault(number, body.name)
    seen: Counter[tuple[str, str, str]] = Counter()
    for number in sorted(task_at):
        before = next((c.strip() for c in reversed(code[:number]) if c.strip()), "")
        for change, edited in _edits(code[number], before):
            function, line = functions.get(number, ""), lines[number].strip()
            seen[function, line, change] += 1
            count = seen[function, line, change]
            label = change if count == 1 else f"{change} ({count})"
            source = "\n".join([*lines[:number], edited, *lines[number + 1 :]]) + "\n"
            yield Mutant(file, function, line, label, task_at[number], source)


def _edits(line: str, before: str) -> Iterator[Edit]:
    """line: without comments. before: the last line above that holds code."""
    if not line.strip() or line.lstrip().startswith("#") or STATUS.fullmatch(line):
        return
    yield from _replaced(line, OPERATOR, lambda found: SWAPS[found[0]])
    fixed = {found.start() for found in NO_SHARED.finditer(line)}
    yield from _replaced(line, NUMBER, _next_number, fixed)
    yield from _replaced(line, MINUS, lambda _: "+")
    yield from _replaced(line, NOT, lambda _: "")
    yield from _replaced(line, BOOLEAN, lambda found: "false" if found[0] == "true" else "true")
    yield from _replaced(line, EXTREME, _other_extreme)
    for found in CONDITION.finditer(line):
        if end := _closing(line, found.end() - 1):
            inner = line[found.end() : end]
            yield "negate the condition", f"{line[: found.end()]}!({inner}){line[end:]}"
    yield from _deleted(line, before)


def _replaced(
    line: str,
    pattern: "re.Pattern[str]",
    by: Callable[["re.Match[str]"], str],
    fixed: Collection[int] = (),
) -> Iterator[Edit]:
    """fixed: where in the line nothing is to be changed."""
    for found in pattern.finditer(line):
        if found.start() in fixed:
            continue
        new = by(found)
        yield (
            f"{found[0].strip()} -> {new.strip() or 'nothing'}",
            line[: found.start()] + new + line[found.end() :],
        )


def _next_number(found: "re.Match[str]") -> str:
    text = found[1]
    is_whole = text.isdigit()
    return (str(int(text) + 1) if is_whole else repr(float(text) + 1)) + found[2]


def _other_extreme(found: "re.Match[str]") -> str:
    return f"{found[1]}{'max' if found[2] == 'min' else 'min'}{found[3]}("


def _deleted(line: str, before: str) -> Iterator[Edit]:
    """A statement that is one whole line leaves a semicolon; a value that is returned becomes {}."""
    text = line.strip()
    indent = line[: len(line) - len(line.lstrip())]
    begins = before.endswith((*STATEMENT_ENDS, ")")) or before == "else"
    is_whole = text.endswith(";") and text.count("(") == text.count(")") and begins
    # Without what it declares nothing would compile.
    if not is_whole or text.startswith(("for ", "static_assert", "using ", "constexpr ", "const ")):
        return
    if RETURN.fullmatch(text):
        yield "return {}", f"{indent}return {{}};"
    elif text != ";":
        yield "delete the statement", f"{indent};"


def _closing(line: str, begin: int) -> int | None:
    """Where the parenthesis that opens at `begin` closes; None if that is on another line."""
    depth = 0
    for index in range(begin, len(line)):
        depth += (line[index] == "(") - (line[index] == ")")
        if depth == 0:
            return index
    return None
