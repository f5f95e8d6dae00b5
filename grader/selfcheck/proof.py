"""What was proven of a lab's grader, and on which sources: `grader/selfcheck.sha256`.

Mutants take longest, and what they prove holds as long as nothing changes that they depend on. So a
self-check that kills them writes down, for each lab, a digest of all that: the reference, the suite,
every module of this repository that either of them or the grading itself imports, known mistakes, other
designs, hints, argued survivors and the lab's entry in the manifest. `selfcheck --recorded` grades
mutants only of labs whose digest is another one today. Versions of Python and of packages are not part
of it: after an upgrade, prove everything again.

A line: digest, lab, mutants killed, mutants in all, and the same two of the mutants of layout.
"""

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

from grader.selfcheck.variants import GRADER, reference_folder
from yaie.core.compat import tomllib
from yaie.curriculum.manifest import MANIFEST, ROOT, Lab
from yaie.system.files import write_whole

RECORD = GRADER / "selfcheck.sha256"
OURS = ("yaie", "solutions", "grader")
HEADERS = ROOT / "yaie/cuda"
"""What compiles a CUDA lab: no import leads to its headers."""
GRADING = ("selfcheck/farm.py", "selfcheck/killing.py", "selfcheck/checks.py")
BESIDE = ("known_wrong/{}", "known_right/{}", "suites/{}", "hints/{}.toml", "survivors/{}.toml")
NOT_GRADED = re.compile(r"\.pyc$|/__pycache__/|/solutions/\w+/explore\.py$")


@dataclass(frozen=True, slots=True)
class Proof:
    """Mutants of a lab that were killed, of all there were, when its sources had this digest; and of
    those of layout."""

    digest: str
    killed: int
    mutants: int
    layout_killed: int = 0
    layout: int = 0


def read_proofs(path: Path = RECORD) -> dict[str, Proof]:
    """By lab. Empty before the first time."""
    if not path.is_file():
        return {}
    rows = (line.split() for line in path.read_text("utf-8").splitlines() if line.strip())
    return {lab: Proof(value, *map(int, figures)) for value, lab, *figures in rows}


def write_proofs(proofs: dict[str, Proof], path: Path = RECORD) -> None:
    """Of every lab, in the order given."""
    lines = (
        f"{p.digest}  {lab} {p.killed} {p.mutants} {p.layout_killed} {p.layout}\n"
        for lab, p in proofs.items()
    )
    write_whole(path, "".join(lines))


def digest_of(lab: Lab, root: Path = ROOT) -> str:
    """SHA-256 over everything that a lab's self-check depends on."""
    total = hashlib.sha256(_entry(lab, root).encode())
    for file in sorted(depends_on(lab)):
        content = file.read_bytes()
        name = file.relative_to(root).as_posix().encode()
        total.update(b"%d %d " % (len(name), len(content)) + name + content)
    return total.hexdigest()


def depends_on(lab: Lab) -> set[Path]:
    """The files of the digest."""
    own = [reference_folder(lab), *(GRADER / name.format(lab.key) for name in BESIDE)]
    files = {file for place in own for file in _files(place)}
    grading = [GRADER / "worker.py", *(GRADER / name for name in GRADING)]
    python = {file for file in files if file.suffix == ".py"}
    files |= closure([*sorted(python), *grading])
    if any(file.is_relative_to(HEADERS) for file in files):
        files |= set(_files(HEADERS))
    return files


def _entry(lab: Lab, root: Path) -> str:
    table = tomllib.loads((root / MANIFEST).read_text("utf-8"))
    return repr(next(entry for entry in table["lab"] if entry["key"] == lab.key))


def _files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    for file in place.rglob("*"):
        if file.is_file() and not NOT_GRADED.search(file.as_posix()):
            yield file


def closure(
    files: Iterable[Path], root: Path = ROOT, packages: tuple[str, ...] = OURS
) -> set[Path]:
    """These modules, and those of these packages that they import, wherever the import stands."""
    found: set[Path] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += imported_by(file, root, packages)
    return found


@cache
def imported_by(file: Path, root: Path, packages: tuple[str, ...]) -> tuple[Path, ...]:
    """The modules of these packages that a module imports itself, but for a type checker's sake."""
    package = ".".join(file.relative_to(root).parts[:-1])
    names: set[str] = set()
    for node in _run(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            # What is imported may be a module itself.
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    ours = (name for name in names if name.split(".")[0] in packages)
    return tuple(path for name in ours if (path := _module(name, root)) is not None)


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree, without what only a type checker reads."""
    yield node
    is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    for child in node.orelse if is_for_types else ast.iter_child_nodes(node):  # type: ignore[attr-defined]
        yield from _run(child)


def _module(name: str, root: Path) -> Path | None:
    """The file of a module below a root; None if there is none, say for a name in a module."""
    base = root.joinpath(*name.split("."))
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)
