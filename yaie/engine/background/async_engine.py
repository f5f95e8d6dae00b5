"""The engine for asynchronous callers: it runs in the background, coroutines await its outputs.

Used by the HTTP server and by `yaie chat`. How the engine comes and goes is in `engine_life.py`. To and
fro go `messages`:

    event loop                                 engine thread, over and over
    ----------                                 ----------------------------
    submit, aclose ---- commands ------------> obey them: admit, withdraw, call, stop
                                               step()
    RequestStream <---- one event a step ----- publish its outputs

The thread sleeps when nothing is left to generate, so an idle engine costs nothing; the event loop never
waits for a step. No lock is needed: what `EngineThread` holds belongs to that thread, the rest to the
loop. One event loop is enough for all callers in a process, so an AsyncEngine serves the one that it was
started on and no other.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from yaie.core.conversation import PromptOptions
from yaie.core.errors import EngineOverloadedError, EngineUnavailableError
from yaie.core.output import RequestOutput
from yaie.core.params import SamplingParams
from yaie.engine.background import messages
from yaie.engine.background.engine_life import LOADING, BackgroundEngine, EngineState, settle
from yaie.engine.background.prompts import Prompt as Prompt
from yaie.engine.background.rejections import Rejection
from yaie.engine.background.streams import RequestStream
from yaie.engine.background.telemetry import Telemetry
from yaie.engine.info import EngineInfo
from yaie.models.tokenizer import PromptText, Tokenizer

T = TypeVar("T")


class AsyncEngine(BackgroundEngine):
    """Takes prompts to the engine, and its outputs to the streams of their callers."""

    # --- for callers, on the event loop ---

    @property
    def info(self) -> EngineInfo:
        """The engine's constants. Raises EngineUnavailableError while it loads."""
        return _known(self._info)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. It may decode anywhere, but encodes in `in_tokenizer` alone. Raises
        EngineUnavailableError likewise."""
        return _known(self._tokenizer)

    @property
    def telemetry(self) -> Telemetry:
        """What the engine has done, for those who watch it. It may be half a second old."""
        return self._driver.telemetry

    @property
    def num_streams(self) -> int:
        """Submissions that wait or are being generated."""
        return len(self._streams)

    @property
    def is_full(self) -> bool:
        """Whether a new request would be refused because too many wait."""
        waiting = self.telemetry.stats.get("num_waiting", 0) + len(self._unanswered)
        return waiting >= self.info.config.max_waiting

    async def encode_chat(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        options: PromptOptions | None = None,
        *,
        is_counted: bool = False,
    ) -> list[int]:
        """The prompt of a conversation. is_counted: it is not submitted, so the context is no limit.
        Raises InvalidRequestError."""
        if self.state is not EngineState.READY:
            self._refuse()
        limit = None if is_counted else self.info.max_model_len
        return await self._prompts.encode_chat(self.tokenizer, limit, messages, tools, options)

    async def in_tokenizer(self, function: Callable[..., T], *args: Any) -> T:
        """What the function returns on the tokenizer's thread. Raises what it does,
        EngineUnavailableError, and EngineOverloadedError if too many wait for it."""
        if self.state is not EngineState.READY:
            self._refuse()
        return await self._prompts.run(function, *args)

    async def encode(self, prompt: PromptText) -> list[int]:
        """The tokens of a prompt, in its turn. Raises as `in_tokenizer` does."""
        if self.state is not EngineState.READY:
            self._refuse()
        return await self._prompts.encode(self.tokenizer, prompt)

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
        if self.state is not EngineState.READY:
            self._refuse()
        params = params or SamplingParams(**self.info.sampling_defaults)
        encoded = await self._prompts.encode_all(self.tokenizer, self.info, prompts, params)
        if self.state is not EngineState.READY:  # that may have changed while the tokenizer worked
            self._refuse()
        self._raise_if_swamped(len(self._unanswered))
        stream = self._streams.open(next(self._numbers))
        self._unanswered.add(stream.number)
        self._driver.send(messages.Admit(stream.number, encoded, params, priority))
        try:
            await stream.admitted
        except BaseException:
            self._streams.close(stream)
            raise
        return stream

    def divert(self, request_id: str, take: Callable[[RequestOutput], bool]) -> None:
        """Offer outputs of the stream with this request to `take` first: see `RequestStream.divert`."""
        self._streams.divert(request_id, take)

    def _raise_if_swamped(self, num_before: int) -> None:
        """What comes in bursts must not pile up before admission either, which counts what waits."""
        if num_before >= self.info.config.max_waiting:
            self.rejections[Rejection.MAX_WAITING] += 1
            raise EngineOverloadedError("Too many requests came at once; try again later.")

    # --- what the engine tells ---

    def _tell(self, event: messages.Event) -> None:
        """Called on another thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no one left to tell
            self._loop.call_soon_threadsafe(self._on_event, event)

    def _on_event(self, event: messages.Event) -> None:
        match event:
            case messages.Stepped():
                self._streams.put(event)
            case messages.Recorded():
                self.watchers.put(event)
            case messages.Replied(number, value, error):
                self._unanswered.discard(number)
                if isinstance(error, EngineOverloadedError):
                    self.rejections[Rejection.MAX_WAITING] += 1
                if number in self._answers:
                    settle(self._answers[number], value, error)
                else:
                    self._streams.accept(number, value, error)
            case _:
                self._on_change(event)


def _known(what: T | None) -> T:
    if what is None:
        raise EngineUnavailableError(LOADING)
    return what
