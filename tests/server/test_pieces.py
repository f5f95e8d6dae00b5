"""Plain pieces are written past ASGI, and a client cannot tell: every byte is as if they were not."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.server import conftest
from tests.server.conftest import LiveServer, patiently, serving, within
from tests.server.fake_engine import FakeEngine
from tests.server.test_limits import connect, raw
from yaie.parts import load_parts
from yaie.server import direct
from yaie.server.direct import Outbox, PieceWriter

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
LONG = {"max_tokens": 60, "ignore_eos": True, "temperature": 1.5, "seed": 3}
WIDE = 'a"\\/\u2028\u0085\x00\x7f\t\r\n é 中文 👩‍👩‍👧 🇩🇪 z'


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every piece that was written past ASGI."""
    found: list[bytes] = []
    write = PieceWriter.write

    def noted(self: PieceWriter, piece: bytes) -> bool:
        is_written = write(self, piece)
        found.extend([piece] * is_written)
        return is_written

    monkeypatch.setattr(PieceWriter, "write", noted)
    return found


def post(path: str, body: dict[str, Any], version: str = "1.1") -> bytes:
    content = json.dumps({**body, "stream": True}).encode()
    head = f"POST {path} HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Connection: close\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def told(answer: bytes) -> bytes:
    """An answer without what differs from one call to the next, the length of an id apart."""
    return re.sub(rb'cmpl-\w{32}|"created":\d{10}|x-request-id: \w+|date: [^\r]*', b"", answer)


def texts(answer: bytes) -> str:
    """The text of the first choice, of a body in chunks or not."""
    events = re.findall(rb"^data: (\{.*\})\r?$", answer, re.M)
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    return "".join(choice.get("text") or "" for choice in choices if choice["index"] == 0)


@contextmanager
def through_asgi() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PieceWriter, "of", lambda send, outbox: None)
        yield


def both_ways(server: LiveServer, path: str, body: dict[str, Any], **options: Any) -> bytes:
    """The answer, which is the same both ways."""
    answer = raw(server, post(path, body, **options))
    with through_asgi():
        assert told(raw(server, post(path, body, **options))) == told(answer)
    return answer


@pytest.mark.parametrize(
    ("fields", "is_plain"),
    [
        ({}, True),
        ({"stream_options": {"include_usage": True}}, True),
        ({"stop": ["e", "zq", "\n\n"]}, True),
        ({"n": 3}, True),
        ({"prompt": ["ab", "cd"], "n": 2}, True),
        ({"prompt": ["one", "another"], "stream_options": {"include_usage": True}}, True),
        ({"max_tokens": 1}, False),
        ({"max_tokens": 2}, False),
        ({"logprobs": 2}, False),
        ({"echo": True}, False),
        ({"return_token_ids": True}, False),
        ({"stream_options": {"include_usage": True, "continuous_usage_stats": True}}, False),
        ({"max_tokens": 0, "echo": True}, False),
    ],
    ids=str,
)
def test_every_byte_is_the_same_whatever_is_asked_for(
    live: LiveServer,
    written: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, Any],
    is_plain: bool,
) -> None:
    monkeypatch.setattr(live.llm, "step", patiently(live, live.llm.step))
    answer = both_ways(live, TEXT, {"prompt": "hello", **LONG, **fields})
    assert answer.startswith(b"HTTP/1.1 200")
    assert bool(written) is is_plain
    assert all(piece in answer for piece in written)


@pytest.fixture
def steady(fake: FakeEngine, fake_live: LiveServer) -> LiveServer:
    """A server on the fake engine, whose steps wait for readers."""
    fake.step = patiently(fake_live, fake.step)  # type: ignore[method-assign]
    return fake_live


@pytest.mark.parametrize("path", [TEXT, CHAT])
@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}])
def test_text_of_any_kind_comes_as_it_does_through_asgi(
    steady: LiveServer, written: list[bytes], path: str, options: dict[str, Any]
) -> None:
    asked = {"prompt": WIDE} if path == TEXT else {"messages": [{"role": "user", "content": WIDE}]}
    both_ways(steady, path, {**asked, **options, "max_tokens": 100})
    assert len(written) == len(WIDE) - 2  # all but the first, which shows how, and the last


def test_a_client_of_http_1_0_gets_no_chunks_and_all_of_the_text(
    steady: LiveServer, written: list[bytes]
) -> None:
    answer = both_ways(steady, TEXT, {"prompt": "abcdef"}, version="1.0")
    assert texts(answer) == "fedcba"
    assert not written


def test_an_engine_that_dies_in_mid_answer_says_so_behind_the_pieces(written: list[bytes]) -> None:
    def broken() -> bytes:
        fake = FakeEngine()
        with serving(lambda: fake) as server:
            fake.step = patiently(server, fake.step)  # type: ignore[method-assign]
            fake.pause_after(5)
            answers: list[bytes] = []
            body = post(TEXT, {"prompt": "abcdefghij"})
            asking = threading.Thread(target=lambda: answers.append(raw(server, body)))
            asking.start()
            assert fake.paused.wait(20)
            fake.fault = RuntimeError("a kernel failed")
            fake.gate.set()
            asking.join(20)
            return answers[0]

    answer = broken()
    assert len(written) == 4
    assert b'"error"' in answer
    assert b"data: [DONE]" in answer
    with through_asgi():
        assert told(broken()) == told(answer)


def test_leaving_behind_some_pieces_aborts_the_rest_and_they_are_counted(
    fake: FakeEngine, steady: LiveServer, written: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    fake.pause_after(8)
    with caplog.at_level("INFO"), connect(steady) as connection:
        connection.sendall(post(TEXT, {"prompt": "x" * 500}))
        assert fake.paused.wait(20)
        within(20, lambda: len(written) > 0)
        connection.close()
        within(20, lambda: "client left" in caplog.text)
    fake.gate.set()
    within(20, lambda: bool(fake.aborted))
    within(20, lambda: not fake.alive and steady.engine.num_streams == 0)
    assert re.search(r"client left: prompt 500 .*output 8,", caplog.text)


def test_a_second_request_on_the_connection_is_answered_after_the_stream(
    steady: LiveServer, written: list[bytes]
) -> None:
    first = post(TEXT, {"prompt": "abcdef"}).replace(b"Connection: close\r\n", b"")
    answer = raw(steady, first + post(TEXT, {"prompt": "uvwxyz"}))
    assert texts(answer) == "fedcbazyxwvu"
    assert len(written) == 2 * 4


def test_unknown_insides_of_the_server_leave_everything_to_asgi(
    steady: LiveServer, written: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "KNOWN", (*direct.KNOWN, "of_another_version"))
    assert texts(raw(steady, post(TEXT, {"prompt": "abcdef"}))) == "fedcba"
    assert not written


class Shouting:
    """Middleware that changes a body. late: it holds each piece back until the next one comes."""

    late = False

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held: list[Message] = []

        async def shout(message: Message) -> None:
            if not self.late and "body" in message:
                message = {**message, "body": message["body"].replace(b'"text":"', b'"text":"!')}
            held.append(message)
            while held and not (self.late and message.get("more_body")):
                await send(held.pop(0))

        await self._app(scope, receive, shout)


@pytest.mark.parametrize("late", [False, True])
def test_behind_what_changes_bodies_or_holds_them_back_nothing_goes_past_it(
    fake: FakeEngine, written: list[bytes], monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    monkeypatch.setattr(Shouting, "late", late)
    create_app = conftest.create_app
    monkeypatch.setattr(
        conftest, "create_app", lambda *given, **options: Shouting(create_app(*given, **options))
    )
    with serving(lambda: fake) as server:
        fake.step = patiently(server, fake.step)  # type: ignore[method-assign]
        answer = raw(server, post(TEXT, {"prompt": "abcdef"}))
    assert texts(answer) == ("fedcba" if late else "!f!e!d!c!b!a!")
    assert not written


def test_a_learners_part_sends_every_piece_itself(fake: FakeEngine, written: list[bytes]) -> None:
    reference = load_parts("none")["api_server"]
    mine = ModuleType("labs.api_server")
    mine.__dict__.update({name: getattr(reference, name) for name in reference.__all__})
    with serving(lambda: fake, api=mine) as server:
        assert texts(raw(server, post(TEXT, {"prompt": "abcdef"}))) == "fedcba"
    assert not written


def test_nothing_goes_past_the_send_of_another_server() -> None:
    async def send(message: Message) -> None:
        pass

    assert PieceWriter.of(send, Outbox()) is None
