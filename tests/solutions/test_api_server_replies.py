"""Lab 8: answers in OpenAI's shape, whole and in chunks."""

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from grader.kit.api import LENGTH, STOP, make_request
from solutions.api_server import ChatReply, Reply, TextReply
from yaie.core.errors import YaieError
from yaie.core.output import RequestOutput

KINDS = [ChatReply, TextReply]


def chunks_of(reply: Reply, outputs: list[RequestOutput]) -> list[dict]:
    return [chunk for output in outputs for chunk in reply.chunks(output)]


def test_a_whole_conversation_is_what_the_official_client_expects() -> None:
    request = make_request(prompt=3)
    reply = ChatReply("m", [request.submitted])
    for output in (request.says("Hel"), request.says("lo", STOP)):
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
    reply = TextReply("m", [request.submitted])
    reply.add(request.says("Hello", LENGTH))
    answer = Completion.model_validate(reply.result())
    assert answer.id.startswith("cmpl-")
    assert answer.object == "text_completion"
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("Hello", "length")


@pytest.mark.parametrize("kind", KINDS)
def test_choices_stand_in_the_order_of_their_requests_however_they_come(kind: type[Reply]) -> None:
    requests = [make_request(f"r{index}", n=3) for index in range(3)]
    reply = kind("m", [request.submitted for request in requests])
    for index in (2, 0, 1, 1, 0, 2):
        reply.add(requests[index].says(f"{index}"))
    for request in reversed(requests):
        reply.add(request.says("", STOP))
    choices = reply.result()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    texts = [choice.get("text") or choice["message"]["content"] for choice in choices]
    assert texts == ["00", "11", "22"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stop_reason", [None, "END", 7])
def test_a_choice_tells_which_stop_ended_it(kind: type[Reply], stop_reason: str | int) -> None:
    request = make_request(stop_reason=stop_reason)
    whole, streamed = kind("m", [request.submitted]), kind("m", [request.submitted])
    last = request.says("x", STOP)
    whole.add(last)
    assert whole.result()["choices"][0]["stop_reason"] == stop_reason
    assert list(streamed.chunks(last))[-1]["choices"][0]["stop_reason"] == stop_reason


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_failed_raises_what_the_engine_said(kind: type[Reply]) -> None:
    request = make_request()
    failed = request.fails("its logits are not finite")
    with pytest.raises(YaieError, match="not finite"):
        kind("m", [request.submitted]).add(failed)
    with pytest.raises(YaieError, match="not finite"):
        list(kind("m", [request.submitted]).chunks(failed))


def test_a_streamed_conversation_names_the_role_then_the_text_then_the_reason() -> None:
    request = make_request()
    reply = ChatReply("m", [request.submitted])
    outputs = [request.says("Hel"), request.says(""), request.says("lo", LENGTH)]
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
    (chunk,) = ChatReply("m", [request.submitted]).chunks(request.says(""))
    assert chunk["choices"][0]["delta"]["role"] == "assistant"


def test_a_streamed_text_has_no_role() -> None:
    request = make_request()
    reply = TextReply("m", [request.submitted])
    assert list(reply.chunks(request.says(""))) == []
    outputs = [request.says("Hello"), request.says("", STOP)]
    choices = [chunk["choices"][0] for chunk in chunks_of(reply, outputs)]
    assert [choice["text"] for choice in choices] == ["Hello", ""]
    assert [choice["finish_reason"] for choice in choices] == [None, "stop"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_chunk_tells_whose_it_is(kind: type[Reply]) -> None:
    requests = [make_request("a", n=2), make_request("b", n=2)]
    reply = kind("m", [request.submitted for request in requests])
    outputs = [
        requests[1].says("x"),
        requests[0].says("y"),
        requests[1].says("", STOP),
        requests[0].says("", STOP),
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
    reply = ChatReply("m", [request.submitted], include_usage=True)
    for chunk in [*chunks_of(reply, [request.says("Hello", STOP)]), reply.usage_chunk()]:
        ChatCompletionChunk.model_validate(chunk)


@pytest.mark.parametrize("kind", KINDS)
def test_usage_is_announced_with_null_and_comes_without_choices(kind: type[Reply]) -> None:
    request = make_request(prompt=3)
    reply = kind("m", [request.submitted], include_usage=True)
    chunks = chunks_of(reply, [request.says("a"), request.says("b", STOP)])
    assert all(chunk["usage"] is None for chunk in chunks)
    last = reply.usage_chunk()
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 5
    assert (last["id"], last["object"]) == (chunks[0]["id"], chunks[0]["object"])


@pytest.mark.parametrize("kind", KINDS)
def test_usage_is_not_mentioned_unless_asked_for(kind: type[Reply]) -> None:
    request = make_request()
    chunks = chunks_of(kind("m", [request.submitted]), [request.says("a", STOP)])
    assert all("usage" not in chunk for chunk in chunks)


def test_siblings_count_their_prompt_once_and_their_outputs_each() -> None:
    first = [make_request(f"a{i}", prompt=10, cached=4 if i == 1 else 9, n=3) for i in (1, 2, 3)]
    second = [make_request(f"b{i}", prompt=5, n=3) for i in (1, 2, 3)]
    reply = TextReply("m", [request.submitted for request in [*first, *second]])
    for number, request in enumerate(first):
        reply.add(request.says("x", STOP, tokens=number + 1))
    for request in second:
        reply.add(request.says("x", STOP))
    assert reply.usage() == {
        "prompt_tokens": 15,
        "completion_tokens": 9,
        "total_tokens": 24,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


def test_several_prompts_count_each() -> None:
    requests = [make_request("a", prompt=10, cached=8), make_request("b", prompt=20, cached=16)]
    reply = TextReply("m", [request.submitted for request in requests])
    for request in requests:
        reply.add(request.says("x", STOP))
    counts = reply.usage()
    assert counts["prompt_tokens"] == 30
    assert counts["prompt_tokens_details"]["cached_tokens"] == 24


@pytest.mark.parametrize("kind", KINDS)
def test_usage_counts_as_far_as_outputs_have_come(kind: type[Reply]) -> None:
    request = make_request(prompt=10, cached=8)
    reply = kind("m", [request.submitted])
    assert reply.usage() == {
        "prompt_tokens": 10,
        "completion_tokens": 0,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    list(reply.chunks(request.says("a")))
    assert reply.usage()["completion_tokens"] == 1
    list(reply.chunks(request.says("bcd", tokens=3)))  # merged, while the reader was slow
    assert reply.usage()["total_tokens"] == 14
    assert reply.usage()["prompt_tokens_details"]["cached_tokens"] == 8


def test_no_two_answers_share_an_id() -> None:
    request = make_request()
    assert len({ChatReply("m", [request.submitted]).id for _ in range(100)}) == 100
