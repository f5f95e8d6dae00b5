"""A part's files, read once: what a class is graded on, whatever becomes of its folders meanwhile.

    snapshot = read_snapshot(student, "labs/radix_tree")     before any submission runs; in memory
    copy = snapshot.write_to(folder)                         for one worker, in a folder of its own
    copy.changed()                                           the file that is no longer what was written

A submission runs as the user who grades, and can write wherever that user can. What others handed in is
then out of its reach only until it is read again.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from yaie.curriculum.progress import SOURCES, digest_of, source_files
from yaie.system.files import reason

MOST_FILES = 500
MOST_BYTES = 4 * 2**20
"""Of all files of a part together; the largest reference has a twentieth."""
LEFT_OUT = ("__pycache__",)
"""Compiled files may hold other code than the source beside them."""
NOTEBOOK = ".ipynb"
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Refused(Exception):
    """A sentence: why a submission is not graded."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """files: content by the file's name below the part's folder, with slashes."""

    files: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """That of `part_digest` on the folder that was read."""
        sources = (name for name in self.files if PurePosixPath(name).suffix in SOURCES)
        ordered = sorted(sources, key=PurePosixPath)
        return digest_of((os.fsencode(name), self.files[name]) for name in ordered)

    def write_to(self, folder: Path) -> "Copy":
        """Raises OSError."""
        stamps = {}
        folder.mkdir(parents=True)
        for name, content in self.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            stamps[name] = _stamp(file)
        return Copy(self, folder, stamps)


@dataclass(frozen=True, slots=True)
class Copy:
    """stamps: what the file system says of each file. Its time of change, which no program can set,
    tells of a file that was overwritten and restored."""

    snapshot: Snapshot
    folder: Path
    stamps: Mapping[str, tuple[int, ...]]

    def changed(self) -> str:
        """A file that is not what was written, or a source that was not there; "" if all is well."""
        for name, stamp in self.stamps.items():
            content = self.snapshot.files[name]
            try:
                if _stamp(self.folder / name) != stamp:
                    return name
                if _read(self.folder / name, len(content)) != content:
                    return name
            except (OSError, Refused):
                return name
        try:
            found = [
                name for name, _ in _walk(self.folder) if PurePosixPath(name).suffix in SOURCES
            ]
        except (OSError, Refused):
            return self.folder.name
        return next((name for name in found if name not in self.stamps), "")


def read_snapshot(top: Path, part: str) -> Snapshot:
    """The files of a folder below `top`. Raises Refused, which names what is in the way.

    Links are refused wherever they stand from `top` on down: what they lead to is not what was handed
    in. Hidden files, compiled ones and notebooks are left out.
    """
    folder = top
    for step in ("", *PurePosixPath(part).parts):
        folder = folder / step
        if folder.is_symlink():
            raise Refused(_is_a_link(folder.relative_to(top.parent).as_posix()))
    files: dict[str, bytes] = {}
    room = MOST_BYTES
    try:
        for name, path in _walk(folder):
            if len(files) == MOST_FILES:
                raise Refused(f"{part} holds more than {MOST_FILES} files: hand in the part alone.")
            files[name] = _read(path, room)
            room -= len(files[name])
    except OSError as error:
        raise Refused(f"{part} cannot be read: {reason(error)}.") from None
    except _TooLarge:
        most = f"{MOST_BYTES // 2**20} MiB"
        raise Refused(f"{part} holds more than {most}: hand in the part alone.") from None
    return Snapshot(files)


class _TooLarge(Refused):
    """A file has more bytes than there is room for."""


def _walk(folder: Path, below: str = "") -> Iterator[tuple[str, Path]]:
    """(name, path) of every file. Raises Refused at a link, a pipe or a device."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.startswith(".") or entry.name in LEFT_OUT:
            continue
        name = f"{below}{entry.name}"
        if entry.is_symlink():
            raise Refused(_is_a_link(name))
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{name}/")
        elif not entry.is_file(follow_symlinks=False):
            raise Refused(f"{name} is neither a file nor a folder: leave it out.")
        elif not name.endswith(NOTEBOOK):
            yield name, Path(entry.path)


def _is_a_link(name: str) -> str:
    return f"{name} is a symbolic link: hand in the file or folder itself."


def _read(path: Path, most: int) -> bytes:
    """A file of at most so many bytes. Raises OSError or Refused."""
    fd = os.open(path, _OPEN)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Refused(f"{path.name} is neither a file nor a folder: leave it out.")
        content = file.read(most + 1)
    if len(content) > most:
        raise _TooLarge
    return content


def _stamp(file: Path) -> tuple[int, ...]:
    told = file.lstat()
    return told.st_mode, told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns


def seal(root: Path, folders: tuple[str, ...]) -> dict[str, str]:
    """Digests of the grader's own sources, which a submission could change for all that come after it.
    Not of what Python compiles from them: it writes that itself, whenever it likes."""
    files = (path for folder in folders for path in source_files(root / folder))
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def broken_seal(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The first file that was changed, removed or added; "" if there is none."""
    return min(
        (n for n in before.keys() | after.keys() if before.get(n) != after.get(n)), default=""
    )
