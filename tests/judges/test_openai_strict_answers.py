"""The official client, strict: what an answer tells beyond its text, and every way to get at it."""

import asyncio
import math
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.judges.asking import LONG, MODEL, chat, complete, one, text, texts
from tests.server.conftest import LiveServer

USAGE = {"include_usage": True}


def test_models_are_listed_and_found_by_name(client: OpenAI) -> None:
    (card,) = client.models.list()
    assert (card.id, card.object) == (MODEL, "model")
    assert client.models.retrieve(MODEL) == card


def test_answers_name_their_kind_model_and_id(client: OpenAI, lenient: OpenAI) -> None:
    whole, text = chat(client), complete(client)
    assert (whole.object, whole.model) == ("chat.completion", MODEL)
    assert (text.object, text.model) == ("text_completion", MODEL)
    assert whole.id.startswith("chatcmpl-")
    assert text.id.startswith("cmpl-")
    chunks = list(chat(client, stream=True))
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert {chunk.object for chunk in complete(lenient, stream=True)} == {"text_completion"}


def test_chat_logprobs_have_a_token_its_bytes_and_the_most_likely_ones(client: OpenAI) -> None:
    choice = chat(client, "日本語 🙂", logprobs=True, top_logprobs=5).choices[0]
    content = choice.logprobs.content
    assert len(content) == 24
    spelt = b"".join(bytes(item.bytes) for item in content)
    assert spelt.decode("utf-8", "replace") == choice.message.content
    for item in content:
        logprobs = [top.logprob for top in item.top_logprobs]
        assert len(logprobs) == 5
        assert logprobs == sorted(logprobs, reverse=True)
        assert sum(math.exp(logprob) for logprob in logprobs) <= 1 + 1e-5
        # Greedy: the token drawn is the most likely one.
        assert item.logprob == logprobs[0]
        assert item.bytes == item.top_logprobs[0].bytes


def test_chat_logprobs_without_top_logprobs_have_no_alternatives(client: OpenAI) -> None:
    assert chat(client).choices[0].logprobs is None
    content = chat(client, logprobs=True).choices[0].logprobs.content
    assert [item.top_logprobs for item in content] == [[]] * 24


def test_streamed_chat_logprobs_join_to_the_whole_ones(client: OpenAI) -> None:
    options = {"logprobs": True, "top_logprobs": 2, "n": 2, "seed": 1, "temperature": 1.5}
    whole = chat(client, "日本語 🙂", **options)
    streamed: list[list[Any]] = [[], []]
    for chunk in chat(client, "日本語 🙂", stream=True, **options):
        (choice,) = chunk.choices
        if choice.logprobs is not None:
            streamed[choice.index] += choice.logprobs.content
    for choice, found in zip(whole.choices, streamed, strict=True):
        wanted = choice.logprobs.content
        assert [item.bytes for item in found] == [item.bytes for item in wanted]
        for mine, theirs in zip(found, wanted, strict=True):
            assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-4)


def test_all_the_probabilities_of_a_token_sum_to_one(lenient: OpenAI, live: LiveServer) -> None:
    """Of 384 tokens 20 can be seen at a time; forcing each in turn shows them all."""
    prompts = [[9, 8, 7, token] for token in range(live.llm.tokenizer.vocab_size)]
    half = len(prompts) // 2
    total = 0.0
    for part in (prompts[:half], prompts[half:]):
        answer = complete(lenient, part, max_tokens=0, echo=True, logprobs=0)
        total += sum(math.exp(choice.logprobs.token_logprobs[3]) for choice in answer.choices)
    assert total == pytest.approx(1, abs=1e-4)


def test_completion_logprobs_are_parallel_lists(client: OpenAI) -> None:
    choice = complete(client, logprobs=3).choices[0]
    logprobs = choice.logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 24
    assert len(logprobs.text_offset) == 24
    assert logprobs.text_offset[0] == 0
    assert logprobs.text_offset == sorted(logprobs.text_offset)
    for logprob, top in zip(logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert max(top.values()) == logprob
        assert 1 <= len(top) <= 3


def test_text_offsets_say_where_tokens_begin(lenient: OpenAI, live: LiveServer) -> None:
    letters = {str(live.llm.tokenizer.encode(letter)[0]): 100 for letter in "xyz"}
    choice = complete(lenient, "ab", echo=True, logprobs=0, logit_bias=letters).choices[0]
    tokens, offsets = choice.logprobs.tokens, choice.logprobs.text_offset
    assert "".join(tokens) == choice.text
    for token, offset in zip(tokens, offsets, strict=True):
        assert choice.text[offset : offset + len(token)] == token


def test_echo_puts_the_prompt_in_front(client: OpenAI, lenient: OpenAI) -> None:
    said = one(complete(client, "hello"))
    assert one(complete(client, "hello", echo=True)) == "hello" + said
    chunks = complete(lenient, "hello", echo=True, stream=True)
    assert "".join(text(chunk.choices[0]) for chunk in chunks) == "hello" + said
    assert texts(complete(client, ["hello", "world"], echo=True, n=2))[:2] == ["hello" + said] * 2


def test_echo_alone_tells_the_log_probabilities_of_a_prompt(
    lenient: OpenAI, live: LiveServer
) -> None:
    ids = live.llm.tokenizer.encode("hello 日本語")
    answer = complete(lenient, ids, echo=True, max_tokens=0, logprobs=2)
    assert one(answer) == "hello 日本語"
    assert answer.usage.completion_tokens == 0
    assert answer.usage.total_tokens == len(ids)
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.tokens) == len(ids)
    assert logprobs.token_logprobs[0] is None
    # The same, token by token: the bias makes the model say it, and changes no log-probability.
    for place in range(1, len(ids)):
        forced = complete(lenient, ids[:place], max_tokens=1, logprobs=0,
                          logit_bias={str(ids[place]): 100})  # fmt: skip
        (said,) = forced.choices[0].logprobs.token_logprobs
        assert said == pytest.approx(logprobs.token_logprobs[place], abs=1e-4)


def test_prompts_come_in_four_forms(client: OpenAI, live: LiveServer) -> None:
    ids = live.llm.tokenizer.encode("hello")
    alone = one(complete(client, "hello"))
    assert texts(complete(client, ["hello", "hello"])) == [alone] * 2
    assert texts(complete(client, ids)) == [alone]
    assert texts(complete(client, [ids, ids])) == [alone] * 2


def test_usage_adds_up_and_names_what_was_cached(client: OpenAI) -> None:
    prompt = "nobody else asks this question, which is longer than a block of sixteen tokens " * 2
    first, second = chat(client, prompt).usage, chat(client, prompt).usage
    assert first.total_tokens == first.prompt_tokens + first.completion_tokens
    assert first.prompt_tokens_details.cached_tokens < 16
    assert 0 < second.prompt_tokens_details.cached_tokens < second.prompt_tokens


def test_usage_of_a_stream_comes_last_and_only_if_asked_for(
    client: OpenAI, lenient: OpenAI
) -> None:
    for ask, asker in ((chat, client), (complete, lenient)):
        *chunks, last = ask(asker, stream=True, stream_options=USAGE)
        assert last.choices == []
        assert last.usage.completion_tokens == 24
        assert all(chunk.usage is None for chunk in chunks)
        assert all(chunk.usage is None for chunk in ask(asker, stream=True))


def test_labels_and_defaults_that_clients_send_are_taken(client: OpenAI) -> None:
    options: dict[str, Any] = {
        "user": "someone", "metadata": {"run": "1"}, "store": False, "logprobs": False,
        "tools": [], "tool_choice": "auto", "response_format": {"type": "text"}, "logit_bias": {},
        "n": 1, "top_p": 1, "service_tier": "auto", "parallel_tool_calls": True,
        "safety_identifier": "x", "prompt_cache_key": "y", "modalities": ["text"],
    }  # fmt: skip
    assert one(chat(client, **options)) == one(chat(client))


def test_raw_responses_can_be_had_and_parsed(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=3, extra_body=LONG
    )
    assert raw.status_code == 200
    assert raw.headers["content-type"] == "application/json"
    assert raw.parse().choices[0].finish_reason == "length"
    listed = client.models.with_raw_response.list()
    assert listed.parse().data[0].id == MODEL


def test_streaming_responses_can_be_read_line_by_line(client: OpenAI) -> None:
    with client.chat.completions.with_streaming_response.create(
        model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=3, stream=True,
        extra_body=LONG,
    ) as response:  # fmt: skip
        lines = [line for line in response.iter_lines() if line]
    assert response.headers["content-type"].startswith("text/event-stream")
    assert lines[-1] == "data: [DONE]"


def test_async_client_gets_the_same_from_many_at_once(
    client: OpenAI, async_client: AsyncOpenAI
) -> None:
    async def all_of_them() -> list[str]:
        async def whole(seed: int) -> str:
            answer = await chat(async_client, temperature=1, seed=seed)
            return one(answer)

        async def streamed(seed: int) -> str:
            chunks = await chat(async_client, temperature=1, seed=seed, stream=True)
            return "".join([text(chunk.choices[0]) async for chunk in chunks])

        found = await asyncio.gather(*map(whole, range(8)), *map(streamed, range(8)))
        await async_client.close()
        return found

    wanted = [one(chat(client, temperature=1, seed=seed)) for seed in range(8)]
    assert asyncio.run(all_of_them()) == wanted * 2


def test_stream_that_is_closed_early_leaves_the_client_usable(client: OpenAI) -> None:
    with chat(client, stream=True, max_tokens=500) as stream:
        assert next(iter(stream)).choices[0].delta.role == "assistant"
    assert one(chat(client))


def test_conversation_goes_on_with_the_answer_as_it_came(client: OpenAI) -> None:
    first = chat(client).choices[0].message
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            first.model_dump(),  # type: ignore[list-item]
            {"role": "user", "content": "and then?", "name": "someone"},
        ],
        max_tokens=3,
        temperature=openai.omit,
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 3
