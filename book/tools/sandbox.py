"""Runs a chapter's commands as a reader would who has just cloned the repository.

Everything lies in a temporary folder: the copy of the repository with unsolved labs, an environment
whose programs are links to this one's, a home. What a command leaves behind goes with it.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from book.tools.blocks import PORT, Block, Command, ConsoleError, tidy
from book.tools.mdbook import ROOT
from grader.notebooks import SOURCE as NOTEBOOK_SOURCE
from grader.selfcheck.variants import known_wrong, write_wrong
from grader.stubs import generate
from yaie.cuda.compiler import cache_folder
from yaie.curriculum.manifest import load_curriculum
from yaie.curriculum.progress import source_files

COPIED = ("solutions", "yaie", "grader", "book")
FILES = ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "book.toml")
LABS = ("__init__.py", "curriculum.toml", "stubs.sha256")
SECONDS = (
    300.0  # for one command; it takes about six, or forty where it compiles, on an idle machine
)
PASSED_ON = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Result:
    """What a command printed, as lines."""

    command: Command
    output: list[str]
    seconds: float


def run_chapter(blocks: list[Block], name: str, root: Path = ROOT) -> Iterator[Result]:
    """Run what a chapter shows, in order, in one fresh copy. Raises ConsoleError if that fails."""
    todo = [block for block in blocks if not block.unrun]
    if not todo:
        return
    with Sandbox(root) as sandbox:
        for block in todo:
            for lab in block.solved:
                sandbox.solve(lab, block.mistake)
            if block.before:
                sandbox.prepare(block, f"{name}:{block.line}")
            if block.server:
                sandbox.serve(f"{name}:{block.line}")
            for command in block.commands:
                yield sandbox.run(command, f"{name}:{command.line}")


class Sandbox:
    """A copy of the repository in a temporary folder, and the processes that run in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._stack = ExitStack()
        self.port: int | None = None

    def __enter__(self) -> "Sandbox":
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="yaie-book-")))
        self.home, self.copy = folder / "home", folder / "yaie"
        self.home.mkdir()
        self.copy.mkdir()
        copy_repository(self.root, self.copy)
        self._share_library()
        link_environment(Path(sys.prefix), self.copy / ".venv")
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _share_library(self) -> None:
        """Attention in C++ is compiled once for all chapters, not in each one's home."""
        kept = self.home / ".cache/yaie"
        kept.mkdir(parents=True)
        shared = cache_folder().parent / "cpp"
        shared.mkdir(parents=True, exist_ok=True)
        (kept / "cpp").symlink_to(shared)

    def solve(self, lab: str, mistake: str = "") -> None:
        """Fill in a lab: the reference's files over the stubs, with a known mistake if one is named."""
        with tempfile.TemporaryDirectory(prefix="yaie-lab-") as folder:
            source = self.root / "solutions" / lab
            if mistake:
                source = write_known_wrong(lab, mistake, Path(folder, lab))
            for file in source_files(source):
                if file.name != NOTEBOOK_SOURCE:
                    (self.copy / "labs" / lab / file.name).write_bytes(file.read_bytes())

    def prepare(self, block: Block, where: str) -> None:
        """Do what the reader has done by hand before. Raises ConsoleError if it says anything."""
        said = self.run(Command(block.before, (), block.line), where).output
        if said:
            raise ConsoleError(f"{where}: {block.before}: {' '.join(said)}")

    def run(self, command: Command, where: str) -> Result:
        """Run one command in a shell of its own, without a terminal and with nothing to read."""
        begin = time.perf_counter()
        process = self._start(self._with_port(command.text), subprocess.PIPE)
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            stop(process, signal.SIGKILL)
            raise ConsoleError(f"{where}: not done after {SECONDS:.0f} s: {command.text}") from None
        finally:
            stop(process, signal.SIGKILL)  # what it left in the background, too
        text = output.decode("utf-8", "replace")
        if self.port is not None:
            text = re.sub(rf"\b{self.port}\b", PORT, text)
        return Result(command, tidy(text), time.perf_counter() - begin)

    def serve(self, where: str) -> None:
        """Have `yaie serve` of the tutor running, until the sandbox is left."""
        if self.port is not None:
            return
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        log = self.home / "server.log"
        with log.open("wb") as file:
            process = self._start(f"exec yaie serve --port {self.port}", file)
        self._stack.callback(stop, process, signal.SIGTERM)
        end = time.monotonic() + SECONDS
        while not self._answers():
            if process.poll() is not None or time.monotonic() > end:
                said = log.read_text("utf-8", "replace")
                raise ConsoleError(f"{where}: yaie serve does not answer; it said:\n{said}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _with_port(self, text: str) -> str:
        return text if self.port is None else re.sub(rf"\b{PORT}\b", str(self.port), text)

    def _start(self, command: str, output: int | IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.copy,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def environment(self) -> dict[str, str]:
        """A plain terminal's: nothing of the caller's settings, of `make`'s or of the engine's."""
        path = [str(self.copy / ".venv/bin"), os.environ.get("PATH", os.defpath)]
        kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return kept | {
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": str(self.copy),
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "HF_HUB_OFFLINE": "1",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "PYTHONUTF8": "1",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "COLUMNS": "100",
            "LINES": "40",
        }


def write_known_wrong(lab: str, name: str, into: Path) -> Path:
    """The reference of a lab with a mistake of `grader/known_wrong`. Raises ConsoleError."""
    one = load_curriculum()[lab]
    wrong = next((each for each in known_wrong(one) if each.name == name), None)
    if wrong is None:
        raise ConsoleError(f"there is no grader/known_wrong/{lab}/{name}.toml")
    return write_wrong(wrong, one, into)


def copy_repository(root: Path, target: Path) -> None:
    """What a clone holds, as far as commands of the book use it; the labs are unsolved."""
    for name in COPIED:
        leave_out = shutil.ignore_patterns("out") if name == "book" else None
        shutil.copytree(root / name, target / name, ignore=leave_out)
    for name in FILES:
        shutil.copy2(root / name, target / name)
    stubs = {path: text.encode() for path, text in generate(root).items()}
    stubs |= {Path("labs", name): (root / "labs" / name).read_bytes() for name in LABS}
    for path, content in stubs.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(content)


def link_environment(environment: Path, target: Path) -> None:
    """An environment of links to this one, which `make` finds ready: it installs nothing."""
    target.mkdir()
    for path in environment.iterdir():
        (target / path.name).symlink_to(path)
    ready = target / ".yaie-ready"
    ready.unlink(missing_ok=True)
    ready.touch()


def stop(process: subprocess.Popen[bytes], how: signal.Signals, patience: float = 10.0) -> None:
    """End a process and all that it started; after `patience` seconds without asking."""
    for number in (how, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            continue
