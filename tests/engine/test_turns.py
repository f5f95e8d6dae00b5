"""Long texts share their thread in turns: none waits for the end of another."""

import asyncio
import threading
from collections.abc import Coroutine, Generator
from typing import Any

from yaie.engine.background.tokenizer_thread import TokenizerThread

Turns = Generator[None, None, str]


def text(name: str, pieces: int, log: list[str], gate: threading.Event | None = None) -> Turns:
    """Work of so many pieces, each noted."""
    try:
        for number in range(pieces):
            if gate is not None:
                gate.wait(10)
            log.append(f"{name}{number}")
            yield
        return name
    finally:
        log.append(f"{name} closed")


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def test_a_short_text_waits_for_a_turn_of_each_other_and_not_for_their_ends() -> None:
    async def test() -> None:
        thread, log, gate = TokenizerThread(), [], threading.Event()
        long = [asyncio.create_task(thread.run_in_turns(text(n, 50, log, gate))) for n in "abc"]
        await asyncio.sleep(0)
        short = asyncio.create_task(thread.run_in_turns(text("s", 2, log, gate)))
        await asyncio.sleep(0)
        gate.set()
        assert await short == "s"
        assert await asyncio.gather(*long) == ["a", "b", "c"]
        assert log.index("s closed") <= 4 * 3 + 1
        assert log[:8] == ["a0", "b0", "c0", "s0", "a1", "b1", "c1", "s1"]
        await asyncio.sleep(0.01)
        assert thread.num_pending == 0
        thread.stop()

    run(test())


def test_work_whose_caller_leaves_is_closed_at_its_next_turn() -> None:
    async def test() -> None:
        thread, log, gate = TokenizerThread(), [], threading.Event()
        left = asyncio.create_task(thread.run_in_turns(text("a", 50, log, gate)))
        stays = asyncio.create_task(thread.run_in_turns(text("b", 3, log, gate)))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        gate.set()
        assert await stays == "b"
        while thread.num_pending:
            await asyncio.sleep(0.001)
        assert "a2" not in log
        thread.stop()

    run(test())


def test_what_waits_or_runs_when_it_stops_is_closed() -> None:
    async def test() -> None:
        thread, log, gate = TokenizerThread(), [], threading.Event()
        first = asyncio.create_task(thread.run_in_turns(text("a", 50, log, gate)))
        second = asyncio.create_task(thread.run_in_turns(text("b", 50, log, gate)))
        await asyncio.sleep(0)
        thread.stop()
        gate.set()
        results = await asyncio.gather(first, second, return_exceptions=True)
        assert all(isinstance(result, Exception) for result in results)
        while thread.num_pending:
            await asyncio.sleep(0.001)
        assert "a1" not in log
        assert "b0" not in log

    run(test())


def test_an_error_reaches_its_caller_and_the_others_go_on() -> None:
    class PanicException(BaseException):
        """As a library in Rust raises."""

    def failing(error: BaseException) -> Turns:
        yield
        raise error

    async def test() -> None:
        thread, log = TokenizerThread(), []
        works = [failing(ValueError("no")), failing(PanicException("no")), text("a", 3, log)]
        results = await asyncio.gather(*map(thread.run_in_turns, works), return_exceptions=True)
        assert [type(result) for result in results] == [ValueError, RuntimeError, str]
        thread.stop()

    run(test())
