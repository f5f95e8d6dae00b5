"""AsyncEngine and RequestStream, on an engine that can be held, slowed and broken."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.server.fake_engine import FakeEngine
from yaie.core.errors import (
    EngineDeadError,
    EngineUnavailableError,
    InvalidRequestError,
    ModelError,
)
from yaie.core.params import SamplingParams
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.background.engine_life import EngineState
from yaie.engine.background.streams import RequestStream

LONG = "x" * 900
Test = Callable[[FakeEngine, AsyncEngine], Coroutine[Any, Any, None]]


@asynccontextmanager
async def started(fake: FakeEngine) -> AsyncIterator[AsyncEngine]:
    engine = AsyncEngine(lambda: fake)  # type: ignore[arg-type, return-value]
    await engine.start()
    yield engine
    fake.gate.set()
    await engine.shutdown()


def on_engine(test: Test) -> None:
    """Run a test on a started engine, and give up rather than hang."""

    async def run() -> None:
        fake = FakeEngine()
        async with started(fake) as engine:
            await test(fake, engine)

    asyncio.run(asyncio.wait_for(run(), 10))


async def text_of(stream: RequestStream) -> str:
    return "".join([output.text async for output in stream])


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_stream_joins_to_the_whole_answer() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        assert await text_of(await engine.submit("abc")) == "cba"

    on_engine(test)


def test_priority_reaches_the_engine() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        await text_of(await engine.submit("abc", priority=-3))
        assert fake.priorities == [-3]

    on_engine(test)


def test_many_streams_run_at_once() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        streams = await asyncio.gather(*(engine.submit(f"prompt {i}") for i in range(50)))
        texts = await asyncio.gather(*(text_of(stream) for stream in streams))
        assert texts == [f"prompt {i}"[::-1] for i in range(50)]
        assert fake.steps < 50 * len("prompt 10")

    on_engine(test)


def test_outputs_of_n_choices_are_told_apart() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        stream = await engine.submit("abcdef", SamplingParams(n=3))
        texts = dict.fromkeys((request.request_id for request in stream.requests), "")
        async for output in stream:
            texts[output.request_id] += output.text
        assert list(texts.values()) == ["fedcba"] * 3

    on_engine(test)


def test_validation_error_is_raised_in_the_caller() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        with pytest.raises(InvalidRequestError, match="empty"):
            await engine.submit("")
        assert engine.num_streams == 0

    on_engine(test)


def test_one_bad_prompt_admits_none_of_its_batch() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        with pytest.raises(InvalidRequestError):
            await engine.submit_all([LONG, LONG, ""])
        assert not fake.alive
        assert len(fake.aborted) == 2

    on_engine(test)


def test_the_engine_is_closed_at_the_end() -> None:
    fake = FakeEngine()

    async def run() -> None:
        async with started(fake):
            assert not fake.closed

    asyncio.run(run())
    assert fake.closed


def test_caller_that_leaves_before_admission_is_never_queued() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        fake.gate.clear()
        await engine.submit(LONG)  # holds the engine's thread in a step
        await until(fake.held.is_set)
        waiting = asyncio.create_task(engine.submit("never admitted in time"))
        await until(lambda: engine.num_streams == 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        fake.gate.set()
        await engine.stats()  # what was sent before it has been seen by then
        assert len(fake.priorities) == 1
        assert engine.num_streams == 1

    on_engine(test)


def test_loop_is_free_while_a_step_takes_long() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        fake.gate.clear()
        await engine.submit(LONG)

        async def turns() -> None:
            for _ in range(10):
                await asyncio.sleep(0.001)

        await asyncio.wait_for(turns(), 5)

    on_engine(test)


def test_idle_engine_takes_no_step() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        await text_of(await engine.submit("abc"))
        steps = fake.steps
        await asyncio.sleep(0.05)
        assert fake.steps == steps

    on_engine(test)


def test_everything_that_changes_the_engine_runs_on_one_thread() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        seen = set()
        step = fake.step

        def watched() -> Any:
            seen.add(threading.current_thread().name)
            return step()

        fake.step = watched  # type: ignore[method-assign]
        await text_of(await engine.submit("abc"))
        assert seen == {"yaie-engine"}

    on_engine(test)


@pytest.mark.parametrize("fault", [RuntimeError("boom"), SystemExit(3)])
def test_failing_step_ends_every_request_and_the_engine(
    fault: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        fake.gate.clear()
        running = await engine.submit(LONG)
        await until(fake.held.is_set)  # only then does the second wait behind a step
        queued = asyncio.create_task(engine.submit(LONG))
        await until(lambda: engine.num_streams == 2)
        fake.fault = fault
        fake.gate.set()
        with pytest.raises(EngineDeadError):
            await text_of(running)
        with pytest.raises(EngineDeadError):
            await queued
        assert engine.state is EngineState.DEAD
        assert engine.failure is fault
        with pytest.raises(EngineDeadError):
            await engine.submit("abc")

    on_engine(test)
    assert "Traceback" in caplog.text


def test_what_loading_raises_reaches_the_starter() -> None:
    async def run() -> None:
        def load() -> Any:
            raise ModelError("no such model")

        engine = AsyncEngine(load)
        with pytest.raises(ModelError, match="no such model"):
            await engine.start()
        assert engine.state is EngineState.DEAD

    asyncio.run(run())


def test_submitting_while_loading_is_refused() -> None:
    async def run() -> None:
        fake = FakeEngine()
        may_load = threading.Event()
        engine = AsyncEngine(lambda: may_load.wait() and fake)  # type: ignore[arg-type, return-value]
        starting = asyncio.create_task(engine.start())
        await asyncio.sleep(0)
        with pytest.raises(EngineUnavailableError, match="loading"):
            await engine.submit("abc")
        may_load.set()
        await starting
        assert engine.state is EngineState.READY
        await engine.shutdown()

    asyncio.run(run())


def test_a_shutdown_while_the_model_loads_is_no_fault_of_the_start() -> None:
    async def run() -> None:
        fake = FakeEngine()
        may_load = threading.Event()
        engine = AsyncEngine(lambda: may_load.wait() and fake)  # type: ignore[arg-type, return-value]
        starting = asyncio.create_task(engine.start())
        await asyncio.sleep(0)
        await engine.shutdown()
        may_load.set()
        await starting
        assert engine.state is EngineState.DRAINING

    asyncio.run(run())


async def while_draining(
    fake: FakeEngine, engine: AsyncEngine, seconds: float
) -> tuple[RequestStream, Awaitable[None]]:
    fake.gate.clear()
    stream = await engine.submit(LONG)
    draining = asyncio.create_task(engine.shutdown(seconds))
    await until(lambda: engine.state is EngineState.DRAINING)
    return stream, draining


def test_drain_lets_what_runs_finish_and_admits_nothing() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        stream, draining = await while_draining(fake, engine, seconds=5)
        with pytest.raises(EngineUnavailableError, match="shutting down"):
            await engine.submit("abc")
        fake.gate.set()
        assert await text_of(stream) == LONG
        await draining

    on_engine(test)


def test_drain_gives_up_at_its_limit_and_leaves_the_engine_empty() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        stream, draining = await while_draining(fake, engine, seconds=0.05)
        with pytest.raises(EngineUnavailableError, match="shutting down"):
            await text_of(stream)
        fake.gate.set()
        await draining
        assert not fake.alive

    on_engine(test)
