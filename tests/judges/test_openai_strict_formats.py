"""The official client, strict: answers that must be JSON, and calls of functions.

The model is random: that its noise comes out as what a schema wants is the server's doing alone.
"""

import json
from typing import Any, Literal

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field

from tests.judges.asking import MODEL, chat, one, text

FORMATTED = {"max_tokens": 400, "temperature": 1, "extra": {"ignore_eos": False}}
MESSAGES: Any = [{"role": "user", "content": "日本語 🙂?"}]
SEEDS = [1, 2, 3, 4]


class Answer(BaseModel):
    """What the model must say, and nothing besides."""

    model_config = ConfigDict(extra="forbid")

    colour: Literal["red", "grün", "青"]
    is_warm: bool
    share: int = Field(ge=0, le=100)
    parts: list[Literal["a", "b"]] = Field(max_length=3)


class Weather(BaseModel):
    """Asks for the weather."""

    city: Literal["Paris", "東京"]
    days: int = Field(ge=1, le=9)


SCHEMA = {"type": "json_schema", "json_schema": {
    "name": "answer", "strict": True, "schema": Answer.model_json_schema()}}  # fmt: skip
TOOLS: Any = [openai.pydantic_function_tool(Weather, name="get_weather")]
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.parametrize("seed", SEEDS)
def test_json_schema_is_followed(client: OpenAI, seed: int) -> None:
    choice = chat(client, response_format=SCHEMA, seed=seed, **FORMATTED).choices[0]
    assert choice.finish_reason == "stop"
    Answer.model_validate_json(choice.message.content)


def test_schema_leaves_the_choice_to_the_model(client: OpenAI) -> None:
    said = {one(chat(client, response_format=SCHEMA, seed=seed, **FORMATTED)) for seed in SEEDS}
    assert len(said) > 1


def test_streamed_json_is_the_whole_json(client: OpenAI) -> None:
    options = {"response_format": SCHEMA, "seed": 1, **FORMATTED}
    whole = one(chat(client, **options))
    chunks = chat(client, stream=True, **options)
    assert "".join(text(chunk.choices[0]) for chunk in chunks) == whole


@pytest.mark.parametrize("seed", SEEDS)
def test_json_object_begins_as_one_and_is_one_if_it_ends(client: OpenAI, seed: int) -> None:
    """Left alone, noise may go on inside a string for ever: a limit must then be told as such."""
    options = {**FORMATTED, "max_tokens": 200}
    choice = chat(client, response_format={"type": "json_object"}, seed=seed, **options).choices[0]
    assert choice.message.content.lstrip().startswith("{")
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict)
    else:
        assert choice.finish_reason == "length"


def test_client_parses_the_answer_into_a_model(client: OpenAI) -> None:
    parsed = client.chat.completions.parse(
        model=MODEL, messages=MESSAGES, response_format=Answer, max_tokens=400, seed=1
    )
    assert isinstance(parsed.choices[0].message.parsed, Answer)


def test_client_parses_a_stream_into_a_model(client: OpenAI) -> None:
    options: Any = {"response_format": Answer, "max_tokens": 400, "seed": 1}
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, **options) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    whole = client.chat.completions.parse(model=MODEL, messages=MESSAGES, **options)
    assert final.choices[0].message.parsed == whole.choices[0].message.parsed


def test_an_answer_cut_short_is_told_by_its_reason(client: OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model=MODEL, messages=MESSAGES, response_format=Answer, max_tokens=2
        )


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_demanded_call_is_made_with_valid_arguments(client: OpenAI, choice: Any, seed: int) -> None:
    options = {**FORMATTED, "tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False}
    answer = chat(client, "?", seed=seed, **options).choices[0]
    (call,) = answer.message.tool_calls
    assert call.function.name == "get_weather"
    Weather.model_validate_json(call.function.arguments)
    assert not answer.message.content
    # OpenAI says "stop" where the client itself named the function.
    assert answer.finish_reason in ("tool_calls", "stop")


def test_streamed_call_is_the_whole_call(client: OpenAI) -> None:
    options: dict[str, Any] = {**FORMATTED, "seed": 1, "tools": TOOLS, "tool_choice": "required",
                               "parallel_tool_calls": False}  # fmt: skip
    whole = chat(client, "?", **options).choices[0]
    arguments, ids, names, reasons = "", [], [], []
    for chunk in chat(client, "?", stream=True, **options):
        (choice,) = chunk.choices
        reasons.append(choice.finish_reason)
        assert not choice.delta.content
        for call in choice.delta.tool_calls or []:
            assert call.index == 0
            ids += [call.id] if call.id else []
            names += [call.function.name] if call.function.name else []
            arguments += call.function.arguments or ""
    (call,) = whole.message.tool_calls
    assert (arguments, names) == (call.function.arguments, ["get_weather"])
    assert len(ids) == 1
    assert reasons == [None] * (len(reasons) - 1) + [whole.finish_reason]


def test_client_parses_calls_of_whole_answers_and_of_streams(client: OpenAI) -> None:
    options: Any = {"tools": TOOLS, "tool_choice": "required", "max_tokens": 400, "seed": 1,
                    "parallel_tool_calls": False}  # fmt: skip
    whole = client.chat.completions.parse(model=MODEL, messages=MESSAGES, **options)
    (call,) = whole.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Weather)
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, **options) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    (streamed,) = final.choices[0].message.tool_calls or []
    assert streamed.function.parsed_arguments == call.function.parsed_arguments


def test_call_and_its_result_go_into_the_next_prompt(client: OpenAI) -> None:
    options = {**FORMATTED, "seed": 1, "tools": TOOLS, "tool_choice": NAMED}
    first = chat(client, "?", **options).choices[0].message
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "sunny"}
    turns: Any = [*MESSAGES, first.model_dump(exclude_none=True), result]
    answer = client.chat.completions.create(model=MODEL, messages=turns, tools=TOOLS, max_tokens=3)
    alone = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, tools=TOOLS, max_tokens=3
    )
    assert answer.usage is not None
    assert alone.usage is not None
    assert answer.usage.prompt_tokens > alone.usage.prompt_tokens + 10


def test_tools_that_may_not_be_called_are_not_told_to_the_model(client: OpenAI) -> None:
    def prompt_tokens(**options: Any) -> int:
        tokens: int = chat(client, "?", max_tokens=1, **options).usage.prompt_tokens
        return tokens

    assert prompt_tokens(tools=TOOLS, tool_choice="none") == prompt_tokens()
    assert prompt_tokens(tools=TOOLS, tool_choice="auto") > prompt_tokens()
    assert chat(client, "?", tools=TOOLS, tool_choice="none").choices[0].message.tool_calls is None
