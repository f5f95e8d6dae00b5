"""Echo: the prompt in front of the text, however it was given, streamed and whole."""

from typing import Any

import pytest
from openai import OpenAI

from solutions.api_server import CompletionRequest, TextReply
from tests.server.conftest import LiveServer
from tests.server.test_logprobs import complete, streamed
from yaie.core.errors import YaieError
from yaie.core.logprobs import TokenLogprob
from yaie.core.output import RequestOutput, Submitted
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason
from yaie.server.extras import extend


def text_of(live: LiveServer, prompt: Any, **options: Any) -> str:
    text: str = complete(live, prompt, logprobs=None, **options)["choices"][0]["text"]
    return text


@pytest.mark.parametrize("logprobs", [None, 1])
def test_the_text_begins_with_the_prompt(live: LiveServer, logprobs: int | None) -> None:
    prompts = ["hello ", "wörld 🙂"]
    answer = complete(live, prompts, n=2, echo=True, logprobs=logprobs)
    plain = complete(live, prompts, n=2, logprobs=None)
    for index, (echoed, choice) in enumerate(zip(answer["choices"], plain["choices"], strict=True)):
        assert echoed["text"] == prompts[index // 2] + choice["text"]
        assert (echoed["logprobs"] is None) == (logprobs is None)
    assert answer["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]


def test_a_prompt_of_tokens_is_echoed_as_text(live: LiveServer) -> None:
    ids = live.llm.tokenizer.encode("hello")
    assert text_of(live, ids, echo=True) == text_of(live, "hello", echo=True)


def test_a_prompt_that_was_cut_is_echoed_as_the_engine_took_it(live: LiveServer) -> None:
    answer = complete(live, "hello and more", truncate_prompt_tokens=3, echo=True)
    ids = live.llm.tokenizer.encode("hello and more")[-3:]
    assert answer["usage"]["prompt_tokens"] == 3
    assert answer["choices"][0]["text"].startswith(live.llm.tokenizer.decode(ids))
    assert len(answer["choices"][0]["logprobs"]["tokens"]) == 3 + 24


def test_the_first_token_of_a_prompt_has_no_probability(live: LiveServer) -> None:
    prompt = live.llm.tokenizer.encode("hello wörld")
    for index, choice in enumerate(complete(live, prompt, echo=True, n=2)["choices"]):
        shape = choice["logprobs"]
        assert (shape["token_logprobs"][0], shape["top_logprobs"][0]) == (None, None), index
        assert None not in shape["token_logprobs"][1:]
        assert len(shape["tokens"]) == len(prompt) + 24


@pytest.mark.parametrize("logprobs", [None, 1])
def test_without_tokens_to_generate_only_the_prompt_comes_back(
    live: LiveServer, logprobs: int | None
) -> None:
    answer = complete(live, ["hello", "x"], max_tokens=0, echo=True, logprobs=logprobs, n=2)
    assert [choice["text"] for choice in answer["choices"]] == ["hello"] * 2 + ["x"] * 2
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
    usage = answer["usage"]
    assert usage["completion_tokens"] == 0
    assert usage["total_tokens"] == usage["prompt_tokens"]
    if logprobs is not None:
        ids = live.llm.tokenizer.encode("hello")
        assert len(answer["choices"][0]["logprobs"]["tokens"]) == len(ids)


def test_the_prompt_alone_can_be_streamed(live: LiveServer) -> None:
    body = {"prompt": "hello", "max_tokens": 0, "echo": True, "logprobs": 1}
    first, last = streamed(live, "/v1/completions", **body)
    assert (first["text"], first["finish_reason"]) == ("hello", None)
    assert (last["text"], last["finish_reason"], last["logprobs"]) == ("", "length", None)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    text = live.http.post("/v1/completions", json={**body, **options}).text
    assert '"completion_tokens":0' in text


def test_a_stream_begins_with_the_prompt_of_each_choice(live: LiveServer) -> None:
    prompts = ["hello", "wörld"]
    body = {"prompt": prompts, "n": 2, "echo": True, "logprobs": 0, "seed": 3, "max_tokens": 24,
            "ignore_eos": True}  # fmt: skip
    pieces: list[list[str]] = [[], [], [], []]
    for choice in streamed(live, "/v1/completions", **body):
        pieces[choice["index"]].append(choice["text"])
    assert [piece[0] for piece in pieces] == ["hello"] * 2 + ["wörld"] * 2
    whole = complete(live, prompts, n=2, echo=True, logprobs=0)
    assert ["".join(piece) for piece in pieces] == [c["text"] for c in whole["choices"]]


def test_nothing_generated_is_refused_without_an_echo(live: LiveServer) -> None:
    body = {"prompt": "hello", "max_tokens": 0}
    response = live.http.post("/v1/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "max_tokens"


# With logprobs it would not: OpenAI's server says null for the first token as well, its client's type
# knows of no null there.
def test_the_strict_client_reads_an_echo(client: OpenAI) -> None:
    answer = client.completions.create(model="tiny-llama", prompt="hello", echo=True, max_tokens=0)
    assert answer.choices[0].text == "hello"


class Pieces:
    """A tokenizer of SentencePiece's kind: a text loses the space in front."""

    pieces = (" the", " sky", " is", " blue")

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id].encode()

    def token_name(self, token_id: int) -> str:
        return self.pieces[token_id]

    def decode(self, ids: list[int]) -> str:
        return "".join(self.pieces[token] for token in ids).removeprefix(" ")


@pytest.mark.parametrize("logprobs", [None, 0])
def test_the_space_between_prompt_and_text_is_not_lost(logprobs: int | None) -> None:
    body = CompletionRequest(prompt="the sky", echo=True, logprobs=logprobs)
    params = SamplingParams(logprobs=logprobs, prompt_logprobs=logprobs)
    reply = extend(TextReply("m", [Submitted("r", [0, 1], params)]), body, Pieces(), None)
    # The engine decodes the output alone, and may hold the first token's text back.
    first = RequestOutput("r", "", [2], num_output_tokens=1)
    last = RequestOutput("r", "is blue", [3], FinishReason.LENGTH, num_output_tokens=2)
    if logprobs is not None:
        first.logprobs, last.logprobs = [TokenLogprob(2, -2.0)], [TokenLogprob(3, -3.0)]
        first.prompt_logprobs = [None, TokenLogprob(1, -1.0)]
    reply.add(first)
    reply.add(last)
    (choice,) = reply.result()["choices"]
    assert choice["text"] == "the sky is blue"
    if logprobs is not None:
        assert choice["logprobs"]["tokens"] == ["the", " sky", " is", " blue"]
        assert choice["logprobs"]["text_offset"] == [0, 3, 7, 10]


@pytest.mark.parametrize("max_tokens", [0, 5])
def test_a_prompt_that_failed_is_not_echoed(max_tokens: int) -> None:
    body = CompletionRequest(prompt="the sky", echo=True, max_tokens=max_tokens)
    reply = extend(TextReply("m", [Submitted("r", [0, 1], SamplingParams())]), body, Pieces(), None)
    failed = RequestOutput("r", "", [], FinishReason.ERROR, error="its logits are not finite")
    with pytest.raises(YaieError, match="not finite"):
        next(iter(reply.chunks(failed)))  # the very first, before any prompt
    with pytest.raises(YaieError, match="not finite"):
        reply.add(failed)


@pytest.mark.parametrize("stream", [False, True])
def test_a_mere_echo_tells_the_prompt_and_counts_nothing(stream: bool) -> None:
    """The engine draws one token all the same: neither it nor its entry is told."""
    body = CompletionRequest(prompt="the sky", echo=True, logprobs=0, max_tokens=0)
    params = SamplingParams(logprobs=0, prompt_logprobs=0)
    submitted = [Submitted("r", [0, 1], params)]
    reply = extend(TextReply("m", submitted, include_usage=True), body, Pieces(), None)
    only = RequestOutput("r", "is", [2], FinishReason.STOP, num_output_tokens=1)
    only.logprobs = [TokenLogprob(2, -2.0)]
    only.prompt_logprobs = [None, TokenLogprob(1, -1.0)]
    if stream:
        choices = [chunk["choices"][0] for chunk in reply.chunks(only)]
        usage = reply.usage_chunk()["usage"]
    else:
        reply.add(only)
        answer = reply.result()
        choices, usage = answer["choices"], answer["usage"]
    assert "".join(choice["text"] for choice in choices) == "the sky"
    assert choices[-1]["finish_reason"] == "length"
    told = [choice["logprobs"]["tokens"] for choice in choices if choice["logprobs"]]
    assert told == [["the", " sky"]]
    assert usage == reply.usage()
    assert (usage["completion_tokens"], usage["total_tokens"]) == (0, 2)
