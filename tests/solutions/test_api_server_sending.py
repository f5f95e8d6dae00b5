"""Lab 8: answers on the wire."""

import json
from typing import Any

import pytest

from grader.kit.api import FakeStream, Wire, make_request, scripted
from grader.kit.waiting import run
from solutions.api_server import DONE, TextReply, event, streamed_answer, whole_answer
from yaie.core.errors import EngineDeadError, YaieError


def data_of(body: bytes) -> list[Any]:
    """The events of a body; [DONE] must be the last, and only there."""
    *events, last, empty = body.split(b"\n\n")
    assert (last, empty) == (b"data: [DONE]", b"")
    return [json.loads(line.removeprefix(b"data: ")) for line in events]


def test_an_event_is_one_line_of_compact_json_and_an_empty_one() -> None:
    assert event({"a": [1, None], "b": "x\ny"}) == b'data: {"a":[1,null],"b":"x\\ny"}\n\n'


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\x85", "\r", "é", "🙂", "\ud800"])
def test_an_event_is_ascii_and_its_text_comes_back(char: str) -> None:
    sent = event({"text": char})
    assert sent.isascii()
    assert len(sent.decode().splitlines()) == 2
    assert json.loads(sent[6:]) == {"text": char}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_an_event_holds_no_number_that_json_does_not_know(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        event({"x": number})


def test_a_stream_sends_each_output_at_once_and_says_that_it_is_done() -> None:
    async def test() -> None:
        wire = Wire()
        stream, reply = scripted("a", "", "b.", usage=True)
        response = await streamed_answer(stream, reply)
        assert response.media_type == "text/event-stream"
        await response({}, wire.receive, wire.send)
        start, *bodies = wire.messages
        assert (start["type"], start["status"]) == ("http.response.start", 200)
        headers = dict(start["headers"])
        assert headers[b"content-type"].startswith(b"text/event-stream")
        assert headers[b"cache-control"] == b"no-cache"
        assert b"content-length" not in headers
        assert all(body["type"] == "http.response.body" for body in bodies)
        assert [body["more_body"] for body in bodies] == [True, True, True, False]
        assert bodies[-1]["body"] == DONE
        *chunks, counts = data_of(wire.body)
        assert [chunk["choices"][0]["text"] for chunk in chunks] == ["a", "b.", ""]
        assert counts["choices"] == []
        assert counts["usage"]["completion_tokens"] == 3
        assert stream.closed

    run(test())


def test_without_being_asked_a_stream_sends_no_usage() -> None:
    async def test() -> None:
        wire = Wire()
        await (await streamed_answer(*scripted("a."))).__call__({}, wire.receive, wire.send)
        assert all("usage" not in chunk for chunk in data_of(wire.body))

    run(test())


@pytest.mark.parametrize("fault", [EngineDeadError("dead"), RuntimeError("secret")])
def test_an_error_before_the_first_output_is_raised_and_the_stream_closed(fault: Exception) -> None:
    stream, reply = scripted(fault)
    with pytest.raises(type(fault)):
        run(streamed_answer(stream, reply))
    assert stream.closed


def test_a_request_that_fails_at_once_is_raised_and_the_stream_closed() -> None:
    request = make_request()
    stream = FakeStream([request], [request.fails("not finite")])
    with pytest.raises(YaieError):
        run(streamed_answer(stream, TextReply("m", stream.requests)))
    assert stream.closed


def test_an_error_after_the_first_output_is_an_event_before_done() -> None:
    async def test() -> None:
        wire = Wire()
        stream, reply = scripted("a", EngineDeadError("It died."))
        response = await streamed_answer(stream, reply)
        await response({}, wire.receive, wire.send)
        first, last = data_of(wire.body)
        assert first["choices"][0]["text"] == "a"
        assert (last["error"]["code"], last["error"]["message"]) == ("engine_dead", "It died.")
        assert wire.messages[-1]["more_body"] is False
        assert stream.closed

    run(test())


def test_an_accident_in_a_stream_is_told_without_its_words_and_raised() -> None:
    async def test() -> None:
        wire = Wire()
        stream, reply = scripted("a", RuntimeError("secret"))
        response = await streamed_answer(stream, reply)
        with pytest.raises(RuntimeError):
            await response({}, wire.receive, wire.send)
        assert data_of(wire.body)[-1]["error"]["code"] == "internal_error"
        assert b"secret" not in wire.body
        assert stream.closed

    run(test())


def test_a_whole_answer_is_one_json_object() -> None:
    stream, reply = scripted("a", "b.")
    response = run(whole_answer(stream, reply))
    assert json.loads(response.body) == reply.result()
    assert stream.closed


def test_a_whole_answer_that_fails_is_raised_and_its_siblings_are_aborted() -> None:
    stream, reply = scripted("a", EngineDeadError("dead"))
    with pytest.raises(EngineDeadError):
        run(whole_answer(stream, reply))
    assert stream.closed
