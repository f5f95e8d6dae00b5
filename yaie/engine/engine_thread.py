"""The thread on which an engine lives, and the inbox through which it is told what to do.

Made by `AsyncEngine`, whose methods it calls back on the event loop.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestOutput
from yaie.engine.request_stream import RequestStream
from yaie.engine.telemetry import Telemetry
from yaie.engine.watchdog import Watchdog

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine

logger = logging.getLogger("yaie.engine.async_engine")

T = TypeVar("T")
Outputs = list[tuple[RequestStream, RequestOutput]]


class Listener(Protocol):
    """What the thread tells the event loop."""

    def on_ready(self) -> None:
        """The model is loaded."""

    def on_rejected(self, stream: RequestStream, error: Exception) -> None:
        """A submission cannot be admitted."""

    def on_outputs(self, outputs: Outputs) -> None:
        """A step has yielded these."""

    def on_failure(self, error: BaseException) -> None:
        """Loading or a step has raised."""

    def on_ended(self) -> None:
        """The thread is over."""


class EngineThread:
    """Runs an engine until it is stopped or fails. Commands are obeyed in order, between two steps.

    engine: None until it is loaded. telemetry: what it has done.
    """

    def __init__(
        self, load: "Callable[[], LLMEngine]", watchdog: Watchdog, listener: Listener
    ) -> None:
        self.engine: LLMEngine | None = None
        self.telemetry = Telemetry()
        self.thread = threading.Thread(target=self._run, name="yaie-engine", daemon=True)
        self._load = load
        self._watchdog = watchdog
        self._listener = listener
        self._inbox: SimpleQueue[Callable[[LLMEngine], None]] = SimpleQueue()
        self._running = True
        self._owners: dict[str, RequestStream] = {}
        self._live: dict[RequestStream, dict[str, Request]] = {}

    # --- for the event loop ---

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Load the engine and run it."""
        self._loop = loop
        self.thread.start()

    @property
    def num_commands(self) -> int:
        """Commands that wait for the step in progress."""
        return self._inbox.qsize()

    def send(self, command: "Callable[[LLMEngine], None]") -> None:
        """Have this done between two steps."""
        self._inbox.put(command)

    def admit(
        self,
        stream: RequestStream,
        prompts: Sequence[str | list[int]],
        params: SamplingParams | None,
        priority: int,
    ) -> None:
        """Queue the prompts of a submission, all or none; tells the stream or `on_rejected`."""
        self.send(lambda engine: self._admit(engine, stream, prompts, params, priority))

    def abort(self, stream: RequestStream) -> None:
        """End what still runs of a submission."""
        self.send(lambda engine: self._abort(engine, stream))

    def ask(self, function: "Callable[[LLMEngine], T]") -> "asyncio.Future[T]":
        """What `function` returns of the engine, or raises, between two steps; unless it is cancelled
        before."""
        answer: asyncio.Future[T] = self._loop.create_future()

        def work(engine: "LLMEngine") -> None:
            if answer.done():
                return
            try:
                result = function(engine)
            except Exception as error:  # noqa: BLE001, the caller gets it
                self.tell(settle, answer.set_exception, error)
            else:
                self.tell(settle, answer.set_result, result)

        def settle(how: Callable[..., None], what: Any) -> None:
            if not answer.done():
                how(what)

        self.send(work)
        return answer

    def stop(self) -> None:
        """Abort everything and end."""
        self.send(self._stop)

    def abandon(self) -> None:
        """Give it up: it hangs in a step. Should that ever end, the thread does too."""
        self._running = False

    def tell(self, callback: Callable[..., None], *args: Any) -> None:
        """Call this on the event loop."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(callback, *args)

    # --- on the thread ---

    # ANCHOR: run
    def _run(self) -> None:
        try:
            self.engine = engine = self._load()
            self.telemetry = Telemetry(engine)
            self.tell(self._listener.on_ready)
            while self._running:
                self._obey(engine, wait=not engine.has_work)
                if self._running and engine.has_work:
                    self._publish(self._watchdog.timed(engine.step))
        except BaseException as error:  # a learner's part may even raise SystemExit
            if self.engine is not None:  # what loading raises, `AsyncEngine.start` raises
                logger.critical("the engine failed and is dead", exc_info=True)
            self.tell(self._listener.on_failure, error)
        self.tell(self._listener.on_ended)

    def _obey(self, engine: "LLMEngine", wait: bool) -> None:
        if wait:
            self._inbox.get()(engine)
        while not self._inbox.empty():  # nobody else takes from it
            self._inbox.get()(engine)

    # ANCHOR_END: run

    def _admit(
        self,
        engine: "LLMEngine",
        stream: RequestStream,
        prompts: Sequence[str | list[int]],
        params: SamplingParams | None,
        priority: int,
    ) -> None:
        if stream.is_over:  # it has waited too long
            return
        requests: list[Request] = []
        try:
            for prompt in prompts:
                requests += engine.add_request(prompt, params, priority=priority)
        except Exception as error:  # noqa: BLE001, the caller gets it
            for request in requests:
                engine.abort(request.request_id)
            self.tell(self._listener.on_rejected, stream, error)
        else:
            self._live[stream] = {request.request_id: request for request in requests}
            self._owners |= dict.fromkeys(self._live[stream], stream)
            self.telemetry.refresh(engine)
            self.tell(stream.accept, requests)

    def _publish(self, outputs: list[RequestOutput]) -> None:
        assert self.engine is not None
        self.telemetry.stepped(self.engine, outputs)
        batch = []
        for output in outputs:
            owner = self._owners.get(output.request.request_id)
            if owner is None:  # aborted, and the part in use has not noticed
                continue
            batch.append((owner, output))
            if output.finish_reason is not None:
                self._forget(owner, output.request.request_id)
        if batch:
            self.tell(self._listener.on_outputs, batch)

    def _forget(self, owner: RequestStream, request_id: str) -> None:
        del self._owners[request_id], self._live[owner][request_id]
        if not self._live[owner]:
            del self._live[owner]

    def _abort(self, engine: "LLMEngine", stream: RequestStream) -> None:
        for request_id, request in self._live.pop(stream, {}).items():
            del self._owners[request_id]
            self.telemetry.aborted(request)
            engine.abort(request_id)
        self.telemetry.refresh(engine)

    def _stop(self, engine: "LLMEngine") -> None:
        self._running = False
        for stream in list(self._live):
            self._abort(engine, stream)
