"""What runs in the engine's own process: an EngineThread at the end of a pipe.

Started by `EngineProcess`. The main thread sends telemetry now and then, a reader hands commands to the
engine's thread, and that writes its events itself.
"""

import logging
import os
import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

from yaie.core.errors import YaieError
from yaie.engine.background.engine_thread import EngineThread
from yaie.engine.background.messages import Ended, Event, Failed, Ready, Replied
from yaie.engine.background.telemetry import Telemetry
from yaie.engine.background.thread_life import Load
from yaie.system.child import end_with_parent, leave_signals_to_parent
from yaie.system.exit import exit_now

logger = logging.getLogger(__name__)

SNAPSHOT_SECONDS = 0.25
"""Between two looks of the other process at what the engine has done, at least."""


def run_engine(
    pipe: "Connection[bytes, bytes]",
    load: Load,
    step_timeout: float,
    prepare: Callable[[], None] | None,
) -> None:
    """The life of this process: until it is told to stop, its engine is dead, or its parent is gone."""
    leave_signals_to_parent()
    # The thread that started it is the event loop's, without which the engine is of no use.
    end_with_parent()
    if prepare is not None:
        prepare()
    engine = EngineThread(load, step_timeout)
    wire = _Wire(pipe, engine)
    threading.Thread(target=wire.read, name="yaie-pipe", daemon=True).start()
    engine.start(wire.tell)
    while not wire.has_ended.is_set():
        engine.changed.wait()
        engine.changed.clear()
        wire.send(engine.telemetry)
        wire.has_ended.wait(SNAPSHOT_SECONDS)
    engine.close()
    exit_now(1 if engine.is_alive else 0)  # alive: it hangs


class _Wire:
    """This end of the pipe."""

    def __init__(self, pipe: "Connection[bytes, bytes]", engine: EngineThread) -> None:
        self.has_ended = threading.Event()
        self._pipe = pipe
        self._engine = engine
        self._is_ready = False
        self._lock = threading.Lock()

    def read(self) -> None:
        """Hand over commands. At the end of the pipe the parent is gone, and so is every caller."""
        with suppress(EOFError, OSError):
            while True:
                self._engine.send(pickle.loads(self._pipe.recv_bytes()))
        os._exit(1)

    def tell(self, event: Event) -> None:
        """Send an event. Errors lose their traceback on the way, which is then logged here."""
        match event:
            case Ready():
                self._is_ready = True
                self.send(self._engine.telemetry)  # there from the first moment on
            case Replied(number, error=Exception() as error):
                event = Replied(number, error=_portable(error, "a call of the engine failed"))
            case Failed(error):
                unlogged = "" if self._is_ready else "the engine could not be loaded"
                event = Failed(_portable(error, unlogged))
        self.send(event)
        if isinstance(event, Ended):
            self.has_ended.set()

    def send(self, message: Event | Telemetry) -> None:
        """Send one message at a time. Called on several threads."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._lock, suppress(OSError):  # see `read`
            self._pipe.send_bytes(data)


def _portable(error: BaseException, unlogged: str) -> Exception:
    """The error if it is one of ours, with type, message and parameter; otherwise one that any process
    can read. unlogged: what to log with its traceback, which does not travel."""
    if isinstance(error, YaieError) and type(error).__module__ == YaieError.__module__:
        return error
    if unlogged:
        logger.error(unlogged, exc_info=error)
    return RuntimeError(f"{type(error).__name__}: {error}")
