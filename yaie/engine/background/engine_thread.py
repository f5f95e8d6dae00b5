"""The thread on which an engine lives, and the inbox through which it is told what to do.

All that touches the engine's state happens here, between two steps. `AsyncEngine` drives it from its
event loop, or `EngineProcess` does, in the main thread of a process of its own.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING

from yaie.core.errors import EngineDeadError, plain
from yaie.core.output import RequestOutput, Submitted
from yaie.core.request import Request
from yaie.engine.background.latencies import Latencies
from yaie.engine.background.messages import (
    Admit,
    Call,
    Command,
    Ended,
    Failed,
    Lose,
    Pace,
    Ready,
    Recorded,
    Replied,
    Stepped,
    Stop,
    Tell,
    Unwatch,
    Wake,
    Watch,
    Withdraw,
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


class EngineThread:
    """Runs an engine until it is stopped or fails. Commands are obeyed in order, between two steps.

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
        self._owners: dict[str, int] = {}  # the submission of each request that is alive, and
        self._live: dict[int, dict[str, Request]] = {}  # its requests that are

    # --- for its driver: see `Driver` ---

    @property
    def is_alive(self) -> bool:
        return self.thread.is_alive()

    def start(self, tell: Tell) -> None:
        self._tell = tell
        self._watchdog.watch(self._give_up)
        self.thread.start()

    def send(self, command: Command) -> None:
        match command:
            case Admit(number, params=params):
                self._wanted.add(number)
                if params is not None and params.constraint is not None:
                    self.telemetry.deferred[number] = len(command.prompts) * params.n
                    self.changed.set()
                    self._checker.submit(self._check, command)
                    return
            case Call(number):
                self._wanted.add(number)
            case Withdraw(number):  # at once, though the thread is busy and others wait before it
                self._wanted.discard(number)
                self.telemetry.deferred.pop(number, None)
        self._inbox.put(command)

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

    # ANCHOR: run
    def _run(self) -> None:
        try:
            self.engine = engine = self._load()
            latencies = Latencies(engine, self.changed)
            self.telemetry = latencies.telemetry
            self._publisher = Publisher(engine, self._record, step_mode=self._step_mode)
            self._steps = steps = StepMode(self._publisher, is_on=self._step_mode)
            engine.on_loss(self._lost)
            engine.on_wake(lambda: self._inbox.put(Wake()))
            self._tell(Ready(engine.info))
            works = False
            while self._running:
                if not works or not self._inbox.empty():
                    self._obey(engine, latencies, wait=not works)
                works = self._running and steps.left != 0 and engine.has_work
                if works:
                    self._watchdog.began = time.monotonic()
                    outputs = engine.step()
                    self._watchdog.began = None
                    self._publish(engine, latencies, outputs)
        except BaseException as error:  # a learner's part may even raise SystemExit
            if self.engine is not None:  # what loading raises, `AsyncEngine.start` raises
                logger.critical("the engine failed and is dead", exc_info=True)
            self._tell(Failed(error))
        self._end()

    def _obey(self, engine: "LLMEngine", latencies: Latencies, wait: bool) -> None:
        if wait:
            latencies.rest()
            if self._publisher.is_on:
                self._publisher.idle()
        while self._running and (wait or not self._inbox.empty()):  # no other thread takes from it
            self._do(self._inbox.get(), engine, latencies)
            wait = False

    # ANCHOR_END: run

    def _do(self, command: Command, engine: "LLMEngine", latencies: Latencies) -> None:
        match command:
            case Stop():
                self._running = False
                for number in list(self._live):
                    self._abort(number, engine, latencies)
            case Wake():
                pass  # `has_work` is true now
            case Lose(error):
                raise error
            case Withdraw(number):
                self._abort(number, engine, latencies)
            case Watch() | Unwatch() | Pace():
                alive = (request for live in self._live.values() for request in live.values())
                self._steps.obey(command, alive, has_work=engine.has_work)
            case Admit(number) | Call(number) if number not in self._wanted:
                self._tell(Replied(number))
            case Admit(number):
                self._wanted.discard(number)
                self._admit(command, engine, latencies)
            case Call(number, name, args):
                self._wanted.discard(number)
                try:
                    self._tell(Replied(number, getattr(engine, name)(*args)))
                except BaseException as error:  # noqa: BLE001, the caller gets it
                    self._tell(Replied(number, error=plain(error)))

    def _admit(self, command: Admit, engine: "LLMEngine", latencies: Latencies) -> None:
        requests: list[Request] = []
        try:
            for prompt in command.prompts:
                requests += engine.add_request(prompt, command.params, priority=command.priority)
        except BaseException as error:  # noqa: BLE001, the caller gets it
            for request in requests:
                engine.abort(request.request_id)
            self._tell(Replied(command.number, error=plain(error)))
        else:
            alive = {request.request_id: request for request in requests}
            self._live[command.number] = alive
            self._owners |= dict.fromkeys(alive, command.number)
            latencies.refresh()
            if self._publisher.is_on:
                self._publisher.arrived(requests)
            self._tell(Replied(command.number, [Submitted.of(request) for request in requests]))

    def _publish(
        self, engine: "LLMEngine", latencies: Latencies, outputs: list[RequestOutput]
    ) -> None:
        wanted = [
            (self._live[owner][output.request_id], output)
            for output in outputs  # without an owner: aborted, and the part in use has not noticed
            if (owner := self._owners.get(output.request_id)) is not None
        ]
        latencies.stepped(wanted)
        if self._publisher.is_on:
            self._publisher.stepped(outputs)
        if self._steps.left:
            self._steps.left -= 1
        started = engine.take_started()
        if wanted or started:
            self._tell(Stepped([output for _, output in wanted], started))
        for _, output in wanted:
            if output.finish_reason is not None:
                self._forget(output.request_id)

    def _record(self, lines: list[bytes], number: int | None) -> None:
        self._tell(Recorded(lines, number))

    def _forget(self, request_id: str) -> None:
        owner = self._owners.pop(request_id)
        del self._live[owner][request_id]
        if not self._live[owner]:
            del self._live[owner]

    def _abort(self, number: int, engine: "LLMEngine", latencies: Latencies) -> None:
        for request_id, request in self._live.pop(number, {}).items():
            del self._owners[request_id]
            latencies.aborted(request)
            engine.abort(request_id)
        latencies.refresh()

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
