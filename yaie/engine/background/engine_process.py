"""The engine in a process of its own: HTTP, tokenization and streaming then leave it all of its GIL.

    this process                               the engine's (`engine_child.py`)
    ------------                               --------------------------------
    AsyncEngine -> outbox -> writer thread --- commands ---> reader thread -> EngineThread
    AsyncEngine <- tell <--- reader thread <-- events ------ EngineThread
                             telemetry <------ Telemetry --- main thread, at most 4 times a second

Both directions share one pipe, and a message is pickled once: a step's outputs are one message. Neither
process outlives the other: a pipe at its end says to each that the other is gone.
"""

import atexit
import contextlib
import logging
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from yaie.core.errors import EngineDeadError
from yaie.engine.background.engine_child import run_engine
from yaie.engine.background.messages import Command, Ended, Failed, Tell
from yaie.engine.background.telemetry import Telemetry
from yaie.engine.background.thread_life import Load
from yaie.engine.info import EngineInfo
from yaie.models.tokenizer import Tokenizer
from yaie.system.child import how_it_ended, signals_held

logger = logging.getLogger(__name__)

EXIT_SECONDS = 5.0
"""How long a process may take to exit once its engine has ended."""


class EngineProcess:
    """Runs an engine in a process that it starts. See `Driver`."""

    def __init__(
        self,
        load: Load,
        step_timeout: float = 0.0,
        *,
        prepare: Callable[[], None] | None = None,
        load_tokenizer: Callable[[Path, str], Tokenizer] | None = None,
    ) -> None:
        """load: called in that process, where it is imported by name: a function of a module, or a
        `functools.partial` of one. prepare: called before it, likewise; for logging.
        step_timeout: as for EngineThread. load_tokenizer: for this process; `Tokenizer.load` by default.
        """
        self._load_tokenizer = load_tokenizer or Tokenizer.load
        self.telemetry = Telemetry()
        self._pipe, self._far_end = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("spawn").Process(
            target=run_engine,
            args=(self._far_end, load, step_timeout, prepare),
            name="yaie-engine",
        )
        self._reader = threading.Thread(target=self._read, name="yaie-events", daemon=True)
        self._writer = threading.Thread(target=self._write, name="yaie-commands", daemon=True)
        self._outbox: SimpleQueue[Command | None] = SimpleQueue()
        self._is_closing = False

    # --- see `Driver` ---

    @property
    def is_alive(self) -> bool:
        return self._reader.is_alive()

    def start(self, tell: Tell) -> None:
        self._tell = tell
        with signals_held():
            self.process.start()
        atexit.register(self.process.kill)  # or multiprocessing waits for it at exit
        self._far_end.close()
        self._reader.start()
        self._writer.start()

    def send(self, command: Command) -> None:
        self._outbox.put(command)

    def tokenizer(self, info: EngineInfo) -> Tokenizer:
        return self._load_tokenizer(Path(info.model_folder), info.model_type)

    def close(self) -> None:
        self._outbox.put(None)
        if self._reader.is_alive():
            self._is_closing = True
            self.process.kill()
            self._reader.join()

    # --- on threads of their own ---

    def _write(self) -> None:
        """A full pipe makes its writer wait, which the event loop must not."""
        with contextlib.suppress(OSError):  # the process is gone, as `_read` finds out
            while (command := self._outbox.get()) is not None:
                self._pipe.send_bytes(pickle.dumps(command, pickle.HIGHEST_PROTOCOL))

    def _read(self) -> None:
        has_told_why = False
        with contextlib.suppress(EOFError, OSError):
            while not isinstance(message := pickle.loads(self._pipe.recv_bytes()), Ended):
                if isinstance(message, Telemetry):
                    self.telemetry = message
                else:
                    has_told_why |= isinstance(message, Failed)
                    self._tell(message)
            has_told_why = True
        code = self._exit_code()
        if not (has_told_why or self._is_closing):
            logger.critical("the engine's process is gone: it %s", how_it_ended(code))
            self._tell(Failed(EngineDeadError(f"the engine's process {how_it_ended(code)}")))
        self._tell(Ended())

    def _exit_code(self) -> int:
        """Waits for the process, which is at its end."""
        self.process.join(EXIT_SECONDS)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        atexit.unregister(self.process.kill)
        return self.process.exitcode or 0
