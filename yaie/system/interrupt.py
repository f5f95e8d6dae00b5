"""Ctrl-C ends a command: within two seconds, with status 130 and one line, whatever it is doing.

Python's own way is not enough for that. A KeyboardInterrupt in the middle of an import may be caught by
a library's C code, which then goes on without the half that was being imported; what is left of it may
look like a broken model. And the end of an interpreter that holds torch takes seconds.

So a command runs in `Interruptible`. The first SIGINT raises KeyboardInterrupt, for every `finally` on
the way to clean up, and silences what complains meanwhile; GRACE_SECONDS later the process ends, even if
someone has caught it. The second one ends it at once. Within an import nothing is raised, for C++ that
imports ends the process with a message of its own: it is waited for, IMPORT_SECONDS at most.

Until this module is imported a Ctrl-C shows a traceback. So it imports little, and so does what is
imported before it: `typing` alone would take 10 ms.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import NoReturn

STATUS = 128 + signal.SIGINT
GRACE_SECONDS = 1.2
IMPORT_SECONDS = 0.4
IMPORTING = "<frozen importlib._bootstrap>"
CHILD = "YAIE_CHILD"
"""The variable of a command that another one runs on its terminal, and speaks for."""


class _State:
    """Of this process. has_come: a SIGINT, of num_calls; is_late: it waits for an import; is_silent:
    nothing is to be said of it; first: held by the thread that has said it."""

    has_come = is_late = False
    num_calls = 0
    is_silent = CHILD in os.environ
    first = threading.Lock()


class Interruptible:
    """A block in which a SIGINT ends the process. For the outermost function of a command."""

    def __enter__(self) -> None:
        end_on_interrupt()

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if _State.has_come:
            end_interrupted()


def end_on_interrupt() -> None:
    """The same until the end of the process, for one whose outermost function is not ours."""
    # A shell starts what runs in the background deaf to Ctrl-C, and that is to stay so.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)


def say_stopped() -> None:
    """That this process has stopped, once, whichever of its threads is the first to know, unless another
    process says so."""
    if not _State.is_silent and _State.first.acquire(blocking=False):
        # A progress bar may have hidden the cursor.
        shown = "\x1b[?25h" if os.isatty(2) and os.environ.get("TERM") != "dumb" else ""
        os.write(2, f"{shown}Stopped.\n".encode())


def is_interrupted() -> bool:
    """Whether this process is being ended by Ctrl-C: what fails from then on is no failure."""
    return _State.has_come


def leave_message_to_others() -> None:
    """Parent or child has been interrupted on the same terminal, and says so."""
    _State.is_silent = True


class OwnInterrupts:
    """A block that heeds KeyboardInterrupt itself: in a chat an answer ends, not the process."""

    def __enter__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is _interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *error: object) -> None:
        if self._before is _interrupt:
            signal.signal(signal.SIGINT, _interrupt)


def end_interrupted() -> NoReturn:
    """Leave nothing running and end, without the interpreter's own end, which takes seconds."""
    try:
        if process := sys.modules.get("multiprocessing.process"):
            for child in process.active_children():
                child.kill()
        sys.stdout.flush()
        say_stopped()
    finally:  # whatever is closed, half imported or in the middle of a write
        os._exit(STATUS)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _State.has_come and not _State.is_late:
        end_interrupted()
    is_first, _State.has_come = not _State.has_come, True
    _State.is_late = _is_importing(frame)
    _State.num_calls += 1
    if is_first:
        _be_silent()
        threading.Thread(target=_end_soon, name="yaie-interrupt", daemon=True).start()
    if not _State.is_late:
        raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != IMPORTING:
        frame = frame.f_back
    return frame is not None


def _be_silent() -> None:
    """What is torn out of its work complains: destructors, threads, libraries whose import failed."""
    sys.excepthook = lambda *_: end_interrupted()
    sys.unraisablehook = lambda _: None
    threading.excepthook = lambda _: None
    if logging := sys.modules.get("logging"):
        logging.disable()
    if warnings := sys.modules.get("warnings"):
        warnings.simplefilter("ignore")


def _end_soon() -> None:
    main = threading.main_thread().ident
    assert main is not None
    late = time.monotonic() + IMPORT_SECONDS
    told = 0
    while _State.is_late and time.monotonic() < late:
        time.sleep(0.01)
        has_heard = told < _State.num_calls
        if has_heard and _State.is_late and not _is_importing(sys._current_frames().get(main)):
            told = _State.num_calls  # once: what comes twice ends it at once
            signal.pthread_kill(main, signal.SIGINT)
    if not _State.is_late:
        time.sleep(GRACE_SECONDS)
    end_interrupted()
