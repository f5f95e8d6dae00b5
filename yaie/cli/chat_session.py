"""A conversation: what was said, how answers are drawn, and how long the last one took."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from yaie.core.errors import ContextLengthError, InvalidRequestError, YaieError
from yaie.core.output import RequestOutput
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.background.streams import RequestStream


@dataclass(slots=True)
class AnswerStats:
    """Of one answer. Times in seconds, from the moment it was asked for."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    first_token: float
    total: float

    @property
    def tokens_per_second(self) -> float:
        """While decoding: the first token belongs to the prompt's time."""
        return max(self.output_tokens - 1, 0) / max(self.total - self.first_token, 1e-9)


class ChatSession:
    """Turns so far, as the chat template wants them, and the engine that answers."""

    def __init__(
        self, engine: AsyncEngine, sampling: dict[str, Any], system: str | None = None
    ) -> None:
        self.sampling = sampling
        self.system = system
        self.stats: AnswerStats | None = None
        self._engine = engine
        self._turns: list[dict[str, str]] = []

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation with its system message, if there is one."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return system + self._turns

    def reset(self) -> None:
        """Forget what was said. The system message and the parameters stay."""
        self._turns.clear()

    def set_params(self, assignments: list[str]) -> None:
        """Take over `name=value` pairs, all or none; `name=null` goes back to the default.

        Raises InvalidRequestError.
        """
        wanted = dict(self.sampling)
        for assignment in assignments:
            name, equals, text = assignment.partition("=")
            if not equals:
                raise InvalidRequestError(f"write name=value, not {assignment!r}")
            if name == "n" or name not in SamplingParams.__dataclass_fields__:
                raise InvalidRequestError(f"there is no parameter called {name!r} in a chat")
            wanted[name] = _value(text)
        wanted = {name: value for name, value in wanted.items() if value is not None}
        SamplingParams(**wanted)
        self.sampling = wanted

    async def ask(self, text: str, show: Callable[[str], None]) -> str:
        """Answer `text`, piece by piece through `show`. What was shown is remembered, even if this is
        cancelled or fails. Returns what cut the answer off, or "" if it ended by itself.

        Raises ContextLengthError if the conversation leaves no room for an answer, InvalidRequestError,
        EngineDeadError, and YaieError for a failed request.
        """
        self._turns.append({"role": "user", "content": text})
        pieces: list[str] = []
        latest: RequestOutput | None = None
        try:
            prompt = await self._engine.encode_chat(self.messages)
            room = self._room(len(prompt))
            params = SamplingParams(**self.sampling)
            wanted = params.max_tokens
            if wanted is not None and wanted > room:  # it is a maximum
                params = replace(params, max_tokens=room)
            stream = await self._engine.submit(prompt, params)
            try:
                async for latest in stream:
                    if latest.finish_reason is FinishReason.ERROR:
                        raise YaieError(latest.error or "the request failed")
                    pieces.append(latest.text)
                    show(latest.text)
            finally:
                await stream.aclose()
                self.stats = _stats(stream, latest)
        finally:
            if any(pieces):
                self._turns.append({"role": "assistant", "content": "".join(pieces)})
            else:
                self._turns.pop()
        if latest is None or latest.finish_reason is not FinishReason.LENGTH:
            return ""
        if latest.num_output_tokens == wanted:
            return f"max_tokens={wanted}. /params max_tokens=N sets another limit"
        holder, tokens = self._limit
        return f"the conversation fills the {holder} of {tokens:,} tokens. /reset forgets it"

    @property
    def _limit(self) -> tuple[str, int]:
        """What bounds a conversation, and the tokens that it holds, the answer's included."""
        info = self._engine.info
        # The last token generated is never computed, so it needs no slot.
        if info.text_tokens + 1 < info.max_model_len:
            return "KV pool", info.text_tokens + 1
        return "context", info.max_model_len

    def _room(self, num_prompt: int) -> int:
        """How many tokens an answer may have. Raises ContextLengthError if that is none."""
        holder, tokens = self._limit
        if num_prompt < tokens:
            return tokens - num_prompt
        config = self._engine.info.config
        if holder == "KV pool":
            larger = " A larger --num-blocks makes room for more."
        elif config.max_model_len is not None:
            larger = (
                " A larger --max-model-len makes room for more, up to what the model was made for."
            )
        else:
            larger = " The model was made for no more."
        if len(self._turns) == 1:
            raise ContextLengthError(
                f"what you typed does not fit: the {holder} holds {tokens:,} tokens, the answer and the "
                f"system message among them. Shorten it.{larger}"
            )
        raise ContextLengthError(
            f"the conversation fills the {holder} of {tokens:,} tokens, and no room is left for an "
            f"answer. /reset forgets it and keeps the system message.{larger}"
        )


def _value(text: str) -> Any:
    """Numbers, booleans, null and lists as in JSON; anything else is a string."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _stats(stream: RequestStream, latest: RequestOutput | None) -> AnswerStats:
    now = time.perf_counter()
    return AnswerStats(
        prompt_tokens=stream.requests[0].num_prompt_tokens,
        cached_tokens=latest.num_cached_tokens if latest else 0,
        output_tokens=latest.num_output_tokens if latest else 0,
        first_token=(stream.first_output_at or now) - stream.submitted_at,
        total=now - stream.submitted_at,
    )
