"""response_format: the answer is JSON, and of the schema, whatever the model would like to say."""

import json
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.server.conftest import LiveServer

MODEL = "tiny-llama"
SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["paged", "contiguous"]},
        "blocks": {"type": "integer", "minimum": 1, "maximum": 99},
        "flags": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
    },
    "required": ["kind", "blocks", "flags"],
    "additionalProperties": False,
}
OF_SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "cache", "schema": SCHEMA, "strict": True},
}


def chat(client: OpenAI, response_format: Any, **options: Any) -> Any:
    return client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hello"}],
        response_format=response_format,
        **{"max_tokens": 300, **options},
    )


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_follows_its_schema(client: OpenAI, seed: int) -> None:
    (choice,) = chat(client, OF_SCHEMA, seed=seed).choices
    assert choice.finish_reason == "stop"
    value = json.loads(choice.message.content)
    assert value.keys() == {"kind", "blocks", "flags"}
    assert value["kind"] in ("paged", "contiguous")
    assert 1 <= value["blocks"] <= 99
    assert [type(flag) for flag in value["flags"]] == [bool, bool]


def test_any_object_will_do_without_a_schema(live: LiveServer, client: OpenAI) -> None:
    # The model would like to begin with the closing brace and then to end: no draw is left to chance.
    (brace,) = live.llm.tokenizer.encode("}")
    bias = {str(id): 100 for id in (brace, *live.llm.model.eos_token_ids)}
    (choice,) = chat(client, {"type": "json_object"}, logit_bias=bias).choices
    assert choice.finish_reason == "stop"
    assert json.loads(choice.message.content) == {}


def test_choices_and_streams_follow_the_schema_too(client: OpenAI) -> None:
    whole = chat(client, OF_SCHEMA, n=2, seed=5)
    texts = ["", ""]
    for chunk in chat(client, OF_SCHEMA, n=2, seed=5, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert [set(json.loads(text)) for text in texts] == [{"kind", "blocks", "flags"}] * 2


def test_the_format_text_changes_nothing(client: OpenAI) -> None:
    options = {"temperature": 0, "max_tokens": 8}
    plain = chat(client, openai.omit, **options).choices[0].message.content
    assert chat(client, {"type": "text"}, **options).choices[0].message.content == plain


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "required": ["a"], "properties": {"a": False}},
        {"type": "no such type"},
        {"$ref": "https://example.com/schema"},
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused(client: OpenAI, schema: Any) -> None:
    described = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, described)
    assert refused.value.param == "response_format"
