"""The life of the thread on which an engine lives: it loads, works, hangs or fails, and ends."""

import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING

from yaie.core.errors import EngineDeadError, plain
from yaie.engine.background.latencies import Latencies
from yaie.engine.background.messages import (
    Admit,
    Command,
    Ended,
    Failed,
    Lose,
    Ready,
    Recorded,
    Replied,
    Tell,
    Wake,
)
from yaie.engine.background.step_mode import StepMode
from yaie.engine.background.telemetry import Telemetry
from yaie.engine.background.watchdog import Watchdog, log_hang
from yaie.engine.info import EngineInfo
from yaie.engine.watching.publisher import Publisher
from yaie.models.tokenizer import Tokenizer
from yaie.system.thread_niceness import step_back

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine

logger = logging.getLogger(__name__)

LOSS_SECONDS = 3.0
"""How long the thread may take to notice that a rank is gone, before it counts as hanging."""

Load = Callable[[], "LLMEngine"]


class ThreadLife(ABC):
    """Runs an engine until it is stopped or fails.

    engine: None until it is loaded; only this thread may change it.
    changed: set when the telemetry has changed, or nothing more will come; a waiter clears it.
    is_hung: whether the watchdog has given it up.
    """

    def __init__(self, load: Load, step_timeout: float = 0.0, *, step_mode: bool = False) -> None:
        """`load` runs on the thread, because torch keeps settings for each thread. step_timeout: in
        seconds, after which a step is given up and the engine with it; 0 for no limit. step_mode: no
        step is computed until `Pace` says so."""
        self.engine: LLMEngine | None = None
        self.telemetry = Telemetry()
        self.thread = threading.Thread(target=self._run, name="yaie-engine", daemon=True)
        self.is_hung = False
        self.changed = threading.Event()
        self._load = load
        self._watchdog = Watchdog(step_timeout)
        self._inbox: SimpleQueue[Command] = SimpleQueue()
        # Compiling a grammar may take half a second, for which no step should wait.
        self._checker = ThreadPoolExecutor(1, "yaie-grammars", step_back)
        self._wanted: set[int] = set()  # submissions and calls that have not begun
        self._running = True
        self._step_mode = step_mode
        self._has_ended = False
        self._is_over = threading.Event()  # no step is begun any more

    # --- for its driver: see `Driver` ---

    @property
    def is_alive(self) -> bool:
        return self.thread.is_alive()

    def start(self, tell: Tell) -> None:
        self._tell = tell
        self._watchdog.watch(self._give_up)
        self.thread.start()

    def tokenizer(self, info: EngineInfo) -> Tokenizer:
        assert self.engine is not None
        tokenizer: Tokenizer = self.engine.tokenizer
        return tokenizer

    def close(self) -> None:
        self._checker.shutdown(wait=False, cancel_futures=True)
        if self._has_ended and not self.is_hung:
            # A thread that is still taking itself down while the interpreter does aborts the process.
            self.thread.join()

    # --- on other threads ---

    def _check(self, command: Admit) -> None:
        """Compile the grammar of a submission, then queue it."""
        assert self.engine is not None
        assert command.params is not None
        try:
            if command.number in self._wanted:
                self.engine.check_params(command.params)
        except BaseException as error:  # noqa: BLE001, the caller gets it
            self._wanted.discard(command.number)
            self._tell(Replied(command.number, error=plain(error)))
        else:
            self._inbox.put(command)
        self.telemetry.deferred.pop(command.number, None)
        self.changed.set()

    def _give_up(self) -> None:
        log_hang(self.thread, self._watchdog.limit)
        why = f"a step took more than {self._watchdog.limit:g} seconds"
        self._hangs(EngineDeadError(why))

    def _lost(self, error: EngineDeadError) -> None:
        """A rank is gone. A step that waits for it should fail by itself: on a GPU it may not."""
        self._inbox.put(Lose(error))
        if not self._is_over.wait(LOSS_SECONDS):
            self._hangs(error)

    def _hangs(self, error: EngineDeadError) -> None:
        """It hangs in a step. Should that ever end, the thread does too."""
        self.is_hung, self._running = True, False
        self._tell(Failed(error))
        self._tell(Ended())
        self.changed.set()

    # --- on the thread ---

    @abstractmethod
    def _work(self, engine: "LLMEngine", latencies: Latencies) -> None:
        """Obey and take steps until it is stopped."""

    def _run(self) -> None:
        try:
            self.engine = engine = self._load()
            latencies = Latencies(engine, self.changed)
            self.telemetry = latencies.telemetry
            self._publisher = Publisher(engine, self._record, step_mode=self._step_mode)
            self._steps = StepMode(self._publisher, is_on=self._step_mode)
            engine.on_loss(self._lost)
            engine.on_wake(lambda: self._inbox.put(Wake()))
            self._tell(Ready(engine.info))
            self._work(engine, latencies)
        except BaseException as error:  # a learner's part may even raise SystemExit
            if self.engine is not None:  # what loading raises, `AsyncEngine.start` raises
                logger.critical("the engine failed and is dead", exc_info=True)
            self._tell(Failed(error))
        self._end()

    def _record(self, lines: list[bytes], number: int | None) -> None:
        self._tell(Recorded(lines, number))

    def _end(self) -> None:
        self._is_over.set()
        self._watchdog.stop()
        if self.engine is not None:
            with contextlib.suppress(Exception):  # after a failure, it may be in any state
                self.engine.close()
        self._has_ended = True
        if not self.is_hung:  # told already
            self._tell(Ended())
        self.changed.set()
