"""Texts that wait for one thread have their turns in the order in which they came."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from yaie.engine.background.prompts import MIDDLE, Prompts, TokenizerThread
from yaie.models.tokenizer import LONG, PromptText


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


async def idle(thread: TokenizerThread) -> None:
    while thread.num_pending:
        await asyncio.sleep(0.001)


def test_one_whose_caller_leaves_before_its_turn_is_not_called() -> None:
    async def test() -> None:
        thread, log, gate = TokenizerThread(), [], threading.Event()

        def work(name: str) -> str:
            gate.wait(10)
            log.append(name)
            return name

        first, left, last = (asyncio.create_task(thread.run(work, name)) for name in "abc")
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        assert thread.num_pending >= 2
        gate.set()
        assert await asyncio.gather(first, last) == ["a", "c"]
        await idle(thread)
        assert log == ["a", "c"]
        thread.stop()

    run(test())


def test_what_waits_when_it_stops_is_not_called() -> None:
    async def test() -> None:
        thread, log, gate = TokenizerThread(), [], threading.Event()
        first = asyncio.create_task(thread.run(gate.wait, 10))
        second = asyncio.create_task(thread.run(log.append, "b"))
        await asyncio.sleep(0)
        thread.stop()
        gate.set()
        await asyncio.gather(first, second, return_exceptions=True)
        await idle(thread)
        assert second.cancelled()
        assert log == []

    run(test())


def test_an_error_reaches_its_caller_and_the_others_go_on() -> None:
    class PanicException(BaseException):
        """As a library in Rust raises."""

    def failing(error: BaseException) -> None:
        raise error

    async def test() -> None:
        thread = TokenizerThread()
        works = [thread.run(failing, error("no")) for error in (ValueError, PanicException)]
        results = await asyncio.gather(*works, thread.run(int, "7"), return_exceptions=True)
        assert [type(result) for result in results] == [ValueError, RuntimeError, int]
        thread.stop()

    run(test())


class Named:
    """A tokenizer whose tokens are the name of its thread, in letters."""

    def encode_parts(self, prompt: PromptText) -> list[int]:
        return list(map(ord, threading.current_thread().name))


@pytest.mark.parametrize(
    ("num_chars", "name"),
    [
        (LONG, "yaie-tokenizer"),
        (LONG + 1, "yaie-long-texts"),
        (MIDDLE, "yaie-long-texts"),
        (MIDDLE + 1, "yaie-longest-texts"),
    ],
)
def test_a_text_has_the_thread_of_those_that_are_about_as_long(num_chars: int, name: str) -> None:
    async def test() -> None:
        prompts, tokenizer = Prompts(lambda _: None), Named()
        ids = await prompts.encode(tokenizer, PromptText(["x" * num_chars]))  # type: ignore[arg-type]
        assert "".join(map(chr, ids)).startswith(name)
        prompts.stop()

    run(test())
