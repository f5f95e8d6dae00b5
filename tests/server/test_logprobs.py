"""Log-probabilities: an entry for each token, whole and streamed alike; their bytes are the text."""

import json
import math
from typing import Any

import pytest
from openai import OpenAI

from grader.kit.api import STOP, make_request
from solutions.api_server import ChatReply, TextReply
from tests.server.conftest import LiveServer
from yaie.core.logprobs import TokenLogprob
from yaie.core.output import Submitted
from yaie.server.extras.logprobs import ChatLogprobs, TextLogprobs
from yaie.server.extras.reader import Reader
from yaie.server.extras.reply import ExtendedReply

MODEL = "tiny-llama"
LONG: dict[str, Any] = {"ignore_eos": True}


def chat(client: OpenAI, **options: Any) -> Any:
    options = {"max_tokens": 24, "seed": 3, "extra_body": LONG, "logprobs": True, **options}
    return client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hello"}], **options
    )


def complete(live: LiveServer, prompt: Any = "hello", **options: Any) -> Any:
    body = {"prompt": prompt, "max_tokens": 24, "seed": 3, "logprobs": 2, **LONG, **options}
    response = live.http.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def streamed(live: LiveServer, path: str, **body: Any) -> list[Any]:
    """The choices of all chunks, in order."""
    with live.http.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line, parse_constant=pytest.fail)["choices"][0] for line in lines]


def test_every_token_has_an_entry_and_their_bytes_are_the_text(client: OpenAI) -> None:
    for temperature in (0, 1.5):
        answer = chat(client, temperature=temperature, top_logprobs=3)
        (choice,) = answer.choices
        entries = choice.logprobs.content
        assert len(entries) == answer.usage.completion_tokens
        data = b"".join(bytes(entry.bytes or []) for entry in entries)
        assert data.decode(errors="replace") == choice.message.content
        for entry in entries:
            assert entry.logprob <= 0
            assert len(entry.top_logprobs) == 3
            tops = [top.logprob for top in entry.top_logprobs]
            assert tops == sorted(tops, reverse=True)
            assert math.fsum(math.exp(top) for top in tops) <= 1.001
        if temperature == 0:
            assert all(entry.bytes == entry.top_logprobs[0].bytes for entry in entries)


def test_no_alternatives_are_listed_unless_asked_for(client: OpenAI) -> None:
    entries = chat(client).choices[0].logprobs.content
    assert all(entry.top_logprobs == [] for entry in entries)
    assert chat(client, logprobs=False).choices[0].logprobs is None


@pytest.mark.parametrize("stop", [None, "e"])
def test_streamed_chat_entries_join_to_those_of_the_whole_answer(
    client: OpenAI, stop: str | None
) -> None:
    options: dict[str, Any] = {"n": 3, "top_logprobs": 2, "stop": stop, "max_tokens": 60}
    whole = chat(client, **options)
    entries: list[list[Any]] = [[], [], []]
    for chunk in chat(client, stream=True, **options):
        (choice,) = chunk.choices
        if choice.logprobs is not None:
            assert choice.delta.content or choice.finish_reason
            entries[choice.index] += choice.logprobs.content
        else:
            assert not choice.delta.content
    assert entries == [choice.logprobs.content for choice in whole.choices]
    assert sum(map(len, entries)) == whole.usage.completion_tokens


def test_tokens_whose_text_is_held_back_travel_with_the_next_text(live: LiveServer) -> None:
    body = {"prompt": "hello", "max_tokens": 40, "seed": 3, "logprobs": 0, **LONG}
    text = complete(live, max_tokens=40, logprobs=0)["choices"][0]["text"]
    stops = [text[10:13] + "\0", text[20:26] + "\0"]  # begun, and never completed
    pieces = streamed(live, "/v1/completions", **body, stop=stops)
    assert "".join(piece["text"] for piece in pieces) == text
    tokens = [token for piece in pieces for token in (piece["logprobs"] or {}).get("tokens", [])]
    assert tokens == complete(live, max_tokens=40, logprobs=0)["choices"][0]["logprobs"]["tokens"]
    assert max(len((piece["logprobs"] or {}).get("tokens", [])) for piece in pieces) > 1


@pytest.mark.parametrize("echo", [False, True])
def test_streamed_completion_entries_join_to_those_of_the_whole_answer(
    live: LiveServer, echo: bool
) -> None:
    body = {"prompt": ["hello", "wörld 🙂"], "n": 2, "max_tokens": 24, "seed": 3, "logprobs": 2,
            "echo": echo, **LONG}  # fmt: skip
    whole = complete(live, body["prompt"], n=2, echo=echo)
    joined: list[dict[str, list[Any]]] = [{} for _ in range(4)]
    for choice in streamed(live, "/v1/completions", **body):
        for name, values in (choice["logprobs"] or {}).items():
            joined[choice["index"]].setdefault(name, []).extend(values)
    assert joined == [choice["logprobs"] for choice in whole["choices"]]


def test_completion_offsets_point_into_the_text(live: LiveServer) -> None:
    (choice,) = complete(live, "wörld 🙂", echo=True, max_tokens=30)["choices"]
    shape = choice["logprobs"]
    assert len({len(values) for values in shape.values()}) == 1
    text, offsets = choice["text"], [*shape["text_offset"], len(choice["text"])]
    for token, begin, end in zip(shape["tokens"], offsets, offsets[1:], strict=False):
        if not token.startswith("bytes:") and not text[begin:end].startswith("\ufffd"):
            assert text[begin:end].startswith(token)
    assert offsets == sorted(offsets)


def test_the_token_drawn_is_always_among_the_most_likely_ones(live: LiveServer) -> None:
    (choice,) = complete(live, temperature=3)["choices"]
    shape = choice["logprobs"]
    for token, logprob, top in zip(
        shape["tokens"], shape["token_logprobs"], shape["top_logprobs"], strict=True
    ):
        assert top[token] == logprob
        assert 2 <= len(top) <= 3
    (alone,) = complete(live, logprobs=0)["choices"]
    assert all(len(top) == 1 for top in alone["logprobs"]["top_logprobs"])


def test_the_token_that_ended_the_answer_has_an_entry_without_bytes(client: OpenAI) -> None:
    answer = chat(client, logit_bias={"1": 100}, extra_body={})
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == ""
    (entry,) = answer.choices[0].logprobs.content
    assert (entry.token, entry.bytes) == ("<|end|>", None)


def test_the_strict_client_reads_completion_logprobs(client: OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="hello", logprobs=20, max_tokens=2)
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.token_logprobs is not None


class Letters:
    """A tokenizer whose tokens are letters; token 0 is special, token 200 a stray byte."""

    def token_bytes(self, token_id: int) -> bytes | None:
        return {0: None, 200: b"\xc8"}.get(token_id, bytes([token_id]))

    def token_name(self, token_id: int) -> str:
        return "<s>" if token_id == 0 else "?"

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(token) for token in ids if token)


def chat_reply(request: Submitted, tokenizer: Any) -> ExtendedReply:
    """A reply to a conversation that tells log-probabilities."""
    told = ChatLogprobs([request], tokenizer)
    return ExtendedReply(ChatReply("m", [request]), Reader(), [told])


def text_reply(
    requests: list[Submitted], tokenizer: Any, *, with_prompt: bool = False
) -> ExtendedReply:
    """The same of prompts to continue."""
    told = TextLogprobs(requests, tokenizer, with_prompt=with_prompt)
    return ExtendedReply(TextReply("m", requests), Reader(), [told])


def test_numbers_that_json_cannot_hold_are_very_negative_instead() -> None:
    request = make_request(prompt=1, logprobs=2)
    least = float("-inf")
    output = request.says("a\ufffd", tokens=3)
    output.logprobs = [
        TokenLogprob(97, least, ((98, -0.5), (0, least))),
        TokenLogprob(0, float("nan")),
        TokenLogprob(200, -1.0),
    ]
    of_chat = chat_reply(request.submitted, Letters())
    of_chat.add(output)
    entries = of_chat.result()["choices"][0]["logprobs"]["content"]
    assert [entry["logprob"] for entry in entries] == [-9999.0, -9999.0, -1.0]
    assert [entry["token"] for entry in entries] == ["a", "<s>", "\\xc8"]
    assert [entry["bytes"] for entry in entries] == [[97], None, [200]]
    of_text = text_reply([request.submitted], Letters())
    of_text.add(output)
    shape = of_text.result()["choices"][0]["logprobs"]
    assert shape["top_logprobs"][0] == {"b": -0.5, "<s>": -9999.0, "a": -9999.0}
    assert shape["tokens"] == ["a", "<s>", "bytes:\\xc8"]
    assert shape["text_offset"] == [0, 1, 1]
    json.dumps(shape, allow_nan=False)


class Pieces:
    """A tokenizer of SentencePiece's kind: a text loses the space in front. Token 2 is special."""

    pieces = (" the", " sky")

    def token_bytes(self, token_id: int) -> bytes | None:
        return None if token_id == 2 else self.pieces[token_id].encode()

    def token_name(self, token_id: int) -> str:
        return "<s>"

    def decode(self, ids: list[int]) -> str:
        return "".join(self.pieces[token] for token in ids).removeprefix(" ")


@pytest.mark.parametrize("stream", [False, True])
def test_only_the_first_token_with_a_text_loses_its_space(stream: bool) -> None:
    """And what might have stood in its place; a special token before it changes nothing."""
    request = make_request(prompt=1, logprobs=1)
    outputs = [request.says(""), request.says("the"), request.says(" sky", STOP)]
    for output, token, other in zip(outputs, (2, 0, 1), (0, 1, 0), strict=True):
        output.logprobs = [TokenLogprob(token, -1.0, ((other, -2.0),))]
    reply = chat_reply(request.submitted, Pieces())
    if stream:
        choices = [chunk["choices"][0] for output in outputs for chunk in reply.chunks(output)]
    else:
        for output in outputs:
            reply.add(output)
        choices = reply.result()["choices"]
    entries = [
        entry for choice in choices for entry in (choice["logprobs"] or {}).get("content", [])
    ]
    assert [entry["token"] for entry in entries] == ["<s>", "the", " sky"]
    assert [bytes(entry["bytes"] or []) for entry in entries] == [b"", b"the", b" sky"]
    tops = [top["token"] for entry in entries for top in entry["top_logprobs"]]
    assert tops == ["the", "sky", " the"]


@pytest.mark.parametrize("is_slow", [False, True])
def test_merged_outputs_have_the_entries_of_all_their_tokens(is_slow: bool) -> None:
    """A reader who is slow finds several outputs merged into one."""
    request = make_request(prompt=1, logprobs=0)
    outputs = [request.says(char) for char in "abc"]
    outputs.append(request.says("", STOP))
    for number, output in enumerate(outputs):
        output.logprobs = [TokenLogprob(97 + number, -number / 8)]
    if is_slow:
        first, *others = outputs
        for other in others:
            first.merge(other)
        outputs = [first]
    reply = text_reply([request.submitted], Letters())
    shapes = [
        chunk["choices"][0]["logprobs"] for output in outputs for chunk in reply.chunks(output)
    ]
    told = [shape for shape in shapes if shape is not None]
    assert [token for shape in told for token in shape["tokens"]] == list("abcd")
    assert [offset for shape in told for offset in shape["text_offset"]] == [0, 1, 2, 3]
    assert [number for shape in told for number in shape["token_logprobs"]] == [
        0.0,
        -0.125,
        -0.25,
        -0.375,
    ]
    assert len(told) == (1 if is_slow else 4)


@pytest.mark.parametrize("with_outputs_merged", [False, True])
def test_siblings_share_the_entries_of_their_prompt(with_outputs_merged: bool) -> None:
    """The engine tells them with the first sibling's first output."""
    siblings = [make_request(f"r{index}", prompt=3, logprobs=0, n=2) for index in range(2)]
    submitted = [request.submitted for request in siblings]
    reply = text_reply(submitted, Letters(), with_prompt=True)
    firsts = [request.says("") for request in siblings]
    firsts[0].prompt_logprobs = [None, TokenLogprob(1, -1.0), TokenLogprob(2, -2.0)]
    lasts = [request.says("ab", STOP) for request in siblings]
    for output in (*firsts, *lasts):
        output.logprobs = [TokenLogprob(97, -0.5)]
    if with_outputs_merged:
        for first, last in zip(firsts, lasts, strict=True):
            first.merge(last)
    for output in firsts if with_outputs_merged else (*firsts, *lasts):
        reply.add(output)
    for choice in reply.result()["choices"]:
        assert choice["logprobs"]["token_logprobs"] == [None, -1.0, -2.0, -0.5, -0.5]
