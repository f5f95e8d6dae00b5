"""`{{#given LAB}}`: the calls and fields that a lab's reference uses, each with its meaning in a line.

The names are in `book/given/names.json` (see given_names.py). A meaning is the first sentence of a
docstring, a field's entry in the docstring of its class, the comment above a CUDA function, or a line of
`book/given/words.toml`. A name without one fails the build.
"""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

from book.tools.given_cuda import meaning_in
from book.tools.mdbook import ROOT
from yaie.core.compat import tomllib
from yaie.curriculum.manifest import load_curriculum

NAMES = ROOT / "book/given/names.json"
WORDS = ROOT / "book/given/words.toml"
LIBRARIES = {
    "torch": "PyTorch",
    "Tensor": "PyTorch",
    "tl": "Triton",
    "triton": "Triton",
    "numpy": "NumPy",
}
SENTENCE = re.compile(r"(.*?(?<![ (][A-Z])(?<!\.)[.?])(?=\s|$)", re.S)
ENTRY = r"^ *(?:[\w, ]+, )?{name}(?:, [\w, ]+)?: (?P<text>.+?)(?=^ *[\w, ]+: |^ *$|\Z)"
INLINE_ENTRY = r"(?:^|[.;] +){name}: (?P<text>[^.]+\.?)"


class GivenError(ValueError):
    """A name that nothing explains."""


def render_given(key: str) -> str:
    """Tables, one for each class or place that the names come from. Raises GivenError, ConfigError."""
    lab = load_curriculum()[key]
    names = json.loads(NAMES.read_text("utf-8")).get(lab.key, {}).get("names", [])
    tables: dict[str, list[str]] = defaultdict(list)
    missing = []
    for name in names:
        place, shown, meaning = explained(name, lab.key)
        if not meaning:
            missing.append(name)
        tables[place].append(f"| `{shown}` | {meaning} |")
    if missing or not names:
        what = ", ".join(missing) or "its names were never read (make given)"
        raise GivenError(
            f"{{{{#given {key}}}}}: nothing explains {what}; write a docstring, or a line in "
            "book/given/words.toml"
        )
    parts = [
        f"{place}\n\n| | |\n|---|---|\n" + "\n".join(tables[place])
        for place in sorted(tables, key=_order)
    ]
    head = '\n## What you are given\n\n<div class="given">\n\n'
    return head + "\n\n".join(parts) + "\n\n</div>\n"


def _order(place: str) -> tuple[int, str]:
    """The lab's own files, then the engine's, then libraries."""
    kinds = ("labs/", "yaie/", "yaie.cuh")
    return next((i for i, kind in enumerate(kinds) if kind in place), len(kinds)), place


def explained(name: str, key: str) -> tuple[str, str, str]:
    """(where it comes from, as it is written, what it means) of a full name; no meaning: ""."""
    first, _, rest = name.partition(".")
    said = words().get(name, "")
    if first == "cuda":
        place = "CUDA, and what the lab's headers give"
        return place, rest, said or one_line(meaning_in(ROOT / "solutions" / key, rest))
    if first in LIBRARIES:
        return LIBRARIES[first], name, said
    if first not in ("yaie", "solutions"):
        return "Python's library", name, said
    path, inside = _home(name)
    found = _find(ast.parse(path.read_text("utf-8")), inside)
    file = path.relative_to(ROOT).as_posix().replace("solutions/", "labs/")
    owner, member = (inside[0], inside[-1]) if len(inside) > 1 else ("", inside[-1])
    place = f"`{owner}`, in `{file}`" if owner else f"`{file}`"
    return (
        place,
        _shown(member, found[-1] if found else None),
        said or _meaning(found, member, path),
    )


@cache
def words() -> dict[str, str]:
    """Meanings of what has no docstring of ours, by full name."""
    table = tomllib.loads(WORDS.read_text("utf-8"))
    return {
        f"{group}.{name}": text for group, names in table.items() for name, text in names.items()
    }


def _home(name: str) -> tuple[Path, list[str]]:
    """The file of a full name, and the names inside it."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        for path in (
            ROOT.joinpath(*parts[:end]).with_suffix(".py"),
            ROOT.joinpath(*parts[:end], "__init__.py"),
        ):
            if path.is_file():
                return path, parts[end:]
    raise GivenError(f"{name}: no such module (make given)")


def _find(tree: ast.AST, inside: list[str]) -> list[ast.AST]:
    """The definitions along a path of names, the outermost first; none if one of them is not found."""
    found: list[ast.AST] = []
    around = tree
    for name in inside:
        inner = next((node for node in ast.walk(around) if name in _defined(node)), None)
        if inner is None:
            return []
        found.append(inner)
        around = inner
    return found


def _defined(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id
        elif isinstance(target, ast.Attribute):
            yield target.attr


def _shown(name: str, node: ast.AST | None) -> str:
    """A function with its parameters, without annotations."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return name
    if any(
        ast.unparse(decorator) in ("property", "cached_property")
        for decorator in node.decorator_list
    ):
        return name
    positional = [*node.args.posonlyargs, *node.args.args]
    shown = [argument.arg for argument in positional if argument.arg not in ("self", "cls")]
    named = [f"{argument.arg}=" for argument in node.args.kwonlyargs]
    return f"{name}({', '.join([*shown, *named])})"


def _meaning(found: list[ast.AST], name: str, path: Path) -> str:
    if not found:
        return ""
    node = found[-1]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return one_line(ast.get_docstring(node) or "")
    around = found[-2] if len(found) > 1 else ast.parse(path.read_text("utf-8"))
    doc = ast.get_docstring(around) if isinstance(around, ast.ClassDef) else ""
    for pattern in (ENTRY, INLINE_ENTRY):
        if entry := re.search(pattern.format(name=re.escape(name)), doc or "", re.M | re.S):
            return one_line(entry["text"])
    body = getattr(around, "body", [])
    after = dict(pairwise(body)).get(node)
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
        return one_line(str(after.value.value))
    line = (
        path.read_text("utf-8").splitlines()[node.end_lineno - 1]
        if hasattr(node, "end_lineno")
        else ""
    )
    return one_line(line.partition("# ")[2])


def one_line(text: str) -> str:
    """The first sentence, ready for a cell of a table."""
    joined = " ".join(text.split())
    found = SENTENCE.match(joined)
    sentence = found[1] if found else joined
    return sentence[:1].upper() + sentence[1:].replace("|", "\\|")
