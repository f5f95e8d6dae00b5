"""A disk that has run full, or is read-only, at the one place where text is written to files."""

import errno
import os
from pathlib import Path

import pytest

from yaie.system import files

LACKS = [errno.ENOSPC, errno.EROFS, errno.EACCES]
"""A full disk, a read-only one, and somebody else's folder. These names are the tests' parameters."""


def nothing_fits(monkeypatch: pytest.MonkeyPatch, number: int = errno.ENOSPC) -> None:
    """From now on half of a text is written (none where nothing may be), and then comes the error."""

    def write(path: Path, text: str) -> None:
        if number == errno.ENOSPC:
            path.write_text(text[: len(text) // 2])
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(files, "_write", write)


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file, hidden or not, with its content."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}
