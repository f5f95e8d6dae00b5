"""The life of an engine behind an event loop: it loads, is called, is paced, drains and ends.

`AsyncEngine` is one, and has requests besides. What runs the engine is a `Driver`: a thread of this
process (`EngineThread`), or a process of its own (`EngineProcess`).
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, NoReturn

from yaie.core.compat import StrEnum
from yaie.core.errors import EngineOverloadedError, EngineUnavailableError, engine_is_dead
from yaie.engine.background import messages
from yaie.engine.background.driver import Driver
from yaie.engine.background.engine_thread import EngineThread
from yaie.engine.background.prompts import Prompts
from yaie.engine.background.rejections import no_rejections
from yaie.engine.background.streams import OpenStreams
from yaie.engine.background.thread_life import Load
from yaie.engine.background.timeouts import timeouts
from yaie.engine.background.watchers import Watchers
from yaie.engine.info import EngineInfo
from yaie.models.tokenizer import Tokenizer

STOP_SECONDS = 5.0
"""How long `shutdown` waits for the step in progress; nothing can interrupt a forward pass."""
CALL_SECONDS = 5.0
"""How long `call` waits for the step in progress."""
LOADING = "The model is still loading; try again in a moment."
STOPPING = "The server is shutting down."


class EngineState(StrEnum):
    """LOADING -> READY -> DRAINING; a failure, or a step without an end, leads to DEAD from anywhere."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


class BackgroundEngine(ABC):
    """Owns what runs an engine in the background. state: of the engine. failure: what killed it.
    rejections: how many requests each limit has refused, the server's own included. watchers: of its
    steps."""

    def __init__(
        self,
        load: Load,
        *,
        make_driver: Callable[[Load, float], Driver] = EngineThread,
        step_timeout: float = 0.0,
        queue_timeout: float = 0.0,
        request_timeout: float = 0.0,
    ) -> None:
        """load: makes the engine, where it is to run. make_driver: of `load` and `step_timeout`.

        In seconds, 0 for no limit: step_timeout, after which a step is given up and the engine with it;
        queue_timeout, for a submission's first turn; request_timeout, for all of it.
        """
        self.state = EngineState.LOADING
        self.failure: BaseException | None = None
        self.rejections = no_rejections()
        self._driver = make_driver(load, step_timeout)
        self._streams = OpenStreams(self._withdraw)
        limits = queue_timeout, request_timeout
        self._streams.timeouts = timeouts(self._streams, self.rejections, *limits)
        self._answers: dict[int, asyncio.Future[Any]] = {}  # of calls
        self._unanswered: set[int] = set()  # submissions and calls
        self._numbers = count()
        self._ended = asyncio.Event()
        self.watchers = Watchers(self._driver.send, partial(next, self._numbers))
        self._prompts = Prompts(self._raise_if_swamped)
        self._info: EngineInfo | None = None
        self._tokenizer: Tokenizer | None = None

    async def start(self) -> None:
        """Load the model; returns when the engine is ready. Raises what loading raised."""
        self._loop = asyncio.get_running_loop()
        self._loaded: asyncio.Future[EngineInfo] = self._loop.create_future()
        self._driver.start(self._tell)
        info = await self._loaded
        if self.state is not EngineState.LOADING:  # it was shut down meanwhile
            return
        try:
            self._tokenizer = await self._prompts.short_texts.run(self._driver.tokenizer, info)
        except Exception as error:
            self._on_failed(error)
            self._driver.send(messages.Stop())
            raise
        self._info = info
        if self.state is EngineState.LOADING:
            self.state = EngineState.READY

    async def call(self, name: str, *args: Any) -> Any:
        """What this method of the engine returns, between two steps. Raises what it does, and
        EngineOverloadedError if the step in progress takes longer than CALL_SECONDS."""
        if self.state not in (EngineState.READY, EngineState.DRAINING):
            self._refuse()
        self._raise_if_swamped(len(self._unanswered))
        number = next(self._numbers)
        self._answers[number] = answer = self._loop.create_future()
        self._unanswered.add(number)
        self._driver.send(messages.Call(number, name, args))
        try:
            return await asyncio.wait_for(answer, CALL_SECONDS)
        except asyncio.TimeoutError:
            raise EngineOverloadedError("The engine is in a long step; try again later.") from None
        finally:
            del self._answers[number]
            if answer.cancelled():
                self._withdraw(number)

    async def stats(self) -> dict[str, float]:
        """See `LLMEngine.stats`; raises as `call` does."""
        return dict(await self.call("stats"))

    async def reset_prefix_cache(self) -> int:
        """See `LLMEngine.reset_prefix_cache`; raises as `call` does."""
        return int(await self.call("reset_prefix_cache"))

    def pace(self, steps: int | None) -> None:
        """Of an engine in step mode, or that is watched: compute so many more steps; None: go on without
        a stop; 0: pause. Raises EngineUnavailableError unless it is ready."""
        if self.state is not EngineState.READY:
            self._refuse()
        self._driver.send(messages.Pace(steps))

    async def shutdown(self, drain_seconds: float = 0.0) -> None:
        """Admit nothing more, let what runs finish for `drain_seconds`, abort the rest, stop."""
        was_loading = self.state is EngineState.LOADING
        if self.state is not EngineState.DEAD:
            self.state = EngineState.DRAINING
        self._driver.send(messages.Pace(None))  # what is paused would not drain
        self.watchers.end()
        await _wait(self._streams.empty, drain_seconds)
        for timeout in self._streams.timeouts:
            timeout.stop()
        self._streams.fail_all(EngineUnavailableError(STOPPING))
        self._driver.send(messages.Stop())
        if not was_loading:  # loading cannot be interrupted, and no request depends on it
            await _wait(self._ended, STOP_SECONDS)
        self._driver.close()
        self._prompts.stop()

    @property
    def is_stuck(self) -> bool:
        """After `shutdown`: a thread is busy loading, tokenizing, or with a step that does not end."""
        return self._driver.is_alive or self._prompts.is_busy

    async def wait_ended(self) -> None:
        """Returns when the engine has ended: after `shutdown`, or dead."""
        await self._ended.wait()

    @abstractmethod
    def _tell(self, event: messages.Event) -> None:
        """Called on another thread, for each event."""

    @abstractmethod
    def _raise_if_swamped(self, num_before: int) -> None:
        """What comes in bursts must not pile up before admission either, which counts what waits."""

    def _on_change(self, event: messages.Event) -> None:
        """It is loaded, has failed, or has ended."""
        match event:
            case messages.Ready(info):
                settle(self._loaded, info)
            case messages.Failed(error):
                self._on_failed(error)
            case messages.Ended():
                self._ended.set()

    def _on_failed(self, error: BaseException) -> None:
        self.state, self.failure = EngineState.DEAD, self.failure or error
        settle(self._loaded, None, error)
        dead = engine_is_dead(self.failure)
        self.watchers.end()
        self._streams.fail_all(dead)
        for answer in self._answers.values():
            settle(answer, None, dead)

    def _refuse(self) -> NoReturn:
        """Say why it is not ready. Raises EngineDeadError or EngineUnavailableError."""
        if self.state is EngineState.DEAD:
            raise engine_is_dead(self.failure)
        raise EngineUnavailableError(STOPPING if self.state is EngineState.DRAINING else LOADING)

    def _withdraw(self, number: int) -> None:
        self._driver.send(messages.Withdraw(number))


def settle(future: asyncio.Future[Any], value: Any, error: BaseException | None = None) -> None:
    """It is done already where its caller has left, and does not wait any more."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
