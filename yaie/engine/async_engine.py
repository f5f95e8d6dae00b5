"""The engine for asynchronous callers: one background thread steps it, coroutines await its outputs.

Used by the HTTP server and by `yaie chat`. All that touches the engine's state happens on its thread:

    event loop                                 engine thread, over and over
    ----------                                 ----------------------------
    submit, aclose --- inbox (a queue) --->    obey the commands: admit, abort, stop
                                               step()
    RequestStream <--- one callback a step --- publish its outputs

The thread sleeps in the inbox when nothing is left to generate, so an idle engine costs nothing; the
event loop never waits for a step. No lock is needed: what `EngineThread` holds belongs to that
thread, the rest to the loop. One event loop is enough for all callers in a process, so an AsyncEngine
serves the one that it was started on and no other.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from yaie.core.compat import StrEnum
from yaie.core.errors import (
    EngineDeadError,
    EngineOverloadedError,
    EngineUnavailableError,
    QueueTimeoutError,
    RequestTimeoutError,
    YaieError,
)
from yaie.core.params import SamplingParams
from yaie.engine.engine_thread import EngineThread, Outputs
from yaie.engine.request_stream import RequestStream
from yaie.engine.telemetry import Telemetry
from yaie.engine.timeouts import Timeout
from yaie.engine.tokenizer_thread import TokenizerThread
from yaie.engine.watchdog import Watchdog, log_hang

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine

Prompt = str | list[int]
T = TypeVar("T")

STOP_SECONDS = 5.0
"""How long `shutdown` waits for the step in progress; nothing can interrupt a forward pass."""
CALL_SECONDS = 5.0
"""How long `call` waits for the engine's thread."""


class EngineState(StrEnum):
    """LOADING -> READY -> DRAINING; a failure, or a step without an end, leads to DEAD from anywhere."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


class AsyncEngine:
    """Owns an LLMEngine and the thread that runs it."""

    def __init__(
        self,
        load: "Callable[[], LLMEngine]",
        *,
        step_timeout: float = 0.0,
        queue_timeout: float = 0.0,
        request_timeout: float = 0.0,
    ) -> None:
        """`load` runs on the engine's thread, because torch keeps settings for each thread.

        In seconds, 0 for no limit: step_timeout, after which a step is given up and the engine with it;
        queue_timeout, for a submission's first turn; request_timeout, for all of it.
        """
        self.state = EngineState.LOADING
        self.failure: BaseException | None = None
        self._watchdog = Watchdog(step_timeout)
        self._is_hung = False
        self._thread = EngineThread(load, self._watchdog, self)
        self._streams: set[RequestStream] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._ended = asyncio.Event()
        self._tokenizer_thread = TokenizerThread()
        self._watching: asyncio.Task[None] | None = None
        self._timeouts = (
            Timeout(queue_timeout, lambda stream: stream.has_started, self._queued_too_long),
            Timeout(request_timeout, lambda stream: stream.is_over, self._ran_too_long),
        )

    # --- for callers, on the event loop ---

    async def start(self) -> None:
        """Load the model; returns when the engine is ready. Raises what loading raised."""
        self._loop = asyncio.get_running_loop()
        self._loaded: asyncio.Future[None] = self._loop.create_future()
        self._thread.start(self._loop)
        self._watching = asyncio.create_task(self._watch())
        await self._loaded

    @property
    def engine(self) -> "LLMEngine":
        """The engine, to read its constants from. Raises EngineUnavailableError while it loads."""
        if self._thread.engine is None:
            raise EngineUnavailableError("The model is still loading; try again in a moment.")
        return self._thread.engine

    @property
    def telemetry(self) -> Telemetry:
        """What the engine has done, for whoever watches it."""
        return self._thread.telemetry

    @property
    def num_streams(self) -> int:
        """Submissions that wait or are being generated."""
        return len(self._streams)

    @property
    def is_full(self) -> bool:
        """Whether a new request would be refused because too many wait."""
        waiting = self.telemetry.stats.get("num_waiting", 0) + self._thread.num_commands
        return waiting >= self.engine.config.max_waiting

    async def call(self, function: "Callable[[LLMEngine], T]") -> T:
        """What `function` returns of the engine, between two steps. Raises what it does, and
        EngineOverloadedError if the step in progress takes longer than CALL_SECONDS."""
        if self.state is not EngineState.DRAINING:
            self._raise_unless_ready()
        self._raise_if_swamped(self._thread.num_commands)
        try:
            return await asyncio.wait_for(self._thread.ask(function), CALL_SECONDS)
        except asyncio.TimeoutError:
            raise EngineOverloadedError("The engine is in a long step; try again later.") from None

    async def stats(self) -> dict[str, float]:
        """See `LLMEngine.stats`; raises as `call` does."""
        return await self.call(lambda engine: engine.stats())

    async def reset_prefix_cache(self) -> int:
        """See `LLMEngine.reset_prefix_cache`; raises as `call` does."""
        return await self.call(lambda engine: engine.reset_prefix_cache())

    async def encode_chat(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None
    ) -> list[int]:
        """The prompt of a conversation. Raises InvalidRequestError."""
        return await self.in_tokenizer(lambda: self.engine.encode_chat(messages, tools))

    async def in_tokenizer(self, function: Callable[..., T], *args: Any) -> T:
        """What the function returns on the tokenizer's thread. Raises what it does,
        EngineUnavailableError, and EngineOverloadedError if too many wait for it."""
        self._raise_unless_ready()
        self._raise_if_swamped(self._tokenizer_thread.num_pending)
        return await self._tokenizer_thread.run(function, *args)

    async def submit(
        self, prompt: Prompt, params: SamplingParams | None = None, *, priority: int = 0
    ) -> RequestStream:
        """Queue one prompt; returns when it is admitted. Raises what `LLMEngine.add_request` does,
        EngineOverloadedError, QueueTimeoutError, EngineUnavailableError, or EngineDeadError."""
        return await self.submit_all([prompt], params, priority=priority)

    async def submit_all(
        self, prompts: Sequence[Prompt], params: SamplingParams | None = None, *, priority: int = 0
    ) -> RequestStream:
        """Queue several prompts as one stream: all are admitted, or none."""
        self._raise_unless_ready()
        if params is not None and params.constraint is not None:
            # A grammar may take half a second to compile, for which no step should wait.
            await self.in_tokenizer(self.engine.check_params, params)
        encode = self.engine.tokenizer.encode
        encoded = [
            await self.in_tokenizer(encode, prompt) if isinstance(prompt, str) else prompt
            for prompt in prompts
        ]
        self._raise_unless_ready()  # that may have changed while the tokenizer worked
        self._raise_if_swamped(self._thread.num_commands)
        stream = RequestStream(self._close)
        self._thread.admit(stream, encoded, params, priority)
        self._streams.add(stream)
        self._idle.clear()
        for timeout in self._timeouts:
            timeout.watch(stream)
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
        if self._watching is not None:
            self._watching.cancel()
        for timeout in self._timeouts:
            timeout.stop()
        self._fail_all(EngineUnavailableError("The server is shutting down."))
        self._thread.stop()
        if not was_loading:  # loading cannot be interrupted and holds nobody's request
            await _wait(self._ended, STOP_SECONDS)
        if self._ended.is_set() and not self._is_hung:
            # A thread that is still taking itself down while the interpreter does aborts the process.
            self._thread.thread.join()
        self._tokenizer_thread.stop()

    @property
    def is_stuck(self) -> bool:
        """After `shutdown`: a thread is busy loading, tokenizing, or with a step that does not end."""
        return self._thread.thread.is_alive() or self._tokenizer_thread.num_pending > 0

    async def wait_ended(self) -> None:
        """Returns when the engine has ended: after `shutdown`, or dead."""
        await self._ended.wait()

    def _raise_unless_ready(self) -> None:
        if self.state is EngineState.DEAD:
            raise EngineDeadError("The engine stopped after an internal failure.")
        if self.state is EngineState.DRAINING:
            raise EngineUnavailableError("The server is shutting down.")
        if self.state is EngineState.LOADING:
            raise EngineUnavailableError("The model is still loading; try again in a moment.")

    def _raise_if_swamped(self, num_before: int) -> None:
        """What comes in bursts must not pile up before admission either, which counts what waits."""
        if num_before >= self.engine.config.max_waiting:
            raise EngineOverloadedError("Too many requests came at once; try again later.")

    def _close(self, stream: RequestStream) -> None:
        if not stream.is_over:
            self._thread.abort(stream)
        self._forget(stream)

    def _queued_too_long(self, stream: RequestStream) -> None:
        self._close(stream)
        stream.fail(QueueTimeoutError("The request has waited too long; try again later."))

    def _ran_too_long(self, stream: RequestStream) -> None:
        self._close(stream)
        stream.fail(RequestTimeoutError("The request took too long; ask for fewer tokens."))

    def _forget(self, stream: RequestStream) -> None:
        for timeout in self._timeouts:
            timeout.forget(stream)
        self._streams.discard(stream)
        if not self._streams:
            self._idle.set()

    def _fail_all(self, error: YaieError) -> None:
        for stream in list(self._streams):
            stream.fail(error)
            self._forget(stream)

    async def _watch(self) -> None:
        await self._watchdog.overdue()
        log_hang(self._thread.thread, self._watchdog.limit)
        self._is_hung = True
        self._thread.abandon()
        self.on_failure(EngineDeadError(f"a step took more than {self._watchdog.limit:g} seconds"))
        self.on_ended()

    # --- what the engine's thread tells: see `Listener` ---

    def on_ready(self) -> None:
        """The model is loaded."""
        if self.state is EngineState.LOADING:
            self.state = EngineState.READY
        if not self._loaded.done():  # it is cancelled when nobody waits for the start any more
            self._loaded.set_result(None)

    def on_rejected(self, stream: RequestStream, error: Exception) -> None:
        """A submission cannot be admitted."""
        stream.fail(error)
        self._forget(stream)

    def on_outputs(self, outputs: Outputs) -> None:
        """A step has yielded these."""
        for stream, output in outputs:
            stream.put(output)
            if stream.is_over:
                self._forget(stream)

    def on_failure(self, error: BaseException) -> None:
        """The engine is dead."""
        self.state, self.failure = EngineState.DEAD, self.failure or error
        if not self._loaded.done():
            self._loaded.set_exception(error)
        self._fail_all(EngineDeadError("The engine stopped after an internal failure."))

    def on_ended(self) -> None:
        """Its thread is over, or given up."""
        self._ended.set()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
