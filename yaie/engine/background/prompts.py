"""From prompts to tokens, without holding up anybody else's. Part of `AsyncEngine`, on its event loop.

at most SHORT_PROMPT characters    here: cheaper than to hand them to a thread and back
that take at most some 10 ms       on a thread
others                             on another, in turns of one piece (`PIECE` characters), given up when
                                   their callers leave, and behind the engine where there are not cores
                                   enough for both
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from yaie.core.errors import InvalidRequestError
from yaie.core.params import PromptOptions, SamplingParams
from yaie.engine.background.tokenizer_thread import TokenizerThread
from yaie.engine.info import EngineInfo
from yaie.engine.intake.chat import encode_short_chat
from yaie.engine.intake.limits import check_answer_size
from yaie.engine.intake.texts import check_least, fitting, last_tokens
from yaie.models.long_texts import PromptText
from yaie.models.tokenizer import Tokenizer
from yaie.system.thread_niceness import step_back

Prompt = str | list[int]
T = TypeVar("T")

SHORT_PROMPT = 1000
"""Characters; about 0.3 ms of tokenizing."""
MAX_WHOLE = 1 << 20
"""Characters of what is tokenized to the end however long it is: about a second of work."""


class Prompts:
    """Owns the threads. Every method raises what `check_queue` raises of the calls that wait already."""

    def __init__(self, check_queue: Callable[[int], None]) -> None:
        self.short_texts = TokenizerThread("yaie-tokenizer")
        self.long_texts = TokenizerThread("yaie-long-texts", step_back)
        self._check_queue = check_queue

    @property
    def is_busy(self) -> bool:
        """Whether anything waits or runs."""
        return self.short_texts.num_pending + self.long_texts.num_pending > 0

    def stop(self) -> None:
        """Take nothing more."""
        self.short_texts.stop()
        self.long_texts.stop()

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """What the function returns, on the thread of short texts. Raises what it does."""
        self._check_queue(self.short_texts.num_pending)
        return await self.short_texts.run(function, *args)

    async def encode_long(
        self, tokenizer: Tokenizer, prompt: PromptText, most: int | None, param: str
    ) -> list[int]:
        """See `last_tokens`."""
        self._check_queue(self.long_texts.num_pending)
        return await self.long_texts.run_in_turns(last_tokens(tokenizer, prompt, most, param))

    async def encode_chat(
        self,
        tokenizer: Tokenizer,
        most: int | None,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        options: PromptOptions | None,
    ) -> list[int]:
        """The prompt of a conversation. most: tokens after which the end of it will do; None for all,
        of a prompt with at most MAX_WHOLE characters. Raises InvalidRequestError."""
        prompt = await self.run(encode_short_chat, tokenizer, messages, tools, options)
        if not isinstance(prompt, PromptText):
            return prompt
        if most is None and prompt.num_chars > MAX_WHOLE:
            raise InvalidRequestError(
                f"messages: their prompt has {prompt.num_chars} characters; at most {MAX_WHOLE} are "
                "counted. Send fewer messages at a time.",
                param="messages",
            )
        return await self.encode_long(tokenizer, prompt, most, "messages")

    async def encode_all(
        self,
        tokenizer: Tokenizer,
        info: EngineInfo,
        prompts: Sequence[Prompt],
        params: SamplingParams,
    ) -> list[list[int]]:
        """What can matter of each prompt. Raises InvalidRequestError if one is too long, or the answer
        to all of them may be too large."""
        num_chars = sum(len(prompt) for prompt in prompts if isinstance(prompt, str))
        encoded = [
            await self._encode(tokenizer, info, prompt, params, is_short=num_chars <= SHORT_PROMPT)
            for prompt in prompts
        ]
        check_answer_size(encoded, params, info.max_model_len)
        return encoded

    async def _encode(
        self,
        tokenizer: Tokenizer,
        info: EngineInfo,
        prompt: Prompt,
        params: SamplingParams,
        *,
        is_short: bool,
    ) -> list[int]:
        if not isinstance(prompt, str):
            return fitting(prompt, params, info.max_model_len)
        if is_short and self.short_texts.num_pending == 0:
            return tokenizer.encode(prompt, params.add_special_tokens)
        text = PromptText([prompt], params.add_special_tokens)
        if not text.is_long:
            return await self.run(tokenizer.encode, prompt, params.add_special_tokens)
        limits = info.max_model_len, info.pool_tokens
        await self.run(check_least, tokenizer, prompt, params, *limits)
        ids = await self.encode_long(tokenizer, text, info.max_model_len, "prompt")
        return fitting(ids, params, info.max_model_len)
