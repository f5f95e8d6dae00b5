"""What a call of an AsyncEngine raises reaches its caller alone, and nothing is kept of it."""

import asyncio

import pytest

from tests.engine.test_async_calls import GRAMMAR
from tests.engine.test_async_engine import LONG, on_engine, text_of, until
from tests.server.fake_engine import FakeEngine
from yaie.core.errors import YaieError
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.background.engine_thread import EngineThread
from yaie.engine.background.latencies import Latencies


class PanicException(BaseException):
    """As a library in Rust raises."""


def waiting_for(engine: AsyncEngine) -> set[int]:
    """The submissions and calls that count as not begun."""
    driver = engine._driver
    assert isinstance(driver, EngineThread)
    return driver._wanted


def test_nothing_is_kept_of_submissions_and_calls_that_are_over() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        fake.check_params = lambda params: None  # type: ignore[method-assign]
        for params in (None, GRAMMAR):
            assert await text_of(await engine.submit("abc", params)) == "cba"
            left = asyncio.create_task(engine.submit("abc", params))
            await asyncio.sleep(0)
            left.cancel()
            await asyncio.gather(left, return_exceptions=True)
        with pytest.raises(AttributeError):
            await engine.call("no such method")
        await engine.stats()
        await until(lambda: not engine._unanswered)
        assert waiting_for(engine) == set()

    on_engine(test)


@pytest.mark.parametrize("where", ["check_params", "add_request", "stats"])
def test_a_panic_in_one_call_reaches_its_caller_and_ends_nothing(where: str) -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        own = getattr(fake, where)

        def panic(*args: object, **options: object) -> None:
            setattr(fake, where, own)
            raise PanicException("index out of bounds")

        fake.check_params = lambda params: None  # type: ignore[method-assign]
        setattr(fake, where, panic)
        with pytest.raises(RuntimeError, match="PanicException: index out of bounds"):
            await (engine.call("stats") if where == "stats" else engine.submit("abc", GRAMMAR))
        assert await text_of(await engine.submit("abc")) == "cba"
        assert waiting_for(engine) == set()

    on_engine(test)


def test_a_panic_of_the_tokenizer_reaches_its_caller() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        def panic() -> None:
            raise PanicException("not a char boundary")

        with pytest.raises(RuntimeError, match="PanicException: not a char boundary"):
            await engine.in_tokenizer(panic)

    on_engine(test)


def test_what_is_lost_of_one_stream_is_not_lost_of_the_others() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        fake.step_seconds = 0.001
        broken = await engine.submit(LONG)

        def put(output: object) -> None:
            raise RuntimeError("boom")

        broken.put = put  # type: ignore[method-assign, assignment]
        assert await text_of(await engine.submit("def")) == "fed"
        with pytest.raises(YaieError, match="was lost"):
            await text_of(broken)
        assert engine.num_streams == 0

    on_engine(test)


def test_what_cannot_be_measured_costs_nobody_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        def broken(*_: object) -> None:
            raise RuntimeError("boom")

        monkeypatch.setattr(Latencies, "_finished", broken)
        assert await text_of(await engine.submit("abc")) == "cba"
        assert await text_of(await engine.submit("def")) == "fed"

    on_engine(test)
