"""The official client, strict: `/v1/responses`, whole and streamed, with formats and functions."""

import json
from typing import Any, Literal

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel, ConfigDict

from tests.judges.asking import MODEL, chat, one


class Answer(BaseModel):
    """What the model must say, and nothing besides."""

    model_config = ConfigDict(extra="forbid")

    colour: Literal["red", "青"]
    is_warm: bool


FUNCTION: Any = {
    "type": "function", "name": "get_weather", "strict": True, "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Paris", "東京"]}},
        "required": ["city"], "additionalProperties": False}}  # fmt: skip
LIMIT = 24


def respond(client: OpenAI, **options: Any) -> Any:
    defaults = {"input": "hello", "temperature": 0, "max_output_tokens": LIMIT}
    return client.responses.create(**{"model": MODEL, **defaults, **options})


def test_response_says_what_a_chat_says(client: OpenAI) -> None:
    response = respond(client)
    whole = chat(client, "hello", extra={"ignore_eos": False})
    assert response.output_text == one(whole)
    assert response.object == "response"
    assert response.usage.input_tokens == whole.usage.prompt_tokens
    assert response.usage.output_tokens == whole.usage.completion_tokens


def test_limit_leaves_a_response_incomplete_and_says_why(client: OpenAI) -> None:
    response = respond(client, max_output_tokens=2)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 2


def test_instructions_come_before_the_input(client: OpenAI) -> None:
    with_them = respond(client, instructions="Be brief.")
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    assert with_them.output_text == respond(client, input=turns).output_text
    assert with_them.usage.input_tokens > respond(client).usage.input_tokens


def test_stream_tells_the_whole_response_in_order(client: OpenAI) -> None:
    events = list(respond(client, stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created"
    assert kinds[-1] in ("response.completed", "response.incomplete")
    assert [event.sequence_number for event in events] == list(range(len(events)))
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    (done,) = [event.text for event in events if event.type == "response.output_text.done"]
    assert said == done == events[-1].response.output_text == respond(client).output_text


def test_stream_helper_follows_the_events(client: OpenAI) -> None:
    with client.responses.stream(
        model=MODEL, input="hello", temperature=0, max_output_tokens=LIMIT
    ) as stream:
        said = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(said) == respond(client).output_text


@pytest.mark.parametrize("temperature", [0, 1])
def test_json_schema_is_followed(client: OpenAI, temperature: float) -> None:
    parsed = client.responses.parse(
        model=MODEL, input="?", text_format=Answer, temperature=temperature, max_output_tokens=400
    )
    assert isinstance(parsed.output_parsed, Answer)


def test_json_object_is_one(client: OpenAI) -> None:
    response = respond(client, text={"format": {"type": "json_object"}}, max_output_tokens=60)
    assert response.output_text.lstrip().startswith("{")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
def test_demanded_function_is_called(client: OpenAI, choice: Any) -> None:
    options = {"tools": [FUNCTION], "tool_choice": choice, "max_output_tokens": 400,
               "parallel_tool_calls": False}  # fmt: skip
    (call,) = respond(client, **options).output
    assert (call.type, call.name) == ("function_call", "get_weather")
    assert json.loads(call.arguments)["city"] in ("Paris", "東京")
    events = list(respond(client, stream=True, **options))
    pieces = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert "".join(pieces) == events[-1].response.output[0].arguments


def test_call_and_its_output_go_back_in(client: OpenAI) -> None:
    question = {"role": "user", "content": "?"}
    (call,) = respond(client, input=[question], tools=[FUNCTION], tool_choice="required",
                      max_output_tokens=400, parallel_tool_calls=False).output  # fmt: skip
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    turns = [question, call.model_dump(exclude_none=True), result]
    longer = respond(client, input=turns, tools=[FUNCTION])
    shorter = respond(client, input=[question], tools=[FUNCTION])
    assert longer.usage.input_tokens > shorter.usage.input_tokens + 10


def test_answer_can_be_sent_back_as_it_came(client: OpenAI) -> None:
    first = respond(client)
    turns = [{"role": "user", "content": "hello"},
             *(item.model_dump(exclude_none=True) for item in first.output),
             {"role": "user", "content": "and then?"}]  # fmt: skip
    assert respond(client, input=turns).usage.input_tokens > first.usage.total_tokens


def test_repeated_input_is_reported_as_cached(client: OpenAI) -> None:
    long = "a question to the responses API that is longer than a few blocks of tokens " * 2
    respond(client, input=long)
    usage = respond(client, input=long).usage
    assert 0 < usage.input_tokens_details.cached_tokens < usage.input_tokens


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("temperature", {"temperature": -1}),
    ("previous_response_id", {"previous_response_id": "resp_1"}),
    ("background", {"background": True}),
    ("max_output_tokens", {"max_output_tokens": 0}),
]


@pytest.mark.parametrize(("param", "options"), REFUSED, ids=str)
def test_what_is_wrong_or_needs_a_memory_is_refused_by_name(
    client: OpenAI, param: str, options: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        respond(client, **options)
    assert refusal.value.param == param
    with pytest.raises(openai.NotFoundError):
        respond(client, model="gpt-4")
