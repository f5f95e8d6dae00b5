"""Generate `labs` from `solutions`: the same packages, with the learner's part left open.

    python -m grader.stubs            write what has changed
    python -m grader.stubs --force    also overwrite files that someone has edited
    python -m grader.stubs --check    write nothing; exit 1 and show what is not in step
    python -m grader.stubs --check --strict    what a learner has edited is not in step either

`labs/stubs.sha256` records what was generated (`sha256sum --check labs/stubs.sha256` reads it). A
file that differs from its record was edited, most likely by a learner: it is left alone without
`--force`. A file that was never recorded, such as a learner's notes, is left alone in any case.

A file of `solutions` whose first line is `# ORACLE` (`// ORACLE` in CUDA C++) answers a task in other
words: it gets no stub, and a copy that an earlier run generated is removed. Stubs that import it import
it from `solutions`.

`--check` lets a learner's work pass: a file that differs from its record, while the record is what would
be generated today. A stale stub, a missing one and a record that does not match always fail. What is
committed must hold stubs and nothing else, so CI checks with `--strict`; `make check` does if CI is set.
"""

import argparse
import difflib
import hashlib
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from grader.notebooks import NOTEBOOK, SOURCE, make_notebook
from grader.regions import MarkerError, is_oracle, make_stub
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import MANIFEST, ROOT, load_curriculum
from yaie.system.files import cannot_write, write_whole
from yaie.system.interrupt import Interruptible
from yaie.system.streams import sound_streams

RECORD = Path("labs/stubs.sha256")


@dataclass(frozen=True, slots=True)
class Difference:
    """One path under the root where `labs` is not what would be generated.

    old: what lies there, None if nothing does. new: what should, None if nothing should.
    edited: what lies there is not what was generated there last. current: what was generated there last
    is what would be today.
    """

    path: Path
    old: str | None
    new: str | None
    edited: bool
    current: bool = False

    @property
    def is_yours(self) -> bool:
        """A learner's work on a stub that is up to date."""
        return self.edited and self.current

    def describe(self) -> str:
        """A line that says what is wrong, then a diff from what lies there to what should."""
        if self.old is None:
            return f"{self.path}: missing"
        if self.new is None:
            return f"{self.path}: has no source in solutions/ any more"
        reason = "edited by hand" if self.edited else "older than its source in solutions/"
        lines = difflib.unified_diff(
            self.old.splitlines(), self.new.splitlines(), str(self.path), "generated", lineterm=""
        )
        return "\n".join([f"{self.path}: {reason}", *(f"    {line}" for line in lines)])


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Exit status: 0 in step, 1 not in step or refused, 2 a marker or the curriculum is wrong, or a stub
    cannot be written."""
    parser = argparse.ArgumentParser(prog="python -m grader.stubs", description="Generate labs/.")
    parser.add_argument("--check", action="store_true", help="write nothing, show what differs")
    parser.add_argument("--force", action="store_true", help="overwrite edited files too")
    parser.add_argument("--strict", action="store_true", help="with --check: fail on edits too")
    options = parser.parse_args(arguments)
    try:
        stubs = generate(root)
    except (MarkerError, ConfigError) as error:
        print(error, file=sys.stderr)
        return 2
    differences = compare(root, stubs)
    if options.check:
        return report(differences, root, stubs, strict=options.strict)
    edited = [difference for difference in differences if difference.edited]
    if edited and not options.force:
        names = "\n".join(f"  {difference.path}" for difference in edited)
        print(
            f"Edited since they were generated, so nothing was written:\n{names}\n"
            "Keep a copy, then run `make stubs ARGS=--force` to overwrite them.",
            file=sys.stderr,
        )
        return 1
    try:
        write(root, differences, stubs)
    except OSError as error:
        print(cannot_write(error.filename, error), file=sys.stderr)
        return 2
    return 0


def generate(root: Path, written: Collection[str] = ()) -> dict[Path, str]:
    """Path below the root -> text, for every file of every lab that `solutions` has.

    written: tasks that hold the reference, as if they were done.
    """
    labs = {lab.key: lab for lab in load_curriculum(root).labs}
    stubs: dict[Path, str] = {}
    oracles = find_oracles(root)
    for package in _packages(root):
        if package.name not in labs:
            raise ConfigError(
                f"solutions/{package.name} is not in {MANIFEST}: add it, with its chapter"
            )
        for source in text_files(package):
            path = source.relative_to(root)
            if path in oracles:
                continue
            if source.name == SOURCE:
                notebook = make_notebook(source.read_text("utf-8"), path)
                stubs[Path("labs", *path.parts[1:-1], NOTEBOOK)] = notebook
                continue
            stub = make_stub(source.read_text("utf-8"), path, labs[package.name], oracles, written)
            stubs[Path("labs", *path.parts[1:])] = stub
    return stubs


def find_oracles(root: Path) -> frozenset[Path]:
    """The files of `solutions`, below the root, that begin with an oracle's mark."""
    return frozenset(
        source.relative_to(root)
        for package in _packages(root)
        for source in text_files(package)
        if is_oracle(source.read_text("utf-8"), source.relative_to(root))
    )


def _packages(root: Path) -> list[Path]:
    folders = (path for path in (root / "solutions").iterdir() if path.is_dir())
    return sorted(path for path in folders if path.name != "__pycache__")


def text_files(folder: Path) -> list[Path]:
    """Every source file below `folder`, without what a build or an interpreter left there."""
    suffixes = {".py", ".cu", ".cuh", ".toml", ".md", ".txt"}
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in suffixes)


def compare(root: Path, stubs: dict[Path, str]) -> list[Difference]:
    """Where `labs` differs from `stubs`, among the files that are or once were generated."""
    recorded = read_record(root)
    differences = []
    for path in sorted(stubs.keys() | recorded.keys()):
        file = root / path
        old = file.read_text("utf-8", errors="replace") if file.is_file() else None
        new = stubs.get(path)
        if old != new:
            edited = old is not None and digest(old) != recorded.get(path)
            current = new is not None and digest(new) == recorded.get(path)
            differences.append(Difference(path, old, new, edited, current))
    return differences


def report(
    differences: list[Difference], root: Path, stubs: dict[Path, str], *, strict: bool = False
) -> int:
    """Say what `--check` found. strict: a learner's work counts as a difference."""
    yours = [] if strict else [difference for difference in differences if difference.is_yours]
    wrong = [difference for difference in differences if difference not in yours]
    for difference in wrong:
        print(difference.describe())
    stale_record = not wrong and read_record(root) != digests(stubs)
    if stale_record:
        print(f"{RECORD}: does not record what is generated")
    if wrong or stale_record:
        print("labs/ is not in step with solutions/: run `make stubs`.")
        return 1
    for difference in yours:
        print(f"{difference.path}: yours, edited")
    print(f"labs/ is in step with solutions/ ({len(stubs)} files, {len(yours)} of them yours).")
    return 0


def write(root: Path, differences: list[Difference], stubs: dict[Path, str]) -> None:
    """Make `labs` what it should be, and record it. Raises OSError."""
    for difference in differences:
        file = root / difference.path
        if difference.new is None:
            file.unlink(missing_ok=True)
            print(f"removed {difference.path}")
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, difference.new)
            print(f"wrote   {difference.path}")
    lines = (f"{value}  {path.as_posix()}\n" for path, value in digests(stubs).items())
    write_whole(root / RECORD, "".join(lines))
    if not differences:
        print(f"labs/ was in step with solutions/ ({len(stubs)} files).")


def read_record(root: Path) -> dict[Path, str]:
    """What was generated last: path below the root -> SHA-256. Empty before the first time."""
    if not (root / RECORD).is_file():
        return {}
    rows = (line.split(maxsplit=1) for line in (root / RECORD).read_text("utf-8").splitlines())
    return {Path(path): value for value, path in rows}


def digests(stubs: dict[Path, str]) -> dict[Path, str]:
    return {path: digest(text) for path, text in sorted(stubs.items())}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


if __name__ == "__main__":
    with Interruptible():
        sys.exit(sound_streams(main)())
