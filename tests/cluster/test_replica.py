"""One replica, called as Ray would, on an engine that does what it is told. Needs no Ray."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest

from tests.server.fake_engine import FakeEngine
from yaie.cluster.exchange import Asked, ReplicaLostError, http_scope
from yaie.cluster.replica import EngineReplica
from yaie.core.config import EngineConfig
from yaie.engine.background.async_engine import AsyncEngine
from yaie.server.settings import ServerSettings

Test = Callable[[Any], Awaitable[None]]


class Ended:
    """What a replica is turned into whose end has been awaited: Python would call it once more."""


ended: list[int] = []
"""How often the replica's process would have ended."""


def completion(**body: Any) -> Asked:
    path, sent = "/v1/completions", json.dumps({"prompt": "abcdef", **body}).encode()
    headers = [(b"content-type", b"application/json")]
    return Asked(http_scope("POST", path, headers=headers), sent)


def body_of(messages: list[Any]) -> bytes:
    return b"".join(message.get("body", b"") for message in messages)


def head_of(messages: list[Any]) -> tuple[int, str]:
    """Status and media type."""
    media_type = dict(messages[0]["headers"])[b"content-type"]
    return messages[0]["status"], media_type.partition(b";")[0].decode()


@pytest.fixture
def run(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> Callable[[Test], None]:
    """Run a coroutine with a replica of the fake engine, which it is then rid of."""
    monkeypatch.setattr("yaie.cluster.replica.engine_for", lambda *_: AsyncEngine(lambda: fake))
    monkeypatch.setattr("yaie.cluster.replica.start_logging", lambda *_: None)
    monkeypatch.setattr("yaie.cluster.replica.name_and_number", lambda: ("abc", "0"))
    monkeypatch.setattr("yaie.cluster.replica.LAST_WORDS_SECONDS", 0.2)
    monkeypatch.setattr("yaie.cluster.replica.end_process", lambda: ended.append(1))
    ended.clear()

    async def whole(test: Test) -> None:
        replica: Any = EngineReplica.__new__(EngineReplica)
        await replica.__init__(EngineConfig(mine="none"), ServerSettings(api_key=("secret",)))
        try:
            await asyncio.wait_for(test(replica), 20)
        finally:
            fake.gate.set()
            await replica.__del__()
            replica.__class__ = Ended

    return lambda test: asyncio.run(whole(test))


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_an_answer_is_a_head_and_a_body(run: Callable[[Test], None]) -> None:
    """The key was asked for by the ingress, so it is not asked for again."""

    async def test(replica: Any) -> None:
        answer = [
            message async for messages in replica.answer(completion()) for message in messages
        ]
        assert head_of(answer) == (200, "application/json")
        body = body_of(answer)
        assert json.loads(body)["choices"][0]["text"] == "fedcba"
        status, again = await replica.once(completion())
        assert (status, json.loads(again)["choices"]) == (200, json.loads(body)["choices"])

    run(test)


def test_a_stream_comes_as_it_is_made(run: Callable[[Test], None], fake: FakeEngine) -> None:
    async def test(replica: Any) -> None:
        fake.pause_after(2)
        pieces = replica.answer(completion(stream=True))
        begun = await anext(pieces)
        assert (*head_of(begun), b"data: " in body_of(begun)) == (200, "text/event-stream", True)
        await until(fake.paused.is_set)
        fake.gate.set()
        rest = b"".join([body_of(messages) async for messages in pieces])
        assert rest.endswith(b"data: [DONE]\n\n")

    run(test)


def test_an_error_is_an_answer_like_any_other(run: Callable[[Test], None]) -> None:
    async def test(replica: Any) -> None:
        status, body = await replica.once(completion(max_tokens="many"))
        assert (status, json.loads(body)["error"]["param"]) == (400, "max_tokens")

    run(test)


def test_a_caller_that_leaves_ends_the_request(
    run: Callable[[Test], None], fake: FakeEngine
) -> None:
    async def test(replica: Any) -> None:
        fake.pause_after(2)
        async with aclosing(replica.answer(completion(stream=True))) as pieces:
            await anext(pieces)
            await until(fake.paused.is_set)
        fake.gate.set()
        await until(lambda: len(fake.aborted) == 1)

    run(test)


def test_a_caller_that_is_cancelled_before_the_answer_ends_the_request(
    run: Callable[[Test], None], fake: FakeEngine
) -> None:
    async def test(replica: Any) -> None:
        fake.gate.clear()
        asking = asyncio.create_task(replica.once(completion()))
        await until(fake.held.is_set)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        fake.gate.set()
        await until(lambda: len(fake.aborted) == 1)

    run(test)


def test_a_dead_engine_leaves_what_had_not_begun_to_others(
    run: Callable[[Test], None], fake: FakeEngine
) -> None:
    async def test(replica: Any) -> None:
        await replica.check_health()
        fake.fault = RuntimeError("boom")
        for _ in range(2):  # the one that dies with it, and one that finds it dead
            with pytest.raises(ReplicaLostError) as lost:
                await anext(replica.answer(completion()))
            assert lost.value.replica == "abc"
        with pytest.raises(ReplicaLostError, match="boom"):
            await replica.check_health()
        await until(lambda: ended == [1])

    run(test)


def test_a_stream_that_had_begun_ends_with_the_engines_own_error(
    run: Callable[[Test], None], fake: FakeEngine
) -> None:
    async def test(replica: Any) -> None:
        fake.pause_after(3)
        pieces = replica.answer(completion(stream=True))
        assert head_of(await anext(pieces))[0] == 200
        await until(fake.paused.is_set)
        fake.fault = RuntimeError("boom")
        fake.gate.set()
        rest = b"".join([body_of(messages) async for messages in pieces])
        assert b'"code":"engine_dead"' in rest.replace(b": ", b":")
        assert rest.endswith(b"data: [DONE]\n\n")

    run(test)
