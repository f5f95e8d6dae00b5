"""The official client in strict validation, against the real engine on a tiny random model.

The model's text is noise: bytes that often are no whole character, which is what a stream must get
right. `ignore_eos` keeps it from ending at once.
"""

from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.server.conftest import LiveServer

MODEL = "tiny-llama"
LONG = {"ignore_eos": True}
PROMPTS = ["What is a block?", "日本語 🙂", "naïve café", "x", "tabs\tand\nlines", "Straße " * 20]


# Not strict: the client's type of a completion wants a `finish_reason` in every chunk, which neither
# OpenAI's server nor this one sends.
@pytest.fixture
def lenient(live: LiveServer) -> OpenAI:
    return OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=30)


def chat(client: OpenAI, prompt: str, **options: Any) -> Any:
    options = {"temperature": 0, "max_tokens": 24, "extra_body": LONG, **options}
    return client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": prompt}], **options
    )


def complete(client: OpenAI, prompt: Any, **options: Any) -> Any:
    options = {"temperature": 0, "max_tokens": 24, "extra_body": LONG, **options}
    return client.completions.create(model=MODEL, prompt=prompt, **options)


def test_models_are_listed_and_found_by_name(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "yaie"
    with pytest.raises(openai.NotFoundError, match="tiny-llama"):
        client.models.retrieve("gpt-4")


def test_chat_answer_has_text_reason_and_usage(client: OpenAI) -> None:
    answer = chat(client, "hello")
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 24
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 24


def test_max_completion_tokens_is_the_newer_name_of_max_tokens(client: OpenAI) -> None:
    answer = chat(client, "hello", max_tokens=openai.omit, max_completion_tokens=3)
    assert answer.usage.completion_tokens == 3


@pytest.mark.parametrize("prompt", PROMPTS)
def test_streamed_chat_joins_to_the_whole_answer(client: OpenAI, prompt: str) -> None:
    chunks = list(chat(client, prompt, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == chat(client, prompt).choices[0].message.content


@pytest.mark.parametrize("prompt", PROMPTS)
def test_streamed_completion_joins_to_the_whole_answer(
    client: OpenAI, lenient: OpenAI, prompt: str
) -> None:
    text = "".join(chunk.choices[0].text for chunk in complete(lenient, prompt, stream=True))
    assert text == complete(client, prompt).choices[0].text


def test_stream_names_the_role_first_and_the_reason_last(client: OpenAI) -> None:
    choices = [chunk.choices[0] for chunk in chat(client, "hello", stream=True)]
    assert choices[0].delta.role == "assistant"
    assert all(choice.delta.role is None for choice in choices[1:])
    assert [choice.finish_reason for choice in choices[:-1]] == [None] * (len(choices) - 1)
    assert choices[-1].finish_reason == "length"
    assert not choices[-1].delta.content


def test_usage_comes_last_and_only_if_asked_for(client: OpenAI) -> None:
    asked = list(chat(client, "hello", stream=True, stream_options={"include_usage": True}))
    assert asked[-1].choices == []
    assert asked[-1].usage.completion_tokens == 24
    assert all(chunk.usage is None for chunk in asked[:-1])
    assert all(chunk.usage is None for chunk in chat(client, "hello", stream=True))


def test_repeated_prompt_is_reported_as_cached(client: OpenAI) -> None:
    prompt = "a prompt of more than one block, which nobody else sends " * 3
    chat(client, prompt)
    usage = chat(client, prompt).usage
    assert 0 < usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens


def test_choices_of_one_seed_differ_and_can_be_repeated(client: OpenAI) -> None:
    def texts() -> list[str]:
        answer = chat(client, "hello", n=3, seed=7, temperature=1)
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        return [choice.message.content for choice in answer.choices]

    first = texts()
    assert len(set(first)) == 3
    assert texts() == first


def test_streamed_choices_are_told_apart_by_their_index(client: OpenAI) -> None:
    options = {"n": 3, "seed": 7, "temperature": 1}
    texts = ["", "", ""]
    for chunk in chat(client, "hello", stream=True, **options):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    whole = chat(client, "hello", **options)
    assert texts == [choice.message.content for choice in whole.choices]


@pytest.mark.parametrize("stream", [False, True])
def test_stop_string_ends_the_text_and_is_not_in_it(lenient: OpenAI, stream: bool) -> None:
    client = lenient
    text = complete(client, "hello").choices[0].text
    stop = text[4:7]
    expected = text[: text.index(stop)]
    answer = complete(client, "hello", stop=[stop, "never"], stream=stream)
    if stream:
        choices = [chunk.choices[0] for chunk in answer]
        assert "".join(choice.text for choice in choices) == expected
        assert choices[-1].finish_reason == "stop"
    else:
        assert answer.choices[0].text == expected
        assert answer.choices[0].finish_reason == "stop"


def test_completions_take_all_four_forms_of_a_prompt(live: LiveServer) -> None:
    client = live.openai()
    ids = live.llm.tokenizer.encode("hello")
    alone = complete(client, "hello").choices[0].text
    assert complete(client, ids).choices[0].text == alone
    both = complete(client, ["hello", "world"], n=2)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in both.choices[:2]] == [alone, alone]
    assert both.usage.prompt_tokens == len(ids) + len(live.llm.tokenizer.encode("world"))
    assert [c.text for c in complete(client, [ids, ids]).choices] == [alone, alone]


def test_completion_stops_after_sixteen_tokens_unless_told(client: OpenAI) -> None:
    assert complete(client, "hello", max_tokens=openai.omit).usage.completion_tokens == 16


def test_an_answer_can_be_sent_back_as_part_of_the_conversation(client: OpenAI) -> None:
    first = chat(client, "hello").choices[0].message
    messages = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}],
        },
        first.model_dump(),
        {"role": "user", "content": "and then?"},
    ]
    answer = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=3)  # type: ignore[arg-type]
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 3


def test_extensions_are_honoured(client: OpenAI) -> None:
    greedy = complete(client, "hello").choices[0].text
    extensions = {**LONG, "top_k": 1, "min_p": 0.1, "repetition_penalty": 1.0, "priority": 0}
    answer = complete(client, "hello", temperature=1, extra_body=extensions)
    assert answer.choices[0].text == greedy


def test_harmless_parameters_and_defaults_are_accepted(client: OpenAI) -> None:
    options: dict[str, Any] = {
        "user": "someone",
        "metadata": {"run": "1"},
        "store": False,
        "logprobs": False,
        "tools": [],
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "logit_bias": {},
        "n": 1,
        "top_p": 1,
    }
    assert chat(client, "hello", **options).choices[0].finish_reason == "length"
