"""What others than submissions ask of an AsyncEngine, and how much may wait for it at a time."""

import asyncio
import threading

import pytest

from tests.engine.test_async_engine import LONG, on_engine, text_of, until
from tests.server.fake_engine import FakeEngine
from yaie.core.constraint import Constraint
from yaie.core.errors import (
    EngineDeadError,
    EngineOverloadedError,
    EngineUnavailableError,
    InvalidRequestError,
)
from yaie.core.params import SamplingParams
from yaie.engine.background import engine_life, prompts
from yaie.engine.background.async_engine import AsyncEngine


def test_call_runs_between_two_steps_on_the_engines_thread() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        fake.step_seconds = 0.001
        fake.where = lambda *args: (threading.current_thread().name, *args)  # type: ignore[attr-defined]
        stream = await engine.submit(LONG)
        assert await engine.call("where", 1, "two") == ("yaie-engine", 1, "two")
        await stream.aclose()

    on_engine(test)


def test_what_a_call_raises_reaches_the_caller_and_nobody_else() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        fake.divide = lambda: 1 // 0  # type: ignore[attr-defined]
        with pytest.raises(ZeroDivisionError):
            await engine.call("divide")
        assert await text_of(await engine.submit("abc")) == "cba"

    on_engine(test)


def test_call_does_not_wait_for_a_long_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_life, "CALL_SECONDS", 0.1)

    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        fake.gate.clear()
        await engine.submit(LONG)
        await until(fake.held.is_set)
        called: list[object] = []
        fake.note = called.append  # type: ignore[attr-defined]
        with pytest.raises(EngineOverloadedError):
            await engine.call("note", 1)
        fake.gate.set()
        await engine.stats()
        assert called == []  # its caller had left

    on_engine(test)


def test_call_ends_with_the_engine() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        fake.gate.clear()
        await engine.submit(LONG)
        await until(fake.held.is_set)
        asking = asyncio.create_task(engine.stats())
        await asyncio.sleep(0)
        fake.fault = RuntimeError("boom")
        fake.gate.set()
        with pytest.raises(EngineDeadError):
            await asyncio.wait_for(asking, 2)

    on_engine(test)


GRAMMAR = SamplingParams(constraint=Constraint("lark", "start: /a/"))


def test_grammar_is_compiled_beside_the_steps() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        gate, compiling = threading.Event(), threading.Event()
        fake.check_params = lambda params: compiling.set() or gate.wait(5)  # type: ignore[method-assign, assignment, func-returns-value]
        asking = asyncio.create_task(engine.submit("slow", GRAMMAR))
        await until(compiling.is_set)
        assert await text_of(await engine.submit("abc")) == "cba"
        gate.set()
        assert await text_of(await asking) == "wols"

    on_engine(test)


def test_grammar_that_does_not_compile_is_refused() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        def refuse(params: SamplingParams) -> None:
            raise InvalidRequestError("no such rule", param="response_format")

        fake.check_params = refuse  # type: ignore[method-assign]
        with pytest.raises(InvalidRequestError, match="no such rule"):
            await engine.submit("abc", GRAMMAR)
        assert fake.priorities == []
        assert engine.num_streams == 0
        assert engine._driver._wanted == set()  # type: ignore[attr-defined]

    on_engine(test)


def test_caller_that_leaves_while_its_grammar_compiles_is_never_queued() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        gate, compiling = threading.Event(), threading.Event()
        fake.check_params = lambda params: compiling.set() or gate.wait(5)  # type: ignore[method-assign, assignment, func-returns-value]
        asking = asyncio.create_task(engine.submit("slow", GRAMMAR))
        await until(compiling.is_set)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        gate.set()
        await until(lambda: not engine._unanswered)
        assert fake.priorities == []

    on_engine(test)


def test_stats_are_those_of_the_engine() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        assert await engine.stats() == fake.stats()

    on_engine(test)


def test_dead_engine_is_not_asked() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        fake.fault = RuntimeError("boom")
        with pytest.raises(EngineDeadError):
            await text_of(await engine.submit("abc"))
        with pytest.raises(EngineDeadError):
            await engine.stats()

    on_engine(test)


def test_loading_engine_is_not_asked() -> None:
    async def run() -> None:
        with pytest.raises(EngineUnavailableError):
            await AsyncEngine(FakeEngine).stats()  # type: ignore[arg-type]

    asyncio.run(run())


def small_inbox(fake: FakeEngine) -> None:
    object.__setattr__(fake.config, "max_waiting", 3)


def test_inbox_is_bounded_while_a_step_takes_long() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        small_inbox(fake)
        fake.gate.clear()
        await engine.submit(LONG)
        await until(fake.held.is_set)
        waiting = [asyncio.create_task(engine.submit([5] * 3)) for _ in range(3)]
        await until(lambda: len(engine._unanswered) == 3)
        with pytest.raises(EngineOverloadedError):
            await engine.submit([5] * 3)
        with pytest.raises(EngineOverloadedError):
            await engine.stats()
        assert engine.is_full
        fake.gate.set()
        for stream in await asyncio.gather(*waiting):
            await text_of(stream)
        assert not engine.is_full

    on_engine(test)


@pytest.fixture
def no_short_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text goes to the tokenizer's thread."""
    monkeypatch.setattr(prompts, "SHORT_PROMPT", -1)


@pytest.mark.usefixtures("no_short_prompts")
def test_texts_that_wait_for_the_tokenizer_are_bounded() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        small_inbox(fake)
        gate = threading.Event()
        encode = fake.tokenizer.encode

        def slow(text: str, add_special_tokens: bool = True) -> list[int]:
            gate.wait(5)
            return encode(text)

        fake.tokenizer.encode = slow  # type: ignore[method-assign, assignment]
        waiting = [asyncio.create_task(engine.submit("abc")) for _ in range(3)]
        await until(lambda: engine._prompts.short_texts.num_pending == 3)
        with pytest.raises(EngineOverloadedError):
            await engine.submit("abc")
        gate.set()
        assert [await text_of(stream) for stream in await asyncio.gather(*waiting)] == ["cba"] * 3

    on_engine(test)


@pytest.mark.usefixtures("no_short_prompts")
def test_text_whose_caller_has_left_is_not_tokenized() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        gate, seen = threading.Event(), []

        def slow(text: str, add_special_tokens: bool = True) -> list[int]:
            seen.append(text)
            gate.wait(5)
            return [5]

        fake.tokenizer.encode = slow  # type: ignore[method-assign, assignment]
        tasks = [asyncio.create_task(engine.submit(text)) for text in ("one", "two")]
        await until(lambda: seen == ["one"] and engine._prompts.short_texts.num_pending == 2)
        tasks[1].cancel()
        await asyncio.gather(tasks[1], return_exceptions=True)
        gate.set()
        await text_of(await tasks[0])
        await until(lambda: engine._prompts.short_texts.num_pending == 0)
        assert seen == ["one"]

    on_engine(test)


def test_short_text_is_tokenized_on_the_event_loop_unless_its_thread_is_busy() -> None:
    async def test(fake: FakeEngine, engine: AsyncEngine) -> None:
        seen = []
        encode = fake.tokenizer.encode

        def watched(text: str, add_special_tokens: bool = True) -> list[int]:
            seen.append((text, threading.current_thread() is threading.main_thread()))
            return encode(text)

        fake.tokenizer.encode = watched  # type: ignore[method-assign, assignment]
        await text_of(await engine.submit("abc"))
        gate = threading.Event()
        busy = asyncio.create_task(engine.in_tokenizer(gate.wait, 5))
        await until(lambda: engine._prompts.short_texts.num_pending == 1)
        second = asyncio.create_task(engine.submit("def"))
        await asyncio.sleep(0)
        gate.set()
        await busy
        await text_of(await second)
        assert seen == [("abc", True), ("def", False)]

    on_engine(test)
