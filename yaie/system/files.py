"""Files that are written whole or not at all, and sentences for where nothing can be written."""

import errno
import os
import stat
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from yaie.core.errors import ConfigError

NO_PLACE = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
        errno.EEXIST,
    }
)
"""Error numbers that say that the place cannot be written to, and not that the program is wrong."""
_PROBE_BYTES = 4096
"""A full disk often has room for an empty file."""


def user_cache(kind: str) -> Path:
    """Where YAIE keeps what it can make again: $YAIE_CACHE, else ~/.cache/yaie, and in it `kind`."""
    given = os.environ.get("YAIE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(given) if given else Path(base) / "yaie") / kind


def write_whole(path: Path, text: str) -> None:
    """Write a file in UTF-8. It appears in one piece; if that fails, what lay there before still does.

    A link is followed. A device or a pipe (/dev/stdout) is written to as it is. What is no character
    (a byte of a file's name that was not UTF-8) is a ?.
    Raises OSError, whose `filename` is the path.
    """
    try:
        if _is_special(path):
            _write(path, text)
            return
        target = Path(os.path.realpath(path))
        # A process may have two threads that write the same file.
        draft = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            _write(draft, text)
            if target.exists():
                draft.chmod(stat.S_IMODE(target.stat().st_mode))
            draft.replace(target)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # not the draft's
        raise


def _write(path: Path, text: str) -> None:
    """The one place in which text goes to a disk, where tests have it run full."""
    path.write_text(text, "utf-8", "replace")


def refuse_unwritable(path: Path, param: str) -> None:
    """Before work that takes minutes: raise ConfigError if a file could not be written there.

    param: the setting that names the file.
    """
    try:
        if _is_special(path):
            return
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder", str(path))
        with tempfile.TemporaryFile(dir=os.path.dirname(os.path.realpath(path))) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        raise ConfigError(cannot_write(path, error), param=param) from None


def cannot_write(path: Path | str, error: OSError) -> str:
    """The beginning of a sentence: what cannot be written, and why."""
    return f"cannot write {path}: {reason(error)}"


def reason(error: OSError) -> str:
    """Why, in the system's words. An error of `shutil.copytree` is a list of others."""
    if error.strerror:
        return error.strerror
    listed = error.args[0] if error.args else ""
    return str(listed[0][2]) if isinstance(listed, list) and listed else str(error)


def _is_special(path: Path) -> bool:
    """Whether something lies there that is neither a file nor a folder."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
