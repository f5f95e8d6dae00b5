"""Which tests reach which line of `yaie`: recorded once, kept by test file, recorded again when a file
that matters has changed.

What is kept of a test file (`.mutants/reached/tests/...json`) has the digests of everything that it
hangs on: the test file, the modules of `tests` that it imports, the conftests above it, and the files of
`yaie` that its tests reach. When one of them changes, the test file is run again.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from grader.selfcheck.proof import closure
from tests.mutants import recording

MARKS = "not nightly and not gpu"
"""What CI runs."""
AT_ONCE = 12
"""Test files for each job in one run of pytest. What a run has recorded is kept, whatever happens to the
next."""


@dataclass(frozen=True, slots=True)
class TimedTest:
    """seconds: what it took when it was recorded, its share of fixtures included."""

    name: str
    seconds: float

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


class Reached:
    """What the tests of some files reach. Lines are counted from 1, files named from the root."""

    def __init__(self, kept: Iterable[dict[str, Any]]) -> None:
        self._lines: defaultdict[str, defaultdict[int, list[TimedTest]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._breadths: dict[str, int] = {}
        self._tests: dict[str, list[TimedTest]] = {}
        for table in kept:
            tests = [TimedTest(name, seconds) for name, seconds in table["tests"]]
            for test in tests:
                self._breadths[test.file] = len(table["lines"])
                self._tests[test.file] = tests
            for file, lines in table["lines"].items():
                for line, indices in lines.items():
                    self._lines[file][int(line)] += [tests[index] for index in indices]

    def breadth(self, test_file: str) -> int:
        """How many files of `yaie` its tests reach: few are what they are about."""
        return self._breadths[test_file]

    def of(self, test_file: str) -> set[TimedTest]:
        """All tests of a file that passed when they were recorded."""
        return set(self._tests.get(test_file, ()))

    def at(self, file: str, line: int) -> set[TimedTest]:
        """The tests that reach a line, but for those that only import it."""
        return set(self._lines[file][line])

    def anywhere(self, file: str) -> set[TimedTest]:
        """The tests that reach any line of a file, but for those that only import it."""
        return {test for tests in self._lines[file].values() for test in tests}


def judged_files(root: Path, chosen: Sequence[str]) -> list[str]:
    """The test files among and below these files and folders. Raises FileNotFoundError."""
    found: set[Path] = set()
    for name in chosen:
        place = root / name
        if not place.exists():
            raise FileNotFoundError(f"there is no {name}: name a test file or a folder of them")
        found |= {place} if place.is_file() else set(place.rglob("test_*.py"))
    return sorted(path.relative_to(root).as_posix() for path in found)


class Store:
    """What was recorded, in a folder that git ignores."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder

    def load(self, files: Iterable[str]) -> Reached:
        return Reached(json.loads(self._path(file).read_text("utf-8")) for file in files)

    def without_tests(self, files: Iterable[str]) -> list[str]:
        """Those of which no test passed when they were recorded, or none is for CI."""
        return [
            file for file in files if not json.loads(self._path(file).read_text("utf-8"))["tests"]
        ]

    def stale(self, files: Iterable[str]) -> list[str]:
        """Those that must be recorded, again or for the first time."""
        return [file for file in files if not self._is_fresh(file)]

    def record(self, files: Sequence[str], jobs: int, advance: Callable[[int], None]) -> None:
        """Run these test files and keep what they reach. advance: is told how many are done."""
        at_once = AT_ONCE * jobs
        for begin in range(0, len(files), at_once):
            some = files[begin : begin + at_once]
            with tempfile.TemporaryDirectory(prefix="yaie-reached-") as scratch:
                _run(self._root, some, jobs, Path(scratch))
                for file, table in _by_file(self._root, some, Path(scratch)):
                    path = self._path(file)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.with_suffix(".new").write_text(json.dumps(table), "utf-8")
                    path.with_suffix(".new").replace(path)
            advance(len(some))

    def _path(self, file: str) -> Path:
        return self._folder / f"{file}.json"

    def _is_fresh(self, file: str) -> bool:
        with suppress(OSError, ValueError):
            digests = json.loads(self._path(file).read_text("utf-8"))["digests"]
            return all(digest == _digest(self._root / name) for name, digest in digests.items())
        return False


def _run(root: Path, files: Sequence[str], jobs: int, scratch: Path) -> None:
    rc = scratch / "coveragerc"
    rc.write_text(recording.settings(root / "yaie", scratch), "utf-8")
    workers = ["-n", str(jobs), "--dist", "loadfile"] if jobs > 1 else ["-p", "no:xdist"]
    plugin = [
        "-p",
        recording.__name__,
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-m",
        MARKS,
        "-q",
    ]
    here = Path(__file__).resolve().parents[2]  # where the plugin is
    path = os.pathsep.join(map(str, dict.fromkeys([root, here])))
    where = {"MUTANTS_FOLDER": str(scratch), "MUTANTS_RC": str(rc), "PYTHONPATH": path}
    subprocess.run(
        [sys.executable, "-m", "pytest", *workers, *plugin, *files],
        cwd=root,
        env=os.environ | where,
        stdout=subprocess.DEVNULL,
        check=False,  # tests that fail are left out of what is kept
    )


def _by_file(root: Path, files: Sequence[str], scratch: Path) -> Iterator[tuple[str, dict]]:
    """What to keep of each test file. Raises RuntimeError if nothing was recorded."""
    tests: dict[str, dict[str, Any]] = {}
    users: dict[str, list[str]] = {}
    for told in scratch.glob("tests-*.json"):
        table = json.loads(told.read_text("utf-8"))
        tests |= {name: test for name, test in table["tests"].items() if test["passed"]}
        users |= table["fixtures"]
    if not any(scratch.glob("tests-*.json")):
        raise RuntimeError(f"pytest recorded nothing of {files[0]} and what comes after it")
    users |= {test["id"]: [name] for name, test in tests.items()}
    contexts = _contexts(root, scratch)
    for file in files:
        own = [name for name in tests if name.partition("::")[0] == file]
        index = {name: position for position, name in enumerate(own)}
        lines = {
            source: {
                line: sorted(
                    {index[user] for id in ids for user in users.get(id, ()) if user in index}
                )
                for line, ids in by_line.items()
            }
            for source, by_line in contexts.items()
        }
        kept = {
            source: {line: reached for line, reached in by_line.items() if reached}
            for source, by_line in lines.items()
        }
        kept = {source: by_line for source, by_line in kept.items() if by_line}
        digests = {name: _digest(root / name) for name in {*_support(root, file), *kept}}
        timed = [(name, round(tests[name]["seconds"], 3)) for name in own]
        yield file, {"digests": digests, "tests": timed, "lines": kept}


def _contexts(root: Path, scratch: Path) -> dict[str, dict[int, list[str]]]:
    """By file of `yaie` and line: the contexts that reach it."""
    import coverage

    # Of a process that was killed while it wrote there may be half a file: it is left out.
    total = coverage.Coverage(config_file=str(scratch / "coveragerc"), messages=False)
    total.combine([str(scratch)])
    data = total.get_data()
    return {
        Path(file).relative_to(root).as_posix(): data.contexts_by_lineno(file)
        for file in data.measured_files()
    }


def _support(root: Path, file: str) -> set[str]:
    """The test file, the modules of `tests` that it imports, and the conftests above it."""
    test = root / file
    conftests = [folder / "conftest.py" for folder in test.parents if folder.is_relative_to(root)]
    begin = [test, *(path for path in conftests if path.is_file())]
    imported = closure(begin, root, ("tests",))
    return {path.relative_to(root).as_posix() for path in imported}


@cache
def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def copy_of_tree(root: Path, target: Path) -> None:
    """A copy of what git knows of or would take up; of all if this is no repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        shutil.copytree(root, target, ignore=shutil.ignore_patterns(".git", "__pycache__"))
        return
    for name in filter(None, listed.stdout.split("\0")):
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)
