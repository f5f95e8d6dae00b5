"""`/v1/messages` on the wire: blocks, events, and failures of every origin.

What the official client makes of it is in `tests/judges/test_anthropic.py`.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.server.conftest import LiveServer, posted, serving, within
from tests.server.fake_engine import FakeEngine
from yaie.server.dialects.messages_body import MessagesRequest
from yaie.server.dialects.messages_reply import MessageReply
from yaie.server.extras.reply import Told
from yaie.server.tools.events import Arguments, Call, Content, End, Reasoning, merged

PATH = "/v1/messages"
COUNT = f"{PATH}/count_tokens"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 10}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(name: str, number: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": number, "name": name, "input": arguments}


def error_of(answer: httpx.Response, status: int, kind: str) -> str:
    """The message of an error in Anthropic's shape."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body.keys() == {"type", "error", "request_id"}
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert body["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    assert int(answer.headers["content-length"]) == len(answer.content)
    message: str = body["error"]["message"]
    return message


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    told = []
    for event in answer.text.strip().split("\n\n"):
        name, data = event.split("\n")
        told.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}"
    return told


# --- from the engine's words to a message ---


def test_stream_on_the_wire_has_named_events_and_no_done(fake_live: LiveServer) -> None:
    answer = fake_live.http.post(PATH, json={**ASK, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["request-id"]
    events = events_of(answer)
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert set(kinds[2:-3]) == {"content_block_delta"}  # one or more, as the steps come
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert (events[1]["index"], events[1]["content_block"]) == (0, text(""))
    assert "".join(event["delta"]["text"] for event in events[2:-3]) == "cba"
    assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}


class Thoughtful:
    """A chat completion's reply of a model that thinks, speaks, and calls."""

    id = "chatcmpl-1"
    requests = ()
    pieces = (
        Reasoning("let "),
        Reasoning("me"),
        Content("So"),
        Call(0, "f", "c1"),
        Arguments(0, '{"a": [1, '),
    )
    end = End("length", None)

    def told(self, output: Any) -> list[Told]:
        return [Told(piece) for piece in (*self.pieces, self.end)]

    def whole(self) -> list[Told]:
        return [Told(piece) for piece in (*merged(self.pieces), self.end)]

    def usage(self) -> dict[str, Any]:
        cached = {"cached_tokens": 4}
        return {"prompt_tokens": 9, "completion_tokens": 10, "prompt_tokens_details": cached,
                "completion_tokens_details": {"reasoning_tokens": 2}}  # fmt: skip


def reply_to(**body: Any) -> MessageReply:
    thoughtful: Any = Thoughtful()
    return MessageReply(thoughtful, MessagesRequest.model_validate({**ASK, **body}), "m")


@pytest.mark.parametrize("display", [None, "summarized", "omitted"])
def test_thoughts_words_and_tools_are_blocks_in_turn(display: str | None) -> None:
    thinking = {"type": "adaptive", "display": display}
    thought = "" if display == "omitted" else "let me"
    message = reply_to(thinking=thinking).result()
    content = [{"type": "thinking", "thinking": thought, "signature": ""}, text("So"),
               use("f", "c1", a=[1])]  # fmt: skip
    assert message["content"] == content
    assert message["stop_reason"] == "max_tokens"
    assert message["usage"] == {
        "input_tokens": 5,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 4,
        "output_tokens": 10,
        "output_tokens_details": {"thinking_tokens": 2},
    }
    output: Any = None
    events = list(reply_to(thinking=thinking).chunks(output))
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block["type"] for block in starts] == ["thinking", "text", "tool_use"]
    assert [event["index"] for event in events if event["type"] == "content_block_stop"] == [
        0,
        1,
        2,
    ]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("thinking", "") for delta in deltas) == thought
    assert [delta["signature"] for delta in deltas if "signature" in delta] == [""]
    assert "".join(delta.get("partial_json", "") for delta in deltas) == '{"a": [1, '


# --- failures, wherever they come from ---


def test_failures_of_the_framework_have_the_shape(fake_live: LiveServer) -> None:
    http = fake_live.http
    named = error_of(http.post(f"{PATH}/batches", json={}), 404, "not_found_error")
    assert "/v1/messages/batches" in named
    error_of(http.get(PATH), 405, "invalid_request_error")
    error_of(http.post(PATH, content=b"{"), 400, "invalid_request_error")
    missing = error_of(
        http.post(PATH, json={"messages": [user("a")]}), 400, "invalid_request_error"
    )
    assert missing.startswith("max_tokens: ")
    for path, body in ((PATH, ASK), (COUNT, {"messages": ASK["messages"]})):
        error_of(http.post(path, json={**body, "model": "x"}), 404, "not_found_error")


def test_neighbours_keep_their_own_shape(fake_live: LiveServer) -> None:
    for path in ("/v1/messagesx", "/v1/chat/completions", "/messages"):
        answer = fake_live.http.post(path, json={})
        assert answer.json().keys() == {"error"}
        assert "request-id" not in answer.headers


def test_failures_of_the_guards_have_the_shape() -> None:
    options: dict[str, Any] = {"api_key": ("k",), "max_body_bytes": 100, "receive_timeout": 0.3}
    with serving(FakeEngine, **options) as server:
        http, key = server.http, {"x-api-key": "k"}
        error_of(http.post(PATH, json=ASK), 401, "authentication_error")
        assert http.post(PATH, json=ASK, headers=key).status_code == 200
        large = http.post(PATH, content=b"x" * 200, headers=key)
        error_of(large, 413, "request_too_large")


def test_too_many_at_once_is_a_503_that_says_when_to_come_back(fake: FakeEngine) -> None:
    fake.gate.clear()
    with serving(lambda: fake, max_concurrent_requests=1) as server, ThreadPoolExecutor() as pool:
        first = pool.submit(httpx.post, server.url + PATH, json=ASK, timeout=30)
        assert fake.held.wait(10)
        second = server.http.post(PATH, json=ASK)
        fake.gate.set()
        assert first.result().status_code == 200
    error_of(second, 503, "api_error")
    assert int(second.headers["retry-after"]) >= 1


def test_accident_in_the_server_is_a_500_without_its_words(
    fake_live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr(MessagesRequest, "chat_fields", fail)
    answer = fake_live.http.post(PATH, json=ASK)
    assert "secret" not in error_of(answer, 500, "api_error")


def test_an_error_after_the_first_token_is_the_last_event(
    fake_live: LiveServer, fake: FakeEngine
) -> None:
    fake.pause_after(2)
    body = {**ASK, "messages": [user("abcdef")], "stream": True}
    with fake_live.http.stream("POST", PATH, json=body) as answer:
        assert fake.paused.wait(10)
        fake.fault = RuntimeError("secret words")
        fake.gate.set()
        answer.read()
    last = events_of(answer)[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "api_error")
    assert "secret" not in answer.text


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_request(
    fake_live: LiveServer, fake: FakeEngine, stream: bool
) -> None:
    fake.pause_after(1)
    fake.step_seconds = 0.02
    body = {"messages": [user("a" * 500)], "max_tokens": 500, "stream": stream}
    leaving = posted(fake_live, PATH, body)
    assert fake.paused.wait(20)
    leaving.close()
    fake.gate.set()
    within(20, lambda: not fake.alive)
    within(20, lambda: len(fake.aborted) == 1)


def test_more_than_the_context_leaves_may_be_asked_for(live: LiveServer) -> None:
    body = {**ASK, "max_tokens": 10**9, "ignore_eos": True}
    answer = live.http.post(PATH, json=body).json()
    assert answer["stop_reason"] == "model_context_window_exceeded"
    used = answer["usage"]
    total = used["input_tokens"] + used["cache_read_input_tokens"] + used["output_tokens"]
    assert total == live.llm.max_model_len


def test_prompt_that_is_too_long_is_told_in_words_that_agents_look_for(live: LiveServer) -> None:
    answer = live.http.post(PATH, json={**ASK, "messages": [user("word " * 3000)]})
    assert error_of(answer, 400, "invalid_request_error").startswith("prompt is too long: ")


def test_tokens_are_counted_as_the_prompt_has_them(live: LiveServer) -> None:
    counted = live.http.post(COUNT, json={"messages": ASK["messages"], "system": "Be brief."})
    messages = [{"role": "system", "content": "Be brief."}, *ASK["messages"]]
    tokens = live.http.post("/tokenize", json={"messages": messages}).json()
    assert counted.json() == {"input_tokens": tokens["count"]}
    refused = live.http.post(COUNT, json=ASK)
    assert "max_tokens" in error_of(refused, 400, "invalid_request_error")
