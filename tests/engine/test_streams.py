"""RequestStream: outputs that pile up, streams that are closed, and the first turn."""

import asyncio

from tests.engine.test_async_engine import LONG, on_engine, text_of, until
from tests.server.fake_engine import FakeEngine
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason
from yaie.engine.background.async_engine import AsyncEngine


def test_slow_consumer_finds_its_outputs_merged() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        stream = await engine.submit(LONG)
        await until(lambda: stream.is_over)
        outputs = [output async for output in stream]
        assert len(outputs) == 1
        assert outputs[0].text == LONG
        assert len(outputs[0].token_ids) == len(LONG)
        assert outputs[0].finish_reason is FinishReason.STOP

    on_engine(test)


def test_closing_a_stream_aborts_every_choice() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        fake.gate.clear()
        stream = await engine.submit(LONG, SamplingParams(n=2))
        await stream.aclose()
        fake.gate.set()
        await until(lambda: not fake.alive)
        assert sorted(fake.aborted) == sorted(request.request_id for request in stream.requests)
        assert engine.num_streams == 0

    on_engine(test)


def test_closing_a_finished_stream_aborts_nothing() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        stream = await engine.submit("abc")
        await text_of(stream)
        await stream.aclose()
        await text_of(await engine.submit("abc"))
        assert fake.aborted == []

    on_engine(test)


def test_closing_a_stream_ends_its_reader_in_another_task() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        fake.gate.clear()
        stream = await engine.submit(LONG)
        reader = asyncio.create_task(text_of(stream))
        await until(fake.held.is_set)
        await stream.aclose()
        assert await asyncio.wait_for(reader, 2) == ""

    on_engine(test)


def test_a_closed_stream_yields_no_more() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        stream = await engine.submit("abc")
        await until(lambda: stream.is_over)
        await stream.aclose()
        assert await text_of(stream) == ""

    on_engine(test)


def test_a_stream_has_started_with_its_first_turn() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        fake.gate.clear()
        stream = await engine.submit(LONG)
        await until(fake.held.is_set)
        assert not stream.has_started
        fake.step = lambda: fake._started.extend(fake.alive) or []  # type: ignore[method-assign, func-returns-value]
        fake.gate.set()
        await until(lambda: stream.has_started)
        await stream.aclose()

    on_engine(test)
