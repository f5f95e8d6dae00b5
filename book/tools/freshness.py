"""Which recorded figures are older than the code that they measure.

    python -m book.tools.freshness [--strict]

`book/evidence/sources.toml` says of each file how it is measured and which code its figures depend on.
Who measures puts a digest of that code into the file. With another digest today, the figures belong to
other code. Comments and docstrings do not count.
"""

import ast
import hashlib
import io
import json
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeGuard

from book.tools.evidence import EVIDENCE, EvidenceError
from book.tools.mdbook import ROOT
from yaie.bench.report import as_json
from yaie.core.compat import tomllib
from yaie.system.files import write_whole

SOURCES = "sources.toml"
CODE = (".py", ".cu", ".cuh", ".h", ".safetensors")


@dataclass(frozen=True, slots=True)
class Source:
    """One file of evidence.

    run: the command that measures it. on: what it needs. measures: files and folders, from the root; one
    that begins with "!" is left out again.
    """

    name: str
    run: str
    on: Literal["cpu", "gpu", "hand"]
    measures: tuple[str, ...]

    def files(self, root: Path = ROOT) -> list[Path]:
        """What the figures depend on, in order. Raises EvidenceError if something named is not there."""
        left_out = [root / path[1:] for path in self.measures if path.startswith("!")]
        found: set[Path] = set()
        for path in self.measures:
            if not path.startswith("!"):
                found |= set(_code(root / path, self.name))
        return sorted(
            file for file in found if not any(file.is_relative_to(folder) for folder in left_out)
        )

    def digest(self, root: Path = ROOT) -> str:
        """SHA-256 over that code without comments and docstrings, 16 digits of it."""
        total = hashlib.sha256()
        for file in self.files(root):
            total.update(file.relative_to(root).as_posix().encode() + b"\0" + _meaning(file))
        return total.hexdigest()[:16]


def _code(path: Path, name: str) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        yield from (file for file in path.rglob("*") if file.suffix in CODE)
    else:
        raise EvidenceError(f"{SOURCES}: {name} measures {path}, which is not there")


def _meaning(file: Path) -> bytes:
    """Its content; of Python, the lines of code alone, which no version of Python reads otherwise."""
    content = file.read_bytes()
    return _code_of(content.decode("utf-8")) if file.suffix == ".py" else content


@cache  # most files of figures depend on most files of code
def _code_of(text: str) -> bytes:
    lines = ["", *text.splitlines()]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row] = lines[row][:column]
    for node in ast.walk(ast.parse(text)):
        if _is_text(node):
            for row in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                lines[row] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip()).encode()


def _is_text(node: ast.AST) -> TypeGuard[ast.Expr]:
    """A docstring, or the text under an attribute."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def load_sources(folder: Path = EVIDENCE) -> dict[str, Source]:
    """By name. Raises EvidenceError unless there is one for each file, and a file for each."""
    table = tomllib.loads((folder / SOURCES).read_text("utf-8"))
    groups: dict[str, list[str]] = table.pop("groups")
    sources = {}
    for name, entry in table.items():
        measures: list[str] = []
        for path in entry["measures"]:
            measures += groups[path[1:]] if path.startswith("@") else [path]
        sources[name] = Source(name, entry["run"], entry["on"], tuple(measures))
    files = {path.stem for path in folder.glob("*.json")}
    for name in sorted(files ^ set(sources)):
        where = SOURCES if name in files else "the folder"
        raise EvidenceError(f"{name} is missing in {where}")
    return sources


def stamp(source: Source, path: Path, code: Path = ROOT) -> None:
    """Write into a file which code it has measured, that of the checkout `code`, and by which command:
    without the place that it was told to write to."""
    figures = json.loads(path.read_text("utf-8"))
    figures["command"] = source.run
    figures["measures"] = {"paths": list(source.measures), "digest": source.digest(code)}
    write_whole(path, as_json(figures))


def stale(folder: Path = EVIDENCE) -> dict[str, str]:
    """By name, why a file's figures are not those of today's code."""
    found = {}
    for name, source in load_sources(folder).items():
        figures = json.loads((folder / f"{name}.json").read_text("utf-8"))
        measured = figures.get("measures")
        if not source.measures:
            continue
        if measured is None:
            found[name] = "does not say which code it measured"
        elif measured["digest"] != source.digest():
            found[name] = _changes(source, figures)
    return found


def _changes(source: Source, figures: dict[str, Any]) -> str:
    """Which files have changed since, as far as git can tell."""
    commit = ((figures.get("machine") or {}).get("git") or {}).get("commit")
    if commit is None:
        return "its code has changed"
    named = [path for path in source.measures if not path.startswith("!")]
    ran = subprocess.run(
        ["git", "-C", str(ROOT), "diff", "--name-only", commit, "--", *named],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    counted = {file.relative_to(ROOT).as_posix() for file in source.files()}
    changed = [line for line in ran.stdout.splitlines() if line in counted]
    if ran.returncode or not changed:
        return "its code has changed"
    more = f" and {len(changed) - 2} more" if len(changed) > 2 else ""
    return f"since {commit[:7]}: {', '.join(changed[:2])}{more}"


def main() -> None:
    """List them. With --strict, figures of a CPU that are stale are an error."""
    found, sources = stale(), load_sources()
    for name, reason in found.items():
        print(f"{sources[name].on}  {name}: {reason}")
    on_cpu = [name for name in found if sources[name].on == "cpu"]
    print(f"{len(found)} of {len(sources)} files of figures are stale, {len(on_cpu)} of a CPU's.")
    if on_cpu and "--strict" in sys.argv[1:]:
        sys.exit("`make evidence` measures those of a CPU again, on an idle machine.")


if __name__ == "__main__":
    main()
