"""Lab 8: answers in OpenAI's shape, whole and in chunks."""

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from grader.kit.api import ERROR, LENGTH, STOP, make_request, piece
from solutions.api_server import ChatReply, Reply, TextReply, usage
from yaie.core.errors import YaieError
from yaie.core.request import RequestOutput

KINDS = [ChatReply, TextReply]


def chunks_of(reply: Reply, outputs: list[RequestOutput]) -> list[dict]:
    return [chunk for output in outputs for chunk in reply.chunks(output)]


def test_a_whole_conversation_is_what_the_official_client_expects() -> None:
    request = make_request(prompt=3)
    reply = ChatReply("m", [request])
    for output in (piece(request, "Hel"), piece(request, "lo", STOP)):
        reply.add(output)
    answer = ChatCompletion.model_validate(reply.result())
    assert (answer.id, answer.model, answer.object) == (reply.id, "m", "chat.completion")
    (choice,) = answer.choices
    assert (choice.index, choice.finish_reason) == (0, "stop")
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 2)


def test_a_whole_text_is_what_the_official_client_expects() -> None:
    request = make_request()
    reply = TextReply("m", [request])
    reply.add(piece(request, "Hello", LENGTH))
    answer = Completion.model_validate(reply.result())
    assert answer.id.startswith("cmpl-")
    assert answer.object == "text_completion"
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("Hello", "length")


@pytest.mark.parametrize("kind", KINDS)
def test_choices_stand_in_the_order_of_their_requests_however_they_come(kind: type[Reply]) -> None:
    requests = [make_request(f"r{index}", n=3) for index in range(3)]
    reply = kind("m", requests)
    for index in (2, 0, 1, 1, 0, 2):
        reply.add(piece(requests[index], f"{index}", None))
    for request in reversed(requests):
        reply.add(piece(request, "", STOP))
    choices = reply.result()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    texts = [choice.get("text") or choice["message"]["content"] for choice in choices]
    assert texts == ["00", "11", "22"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stop_reason", [None, "END", 7])
def test_a_choice_tells_which_stop_ended_it(kind: type[Reply], stop_reason: str | int) -> None:
    request = make_request()
    request.stop_reason = stop_reason
    whole, streamed = kind("m", [request]), kind("m", [request])
    last = piece(request, "x", STOP)
    whole.add(last)
    assert whole.result()["choices"][0]["stop_reason"] == stop_reason
    assert list(streamed.chunks(last))[-1]["choices"][0]["stop_reason"] == stop_reason


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_failed_raises_what_the_engine_said(kind: type[Reply]) -> None:
    request = make_request()
    request.error = "its logits are not finite"
    failed = piece(request, "", ERROR)
    with pytest.raises(YaieError, match="not finite"):
        kind("m", [request]).add(failed)
    with pytest.raises(YaieError, match="not finite"):
        list(kind("m", [request]).chunks(failed))


def test_a_streamed_conversation_names_the_role_then_the_text_then_the_reason() -> None:
    request = make_request()
    reply = ChatReply("m", [request])
    outputs = [piece(request, "Hel"), piece(request, ""), piece(request, "lo", LENGTH)]
    choices = [chunk["choices"][0] for chunk in chunks_of(reply, outputs)]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""},
        {"content": "Hel"},
        {"content": "lo"},
        {},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "length"]
    assert all(choice["logprobs"] is None for choice in choices)


def test_a_role_is_named_even_while_the_text_is_held_back() -> None:
    request = make_request()
    (chunk,) = ChatReply("m", [request]).chunks(piece(request, ""))
    assert chunk["choices"][0]["delta"]["role"] == "assistant"


def test_a_streamed_text_has_no_role() -> None:
    request = make_request()
    reply = TextReply("m", [request])
    assert list(reply.chunks(piece(request, ""))) == []
    outputs = [piece(request, "Hello"), piece(request, "", STOP)]
    choices = [chunk["choices"][0] for chunk in chunks_of(reply, outputs)]
    assert [choice["text"] for choice in choices] == ["Hello", ""]
    assert [choice["finish_reason"] for choice in choices] == [None, "stop"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_chunk_tells_whose_it_is(kind: type[Reply]) -> None:
    requests = [make_request("a", n=2), make_request("b", n=2)]
    reply = kind("m", requests)
    outputs = [
        piece(requests[1], "x"),
        piece(requests[0], "y"),
        piece(requests[1], "", STOP),
        piece(requests[0], "", STOP),
    ]
    chunks = chunks_of(reply, outputs)
    assert {chunk["id"] for chunk in chunks} == {reply.id}
    assert len({chunk["created"] for chunk in chunks}) == 1
    choices = [chunk["choices"][0] for chunk in chunks]
    for index in (0, 1):
        mine = [choice for choice in choices if choice["index"] == index]
        assert [choice["finish_reason"] for choice in mine][:-1] == [None] * (len(mine) - 1)
        assert mine[-1]["finish_reason"] == "stop"
        if kind is ChatReply:
            assert [choice["delta"].get("role") for choice in mine] == ["assistant", None, None]


def test_chunks_are_what_the_official_client_expects() -> None:
    request = make_request()
    reply = ChatReply("m", [request], include_usage=True)
    for chunk in [*chunks_of(reply, [piece(request, "Hello", STOP)]), reply.usage_chunk()]:
        ChatCompletionChunk.model_validate(chunk)


@pytest.mark.parametrize("kind", KINDS)
def test_usage_is_announced_with_null_and_comes_without_choices(kind: type[Reply]) -> None:
    request = make_request(prompt=3)
    reply = kind("m", [request], include_usage=True)
    chunks = chunks_of(reply, [piece(request, "a"), piece(request, "b", STOP)])
    assert all(chunk["usage"] is None for chunk in chunks)
    last = reply.usage_chunk()
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 5
    assert (last["id"], last["object"]) == (chunks[0]["id"], chunks[0]["object"])


@pytest.mark.parametrize("kind", KINDS)
def test_usage_is_not_mentioned_unless_asked_for(kind: type[Reply]) -> None:
    request = make_request()
    chunks = chunks_of(kind("m", [request]), [piece(request, "a", STOP)])
    assert all("usage" not in chunk for chunk in chunks)


def test_siblings_count_their_prompt_once_and_their_outputs_each() -> None:
    first = [make_request(prompt=10, output=index, cached=9 * index, n=3) for index in (1, 2, 3)]
    second = [make_request(prompt=5, output=1, cached=0, n=3) for _ in range(3)]
    first[0].num_cached_tokens = 4
    assert usage([*first, *second]) == {
        "prompt_tokens": 15,
        "completion_tokens": 9,
        "total_tokens": 24,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


def test_several_prompts_count_each() -> None:
    counts = usage([make_request(prompt=10, cached=8), make_request(prompt=20, cached=16)])
    assert counts["prompt_tokens"] == 30
    assert counts["prompt_tokens_details"]["cached_tokens"] == 24


def test_no_two_answers_share_an_id() -> None:
    request = make_request()
    assert len({ChatReply("m", [request]).id for _ in range(100)}) == 100
