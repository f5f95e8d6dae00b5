"""A process that knows the libraries and nothing of ours; its copies run tests on a mutant each.

    python -m tests.mutants.warm FOLDER SLOTS LIBRARY...    orders on stdin, answers on stdout, as JSON

FOLDER has a copy of the tree for each slot, 0, 1, ..., and one that stays as it is, `pristine`.
Importing torch, transformers and the server's libraries costs more than most mutants' tests.
"""

import gc
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from grader.selfcheck.forking import Done, Emit, run_forked

LIBRARIES = (
    "torch", "numpy", "transformers", "tokenizers", "safetensors.torch", "fastapi", "uvicorn", "httpx",
    "openai", "anthropic", "hypothesis", "llguidance", "prometheus_client", "psutil", "typer", "rich",
)  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
OURS = ("yaie", "solutions", "labs", "grader", "book", "tests")
EXTRA_ADDRESS_SPACE = 16 * 2**30
"""Of threads' stacks and arenas there are many; memory that is filled without end stops here."""
MARK = "MUTANTS_SLOT"
"""In the environment of all that a copy starts: what outlives it is known by it and killed."""
CHANGED = "changed"  # a slot's note of the file that is not as it was


@dataclass(frozen=True, slots=True)
class Order:
    """file: to replace by `source`; "" for none. tests: [name, seconds that it may take], the files of
    tests in the order in which they run. seconds: for all of it."""

    id: int
    file: str
    source: str
    tests: list[tuple[str, float]]
    seconds: float


class Warm:
    """The other end. Use as a context manager."""

    def __init__(self, folder: Path, slots: int, libraries: Sequence[str] = LIBRARIES) -> None:
        """libraries: what it imports before the first copy."""
        one = {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.warm", str(folder), str(slots), *libraries],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | one,
            text=True,
        )

    def __enter__(self) -> "Warm":
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if error[0] is not None:
            self._process.terminate()
        self._process.wait()

    def run(self, orders: Iterable[Order]) -> Iterator[dict[str, Any]]:
        """Answers, as the orders end: id, events, problem, seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        lines = [json.dumps(asdict(order)) for order in orders]
        self._process.stdin.write(json.dumps(len(lines)) + "\n" + "\n".join(lines) + "\n")
        self._process.stdin.flush()
        for _ in lines:
            answer = self._process.stdout.readline()
            if not answer:
                raise RuntimeError("the process that runs the tests has ended; it said why")
            yield json.loads(answer)


def main() -> None:
    folder, slots = Path(sys.argv[1]), int(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # the copies end as well
    for plugin in entry_points(group="pytest11"):  # pytest loads them all
        plugin.load()
    for name in sys.argv[3:]:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or collecting garbage in a copy would copy every page that Python has
    while count := sys.stdin.readline():
        orders = [Order(**json.loads(sys.stdin.readline())) for _ in range(json.loads(count))]

        def work(order: Order, emit: Emit, slot: int) -> None:
            run_tests(order, emit, folder, slot)

        for done in run_forked(orders, slots, work, EXTRA_ADDRESS_SPACE):
            kill_what_is_left(folder / str(done.slot))
            answers.write(json.dumps(_answer(done)) + "\n")


def _answer(done: Done) -> dict[str, Any]:
    return {
        "id": done.order.id,
        "events": done.events,
        "problem": done.problem,
        "seconds": done.seconds,
    }


def run_tests(order: Order, emit: Emit, folder: Path, slot: int) -> None:
    """In the copy: change the slot's tree, and run pytest in it."""
    tree = folder / str(slot)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    restore(tree, folder / "pristine")
    if order.file:
        change(tree, order.file, order.source)
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    sys.path[:] = [str(tree), *(place for place in sys.path if place not in ("", str(ROOT)))]
    sys.dont_write_bytecode = True
    os.environ.update({"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", MARK: str(tree)})
    os.chdir(tree)
    files = list(dict.fromkeys(name.partition("::")[0] for name, _ in order.tests))
    plain = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"]
    watch = Watch(dict(order.tests), files, emit)
    code = pytest.main([*plain, "--rootdir", str(tree), *files], plugins=[watch])
    if code in (2, 3, 4) and not watch.has_failed:  # not even collected
        emit({"event": "failed", "test": files[0], "why": f"pytest ends with {int(code)}"})


class Watch:
    """Keeps the tests that are wanted, in their order, and tells how they fare."""

    def __init__(self, seconds: dict[str, float], files: list[str], emit: Emit) -> None:
        self._seconds = seconds
        self._place = {file: place for place, file in enumerate(files)}
        self._emit = emit
        self._began = time.monotonic()
        self.has_failed = False

    def _fail(self, test: str, why: str) -> None:
        if not self.has_failed:
            self._emit({"event": "failed", "test": test, "why": why[-300:]})
        self.has_failed = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._fail(report.nodeid, report.longreprtext.strip().splitlines()[-1])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self._seconds]
        items[:] = sorted(kept, key=lambda item: self._place[item.nodeid.partition("::")[0]])
        for item in items:
            limit = pytest.mark.timeout(self._seconds[item.nodeid], method="signal")
            item.add_marker(limit, append=False)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        at = round(time.monotonic() - self._began, 3)
        self._emit({"event": "start", "test": nodeid, "at": at})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            lines = report.longreprtext.strip().splitlines() or [""]
            told = next((line for line in lines if line.startswith("E ")), lines[-1])
            self._fail(report.nodeid, told.removeprefix("E ").strip())


def change(tree: Path, file: str, source: str) -> None:
    """Put a mutant in its place, with a date of its own: what was compiled of the file is not used."""
    (tree.parent / f"{tree.name}.{CHANGED}").write_text(file, "utf-8")
    target = tree / file
    before = target.stat().st_mtime
    target.write_text(source, "utf-8")
    os.utime(target, (before + 3600, before + 3600))


def restore(tree: Path, pristine: Path) -> None:
    """Undo what a copy before this one has changed."""
    note = tree.parent / f"{tree.name}.{CHANGED}"
    if note.is_file():
        file = note.read_text("utf-8")
        shutil.copy2(pristine / file, tree / file)
        note.unlink()


def kill_what_is_left(tree: Path) -> None:
    """End what a copy has started in sessions of their own. Nothing else runs in its slot now."""
    import psutil

    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get(MARK) == str(tree):
            with suppress(psutil.NoSuchProcess):
                process.kill()


if __name__ == "__main__":
    main()
