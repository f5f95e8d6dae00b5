"""What a client gets when replicas answer, turn away, and die. No Ray: the replicas are made up here."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from yaie.cluster.exchange import Asked, ReplicaLostError
from yaie.cluster.forward import MOST_ATTEMPTS, Forward
from yaie.cluster.lost import MESSAGE
from yaie.cluster.prefixes import chain
from yaie.cluster.prompt_start import prompt_start
from yaie.core.errors import EngineOverloadedError
from yaie.parts import load_part
from yaie.server.dialects.messages_errors import PATH as MESSAGES
from yaie.server.dialects.messages_errors import AnthropicErrors
from yaie.server.request_head import Heads

JSON = [(b"content-type", b"application/json")]
EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]
Plan = list[list[Any]]


class FakeReplicas:
    """Answers the first request by the first plan, and so on. A plan's exception is raised where it
    stands. asked: what has come. closed: answers that were fetched no further."""

    def __init__(self, plans: Plan) -> None:
        self.plans = plans
        self.asked: list[Asked] = []
        self.closed = 0

    async def answer(self, asked: Asked) -> AsyncIterator[list[Any]]:
        plan = self.plans[len(self.asked)]
        self.asked.append(asked)
        try:
            for piece in plan:
                if isinstance(piece, Exception):
                    raise piece
                if piece is ...:
                    await asyncio.Event().wait()
                yield piece
        finally:
            self.closed += 1

    async def everywhere(self, asked: Asked) -> list[tuple[int, bytes]]:
        raise NotImplementedError


def ask(
    plans: Plan, path: str = "/v1/completions", body: bytes = b"{}", **headers: str
) -> tuple[httpx.Response, FakeReplicas]:
    replicas = FakeReplicas(plans)
    api = load_part("api_server", "none").package
    app = Heads(Forward(replicas, api), api.http_error, {MESSAGES: AnthropicErrors})

    async def post() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://cluster") as client:
            return await client.post(path, content=body, headers=headers)

    return asyncio.run(post()), replicas


def begun(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> list[Any]:
    head = {"type": "http.response.start", "status": status, "headers": headers}
    return [head, *more(body)]


def more(body: bytes) -> list[Any]:
    return [{"type": "http.response.body", "body": body, "more_body": True}]


def lost(replica: str = "") -> ReplicaLostError:
    return ReplicaLostError("killed", replica)


def test_an_answer_comes_through_as_the_replica_gave_it() -> None:
    response, replicas = ask(
        [[begun(201, [*JSON, (b"x-a", b"b")], b"{"), more(b'"a": '), more(b"1}")]]
    )
    assert (response.status_code, response.json(), response.headers["x-a"]) == (201, {"a": 1}, "b")
    assert len(replicas.asked) == 1


def test_a_replica_gets_the_request_as_it_came() -> None:
    body = json.dumps({"prompt": "x" * 200}).encode()
    _, replicas = ask(
        [[begun(200, JSON, b"{}")]], "/v1/a%20b?c=d%26", body, authorization="Bearer k"
    )
    [asked] = replicas.asked
    scope = asked.scope
    assert (scope["method"], scope["path"], scope["raw_path"]) == ("POST", "/v1/a b", b"/v1/a%20b")
    assert (scope["query_string"], asked.body) == (b"c=d%26", body)
    assert (b"authorization", b"Bearer k") in scope["headers"]
    assert asked.beginnings == chain(prompt_start(body)) != ()


def test_what_has_not_begun_is_done_elsewhere() -> None:
    response, replicas = ask([[lost("a")], [lost("b")], [begun(200, JSON, b"{}")]])
    assert (response.status_code, response.json()) == (200, {})
    first, second, third = replicas.asked
    assert third == replace(second, avoid=frozenset("ab")) == replace(first, avoid=frozenset("ab"))
    assert (first.avoid, second.avoid) == (frozenset(), frozenset("a"))


def test_an_answer_without_a_beginning_is_asked_for_elsewhere() -> None:
    response, replicas = ask([[], [begun(200, JSON, b"{}")]])
    assert (response.status_code, len(replicas.asked)) == (200, 2)


def test_a_request_that_kills_replicas_does_not_meet_them_all() -> None:
    response, replicas = ask([[lost()]] * (MOST_ATTEMPTS + 5))
    assert len(replicas.asked) == MOST_ATTEMPTS
    assert response.status_code == 503
    assert response.json()["error"]["message"] == MESSAGE
    assert response.headers["retry-after"] == "1"


def test_a_full_cluster_says_so_at_once() -> None:
    response, replicas = ask([[EngineOverloadedError("full")]])
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.json()["error"]["type"] == "overloaded_error"
    assert len(replicas.asked) == 1


STREAM = [begun(200, EVENTS, b"data: {}\n\n"), more(b'data: {"a": "b"}\n\ndata: {}\n\n'), lost()]


def test_a_stream_that_had_begun_ends_with_an_error_event() -> None:
    response, replicas = ask([STREAM, []])
    *events, error, done = response.text.strip().split("\n\n")
    assert len(events) == 3
    assert done == "data: [DONE]"
    told = json.loads(error.removeprefix("data: "))["error"]
    assert told == {
        "message": MESSAGE,
        "type": "server_error",
        "param": None,
        "code": "engine_dead",
    }
    assert len(replicas.asked) == 1


def test_a_stream_of_messages_ends_with_anthropics_error_event() -> None:
    response, _ = ask([STREAM], "/v1/messages")
    name, _, data = response.text.strip().split("\n\n")[-1].partition("\n")
    assert name == "event: error"
    told = json.loads(data.removeprefix("data: "))
    assert (told["type"], told["error"]["message"]) == ("error", MESSAGE)


def test_a_stream_of_a_response_goes_on_counting_its_events() -> None:
    response, _ = ask([STREAM], "/v1/responses")
    name, _, data = response.text.strip().split("\n\n")[-1].partition("\n")
    assert name == "event: error"
    told = json.loads(data.removeprefix("data: "))
    assert (told["sequence_number"], told["code"], told["type"]) == (3, "engine_dead", "error")


def test_half_an_answer_that_is_no_stream_is_not_passed_off_as_whole() -> None:
    with pytest.raises(Exception, match="has died"):
        ask([[begun(200, JSON, b'{"a": '), lost()]])


def test_refusals_below_messages_have_anthropics_shape() -> None:
    response, _ = ask([[lost()]] * MOST_ATTEMPTS, "/v1/messages")
    assert response.json()["type"] == "error"


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_a_client_that_leaves_takes_its_request_along() -> None:
    replicas = FakeReplicas([[begun(200, EVENTS, b"data: {}\n\n"), ...]])
    forward = Forward(replicas, load_part("api_server", "none").package)
    sent: list[Any] = []

    async def leave() -> None:
        gone = asyncio.Event()
        messages = [{"type": "http.request", "body": b"{}"}]

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/x", "query_string": b"", "headers": []}
        serving = asyncio.create_task(forward(scope, receive, send))
        await until(lambda: len(sent) == 2)
        assert replicas.closed == 0
        gone.set()
        await serving

    asyncio.run(leave())
    assert replicas.closed == 1
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
