"""What a program prints, wherever that goes: a closed pipe, a full disk, a terminal that knows ASCII.

`sound_streams` goes around a program's `main`. Then
- standard output into a closed pipe (`| head -1`) ends the program without a word, with status 1;
- into a full disk, with a sentence and status 2, as every error that is no bug;
- what standard error cannot take is dropped, and the work goes on;
- a stream that was closed before the start (`>&-`) counts as /dev/null;
- a character that the terminal's encoding lacks is a ?.

`control_keys_unseen` keeps a Ctrl-C from being written into an answer.
"""

import codecs
import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")

OUTPUT = "<stdout>"
"""The file's name in an error that a write to standard output meets, as Python itself calls it."""
GONE, FAILED = 1, 2
NO_BUG = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
"""Errors that are the machine's, wherever they come from."""


def sound_streams(main: Callable[P, Result]) -> Callable[P, Result]:
    """Decorate what a program begins with."""

    @wraps(main)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> Result:
        _mend_streams()
        try:
            try:
                return main(*args, **kwargs)
            finally:
                sys.stdout.flush()
        except OSError as error:
            status = _status(error)
            if status is None:
                raise
        _drop_output()
        raise SystemExit(status)

    return guarded


@contextmanager
def control_keys_unseen() -> Iterator[None]:
    """Meanwhile the terminal does not write ^C where Ctrl-C is pressed. Afterwards it is as it was, come
    what may. Does nothing where standard input is no terminal, or the system has no such terminals."""
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error):
        yield
        return
    local = 3  # the place of the local modes among the attributes
    quiet = [*before]
    quiet[local] &= ~termios.ECHOCTL
    termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal has been closed
            termios.tcsetattr(descriptor, termios.TCSANOW, before)


def _status(error: OSError) -> int | None:
    """How to end for this error, once it is told; None if it is neither a stream's nor a full disk's."""
    if error.filename == OUTPUT and isinstance(error, BrokenPipeError):
        return GONE
    if error.filename == OUTPUT:
        print(f"Error: the output could not be written: {error.strerror}", file=sys.stderr)
    elif error.errno in NO_BUG:
        what = error.filename or "a file"
        print(f"Error: cannot write {what}: {error.strerror}", file=sys.stderr)
    else:
        return None
    return FAILED


def _drop_output() -> None:
    """Nothing more is written: the interpreter flushes at its end, and would fail again."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # a test's stream
        return
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, descriptor)
    os.close(sink)


class _Output(io.FileIO):
    """Standard output, whose errors say that they are its own."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = OUTPUT
            raise


class _Messages(io.FileIO):
    """Standard error. What can be said nowhere is not said."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _mend_streams() -> None:
    """Streams of the process alone: those that a test has put there stay."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, _nowhere(descriptor))
    stdin, stdout, stderr = sys.stdin, sys.stdout, sys.stderr
    if isinstance(stdin, io.TextIOWrapper):  # a byte that is no text is for the command to refuse
        is_ascii = codecs.lookup(stdin.encoding).name == "ascii"
        encoding = "utf-8" if is_ascii else stdin.encoding
        stdin.reconfigure(encoding=encoding, errors="surrogateescape")
    if isinstance(stdout, io.TextIOWrapper) and _is_plain(stdout):
        sys.stdout = _rebuilt(stdout, _Output, "replace")
    if isinstance(stderr, io.TextIOWrapper) and _is_plain(stderr):
        sys.stderr = _rebuilt(stderr, _Messages, "backslashreplace")


def _is_plain(stream: io.TextIOWrapper) -> bool:
    """Whether it is as the interpreter made it, over a descriptor (and no console of Windows)."""
    return type(getattr(stream.buffer, "raw", stream.buffer)) is io.FileIO


def _rebuilt(stream: io.TextIOWrapper, kind: type[io.FileIO], errors: str) -> io.TextIOWrapper:
    """The same text stream over a file of this kind."""
    with suppress(OSError):
        stream.flush()
    raw = kind(stream.fileno(), "w", closefd=False)
    raw.name = stream.name
    is_buffered = hasattr(stream.buffer, "raw")  # python -u has no buffer
    buffer: Any = io.BufferedWriter(raw) if is_buffered else raw
    return io.TextIOWrapper(
        buffer,
        encoding=stream.encoding,
        errors=errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _nowhere(descriptor: int) -> io.TextIOWrapper:
    """A stream to /dev/null, at this descriptor: otherwise the next file that is opened would get it,
    and what a library writes to its standard error with it."""
    sink = os.open(os.devnull, os.O_RDWR)
    if sink != descriptor and not _is_open(descriptor):
        os.dup2(sink, descriptor)
        os.close(sink)
        sink = descriptor
    os.set_inheritable(sink, True)
    return open(sink, "w" if descriptor else "r", encoding="utf-8", closefd=False)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
