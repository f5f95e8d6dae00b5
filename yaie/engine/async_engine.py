"""The engine for asynchronous callers: one background thread steps it, coroutines await its outputs.

Used by the HTTP server and by `yaie chat`. All that touches the engine's state happens on its thread:

    event loop                                 engine thread, over and over
    ----------                                 ----------------------------
    submit, aclose --- inbox (a queue) --->    obey the commands: admit, abort, stop
                                               step()
    RequestStream <--- one callback a step --- publish its outputs

The thread sleeps in the inbox when nothing is left to generate, so an idle engine costs nothing; the
event loop never waits for a step. No lock is needed: `_owners` belongs to the engine thread, the rest
to the loop. One event loop is enough for all callers in a process, so an AsyncEngine serves the one
that it was started on and no other.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from yaie.core.compat import StrEnum
from yaie.core.errors import EngineDeadError, EngineUnavailableError, YaieError
from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestOutput
from yaie.engine.request_stream import RequestStream

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine

logger = logging.getLogger(__name__)

Prompt = str | list[int]

STOP_SECONDS = 5.0
"""How long `shutdown` waits for the step in progress; nothing can interrupt a forward pass."""


class EngineState(StrEnum):
    """LOADING -> READY -> DRAINING; a failure leads to DEAD from anywhere."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


class AsyncEngine:
    """Owns an LLMEngine and the thread that runs it."""

    def __init__(self, load: "Callable[[], LLMEngine]") -> None:
        """`load` runs on the engine's thread, because torch keeps settings for each thread."""
        self.state = EngineState.LOADING
        self.failure: BaseException | None = None
        self._load = load
        self._engine: LLMEngine | None = None
        self._thread = threading.Thread(target=self._run, name="yaie-engine", daemon=True)
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._running = True
        self._owners: dict[str, RequestStream] = {}
        self._streams: set[RequestStream] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._ended = asyncio.Event()
        # One thread: a tokenizer refuses to be used by two at a time ("Already borrowed").
        self._tokenizing = ThreadPoolExecutor(1, "yaie-tokenizer")

    # --- for callers, on the event loop ---

    async def start(self) -> None:
        """Load the model; returns when the engine is ready. Raises what loading raised."""
        self._loop = asyncio.get_running_loop()
        self._loaded: asyncio.Future[None] = self._loop.create_future()
        self._thread.start()
        await self._loaded

    @property
    def engine(self) -> "LLMEngine":
        """The engine, to read its constants from. Raises EngineUnavailableError while it loads."""
        if self._engine is None:
            raise EngineUnavailableError("The model is still loading; try again in a moment.")
        return self._engine

    @property
    def num_streams(self) -> int:
        """Submissions that wait or are being generated."""
        return len(self._streams)

    async def encode_chat(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None
    ) -> list[int]:
        """The prompt of a conversation. Raises InvalidRequestError."""
        self._raise_unless_ready()
        return await self._in_tokenizer(self.engine.encode_chat, messages, tools)

    async def submit(
        self, prompt: Prompt, params: SamplingParams | None = None, *, priority: int = 0
    ) -> RequestStream:
        """Queue one prompt; returns when it is admitted. Raises what `LLMEngine.add_request` does,
        EngineUnavailableError, or EngineDeadError."""
        return await self.submit_all([prompt], params, priority=priority)

    async def submit_all(
        self, prompts: Sequence[Prompt], params: SamplingParams | None = None, *, priority: int = 0
    ) -> RequestStream:
        """Queue several prompts as one stream: all are admitted, or none."""
        self._raise_unless_ready()
        encode = self.engine.tokenizer.encode
        encoded = [
            await self._in_tokenizer(encode, prompt) if isinstance(prompt, str) else prompt
            for prompt in prompts
        ]
        self._raise_unless_ready()  # that may have changed while the tokenizer worked
        stream = RequestStream(self._close)
        self._streams.add(stream)
        self._idle.clear()
        self._inbox.put(lambda: self._admit(stream, encoded, params, priority))
        try:
            await stream.admitted
        except BaseException:
            self._close(stream)
            raise
        return stream

    async def shutdown(self, drain_seconds: float = 0.0) -> None:
        """Admit nothing more, let what runs finish for `drain_seconds`, abort the rest, stop."""
        was_loading = self.state is EngineState.LOADING
        if self.state is not EngineState.DEAD:
            self.state = EngineState.DRAINING
        await _wait(self._idle, drain_seconds)
        self._fail_all(EngineUnavailableError("The server is shutting down."))
        self._inbox.put(self._stop)
        if not was_loading:  # loading cannot be interrupted and holds nobody's request
            await _wait(self._ended, STOP_SECONDS)
        if self._ended.is_set():
            # A thread that is still taking itself down while the interpreter does aborts the process.
            self._thread.join()
        self._tokenizing.shutdown(wait=False)

    @property
    def is_stuck(self) -> bool:
        """After `shutdown`: the thread is busy loading or with a step that does not end."""
        return self._thread.is_alive()

    async def wait_ended(self) -> None:
        """Returns when the engine's thread has ended: after `shutdown`, or dead."""
        await self._ended.wait()

    def _raise_unless_ready(self) -> None:
        if self.state is EngineState.DEAD:
            raise EngineDeadError("The engine stopped after an internal failure.")
        if self.state is EngineState.DRAINING:
            raise EngineUnavailableError("The server is shutting down.")
        if self.state is EngineState.LOADING:
            raise EngineUnavailableError("The model is still loading; try again in a moment.")

    async def _in_tokenizer(self, function: Callable[..., list[int]], *args: Any) -> list[int]:
        return await self._loop.run_in_executor(self._tokenizing, function, *args)

    def _close(self, stream: RequestStream) -> None:
        if not stream.is_over:
            self._inbox.put(lambda: self._abort(stream))
        self._forget(stream)

    def _forget(self, stream: RequestStream) -> None:
        self._streams.discard(stream)
        if not self._streams:
            self._idle.set()

    def _fail_all(self, error: YaieError) -> None:
        for stream in list(self._streams):
            stream.fail(error)
            self._forget(stream)

    # --- what the engine thread tells the loop ---

    def _on_ready(self) -> None:
        if self.state is EngineState.LOADING:
            self.state = EngineState.READY
        if not self._loaded.done():  # it is cancelled when nobody waits for the start any more
            self._loaded.set_result(None)

    def _on_rejected(self, stream: RequestStream, error: Exception) -> None:
        stream.fail(error)
        self._forget(stream)

    def _on_outputs(self, outputs: list[tuple[RequestStream, RequestOutput]]) -> None:
        for stream, output in outputs:
            stream.put(output)
            if stream.is_over:
                self._forget(stream)

    def _on_failure(self, error: BaseException) -> None:
        self.state, self.failure = EngineState.DEAD, error
        if not self._loaded.done():
            self._loaded.set_exception(error)
        self._fail_all(EngineDeadError("The engine stopped after an internal failure."))

    # --- on the engine thread ---

    # ANCHOR: run
    def _run(self) -> None:
        try:
            self._engine = self._load()
            self._tell(self._on_ready)
            while self._running:
                self._obey(wait=not self._engine.has_work)
                if self._running and self._engine.has_work:
                    self._publish(self._engine.step())
        except BaseException as error:  # a learner's part may even raise SystemExit
            if self._engine is not None:  # what loading raises, `start` raises
                logger.critical("the engine failed and is dead", exc_info=True)
            self._tell(self._on_failure, error)
        self._tell(self._ended.set)

    def _obey(self, wait: bool) -> None:
        if wait:
            self._inbox.get()()
        while not self._inbox.empty():  # nobody else takes from it
            self._inbox.get()()

    # ANCHOR_END: run

    def _admit(
        self,
        stream: RequestStream,
        prompts: Sequence[Prompt],
        params: SamplingParams | None,
        priority: int,
    ) -> None:
        requests: list[Request] = []
        try:
            for prompt in prompts:
                requests += self.engine.add_request(prompt, params, priority=priority)
        except Exception as error:  # noqa: BLE001, the caller gets it
            for request in requests:
                self.engine.abort(request.request_id)
            self._tell(self._on_rejected, stream, error)
        else:
            self._owners |= dict.fromkeys((request.request_id for request in requests), stream)
            self._tell(stream.accept, requests)

    def _publish(self, outputs: list[RequestOutput]) -> None:
        batch = []
        for output in outputs:
            owner = self._owners.get(output.request.request_id)
            if output.finish_reason is not None:
                self._owners.pop(output.request.request_id, None)
            if owner is not None:  # else aborted, and the part in use has not noticed
                batch.append((owner, output))
        if batch:
            self._tell(self._on_outputs, batch)

    def _abort(self, stream: RequestStream) -> None:
        for request_id in [key for key, owner in self._owners.items() if owner is stream]:
            del self._owners[request_id]
            self.engine.abort(request_id)

    def _stop(self) -> None:
        self._running = False
        for request_id in self._owners:
            self.engine.abort(request_id)
        self._owners.clear()

    def _tell(self, callback: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(callback, *args)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
