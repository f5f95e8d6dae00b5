"""Serve the book and rebuild it on every change: python -m book.tools.serve [--port 3000]

Without a port, the first free one from 3000 on. The pages go to a temporary folder, because they show
what the reader has passed: `book/out` stays the book of everybody. A grading counts as a change. mdBook
overlooks it, since git ignores `.yaie`, so the file of progress is copied to a folder that it watches.
"""

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import FrameType

from book.tools.cards import SERVED
from book.tools.mdbook import ROOT, MdBookError, environment, find_mdbook
from yaie.core.compat import tomllib
from yaie.curriculum.progress import PROGRESS
from yaie.system.streams import sound_streams

HOST = "127.0.0.1"
PORTS = range(3000, 3100)
SECONDS = 0.5  # between two looks at the file of progress


def main(arguments: list[str] | None = None) -> int:
    """Runs until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m book.tools.serve", description="Serve the book."
    )
    parser.add_argument("--port", type=int, help="default: the first free one from 3000 on")
    port = parser.parse_args(arguments).port
    try:
        mdbook = find_mdbook()
        port = find_port([port] if port else PORTS)
    except (MdBookError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"The book is at http://{HOST}:{port} (Ctrl-C stops).", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        with tempfile.TemporaryDirectory(prefix="yaie-book-") as folder:
            return serve(mdbook, port, ROOT, Path(folder))
    except KeyboardInterrupt:
        return 0


def _leave(number: int, frame: FrameType | None) -> None:
    """End as after Ctrl-C: mdBook is stopped, the folder is removed."""
    raise KeyboardInterrupt


def serve(mdbook: str, port: int, root: Path, folder: Path) -> int:
    """Run mdBook until it ends or this is interrupted, and keep the copy of progress fresh."""
    mirror = Mirror(root / PROGRESS, folder / "progress" / PROGRESS.name)
    settings = {
        SERVED: str(mirror.copy),
        "MDBOOK_BUILD__EXTRA_WATCH_DIRS": json.dumps([*watched(root), str(mirror.copy.parent)]),
    }
    command = [mdbook, "serve", "--hostname", HOST, "--port", str(port), "-d", str(folder / "out")]
    process = subprocess.Popen(command, cwd=root, env=environment() | settings)
    try:
        while True:
            mirror.refresh()
            try:
                return process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                pass
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes], patience: float = 5.0) -> None:
    """End mdBook, which in a terminal has heard Ctrl-C as well."""
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def watched(root: Path) -> list[str]:
    """The folders that book.toml has mdBook watch; a setting in the environment replaces them."""
    table = tomllib.loads((root / "book.toml").read_text("utf-8"))
    return [str(folder) for folder in table["build"]["extra-watch-dirs"]]


class Mirror:
    """A copy of a file, written when the file has changed. No file counts as an empty one."""

    def __init__(self, source: Path, copy: Path) -> None:
        self.source, self.copy = source, copy
        self._last: bytes | None = None
        copy.parent.mkdir(parents=True)
        self.refresh()

    def refresh(self) -> None:
        """Look at the file again."""
        try:
            content = self.source.read_bytes()
        except OSError:
            content = b""
        if content != self._last:
            self.copy.write_bytes(content)
            self._last = content


def find_port(candidates: Sequence[int]) -> int:
    """The first of these ports that is free. Raises OSError if there is none."""
    for port in candidates:
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except (OSError, OverflowError):
                continue
            return port
    raise OSError(f"no free port among {candidates[0]}..{candidates[-1]}; name one: --port 8123")


if __name__ == "__main__":
    sys.exit(sound_streams(main)())
