"""From prompts to tokens, without holding up anybody else's. Part of `AsyncEngine`, on its event loop.

at most SHORT_PROMPT characters    here: cheaper than to hand them to a thread and back
that take at most some 10 ms       on a thread
at most MIDDLE characters          on another, a few tenths of a second each
longer                             on a third, seconds each

A tokenizer in Rust gives up the GIL while it works, and nothing interrupts it. So each text waits only
for those that came before it and are about as long. The last two threads stay behind the engine where
there are not enough cores for all.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from yaie.core.conversation import PromptOptions
from yaie.core.errors import InvalidRequestError, plain
from yaie.core.params import SamplingParams
from yaie.engine.info import EngineInfo
from yaie.engine.input.beyond_text import check_answer_size
from yaie.engine.input.long_prompts import check_chat, check_text, encode_long, fitting
from yaie.models.tokenizer import PromptText, Tokenizer
from yaie.system.thread_niceness import step_back

Prompt = str | list[int]
T = TypeVar("T")

SHORT_PROMPT = 1000
"""Characters; about 0.3 ms of tokenizing."""
MIDDLE = 1 << 18
"""Characters: as much as most models' contexts hold."""
MAX_WHOLE = 1 << 20
"""Characters of what is only counted: about a second of work."""


class TokenizerThread:
    """One thread, so one text at a time, in the order in which they came.

    num_pending: calls that wait or run. Lives on the event loop.
    """

    def __init__(
        self, name: str = "yaie-tokenizer", initializer: Callable[[], None] | None = None
    ) -> None:
        """initializer: called once, on the thread."""
        self.num_pending = 0
        self._executor = ThreadPoolExecutor(1, name, initializer)

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """What the function returns, or raises. One whose caller is cancelled before its turn is not
        called."""
        work = self._executor.submit(_called, function, *args)
        self._count(work)
        return await asyncio.wrap_future(work)

    def stop(self) -> None:
        """Take nothing more."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _count(self, work: "Future[Any]") -> None:
        loop = asyncio.get_running_loop()
        self.num_pending += 1

        def done(_: "Future[Any]") -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._done)

        work.add_done_callback(done)

    def _done(self) -> None:
        self.num_pending -= 1


def _called(function: Callable[..., T], *args: Any) -> T:
    try:
        return function(*args)
    except Exception:
        raise
    except BaseException as error:
        raise plain(error) from error


class Prompts:
    """Owns the threads. Every method raises what `check_queue` raises of the calls that wait already."""

    def __init__(self, check_queue: Callable[[int], None]) -> None:
        self.short_texts = TokenizerThread("yaie-tokenizer")
        self.long_texts = TokenizerThread("yaie-long-texts", step_back)
        self.longest_texts = TokenizerThread("yaie-longest-texts", step_back)
        self._check_queue = check_queue

    @property
    def is_busy(self) -> bool:
        """Whether anything waits or runs."""
        return any(thread.num_pending > 0 for thread in self._threads)

    def stop(self) -> None:
        """Take nothing more."""
        for thread in self._threads:
            thread.stop()

    @property
    def _threads(self) -> tuple[TokenizerThread, ...]:
        return self.short_texts, self.long_texts, self.longest_texts

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """What the function returns, on the thread of short texts. Raises what it does."""
        self._check_queue(self.short_texts.num_pending)
        return await self.short_texts.run(function, *args)

    async def encode(self, tokenizer: Tokenizer, prompt: PromptText) -> list[int]:
        """The tokens of a prompt, on the thread for its length."""
        if not prompt.is_long:
            return await self.run(tokenizer.encode_parts, prompt)
        thread = self.long_texts if prompt.num_chars <= MIDDLE else self.longest_texts
        self._check_queue(thread.num_pending)
        return await thread.run(encode_long, tokenizer, prompt)

    async def encode_chat(
        self,
        tokenizer: Tokenizer,
        max_model_len: int | None,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        options: PromptOptions | None,
    ) -> list[int]:
        """The prompt of a conversation. max_model_len: None for one that is only counted and may have
        MAX_WHOLE characters. Raises InvalidRequestError or ContextLengthError."""
        prompt = await self.run(_encode_short_chat, tokenizer, messages, tools, options)
        if not isinstance(prompt, PromptText):
            return prompt
        if max_model_len is not None:
            await self.run(check_chat, tokenizer, prompt, max_model_len)
        elif prompt.num_chars > MAX_WHOLE:
            raise InvalidRequestError(
                f"messages: their prompt has {prompt.num_chars} characters; at most {MAX_WHOLE} are "
                "counted. Send fewer messages at a time.",
                param="messages",
            )
        return await self.encode(tokenizer, prompt)

    async def encode_all(
        self,
        tokenizer: Tokenizer,
        info: EngineInfo,
        prompts: Sequence[Prompt],
        params: SamplingParams,
    ) -> list[list[int]]:
        """Token ids of each prompt, cut to what can matter: texts are tokenized, ids (of a chat) pass.
        Raises InvalidRequestError if one is too long, or the answer to all of them may be too large."""
        num_chars = sum(len(prompt) for prompt in prompts if isinstance(prompt, str))
        encoded = [
            await self._encode(tokenizer, info, prompt, params, is_short=num_chars <= SHORT_PROMPT)
            for prompt in prompts
        ]
        if params.logprobs is not None or params.prompt_logprobs is not None:
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
            is_long = len(prompt) > info.max_model_len
            return fitting(prompt, params, info.max_model_len) if is_long else prompt
        if is_short and self.short_texts.num_pending == 0:
            return tokenizer.encode(prompt, params.add_special_tokens)
        text = PromptText([prompt], params.add_special_tokens)
        if not text.is_long:
            return await self.encode(tokenizer, text)
        limits = info.max_model_len, info.text_tokens
        text = await self.run(check_text, tokenizer, text, params, *limits)
        return fitting(await self.encode(tokenizer, text), params, info.max_model_len)


def _encode_short_chat(
    tokenizer: Tokenizer,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    options: PromptOptions | None,
) -> list[int] | PromptText:
    """A prompt that takes long is left to be tokenized."""
    text = tokenizer.chat_text(messages, tools, options)
    return text if text.is_long else tokenizer.encode_parts(text)
