"""Calls of tools through the server: on tiny models, and on an engine that says what it must."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.marks import nightly_but
from tests.server.conftest import LiveServer, serving
from tests.server.tool_asking import TOOLS, USER, ask, joined, of_answer
from tests.server.tool_models import STYLES, tool_model
from yaie.engine.llm_engine import LLMEngine


@pytest.fixture(
    scope="module",
    params=nightly_but(("hermes", "llama3", "mistral", "qwen-coder"), STYLES),
)
def styled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    """The real engine on a tiny model whose template writes calls in one of the styles."""
    folder = tool_model(request.param, tmp_path_factory.mktemp("tools") / request.param)
    with serving(lambda: LLMEngine(model=str(folder), num_blocks=512, threads=1)) as server:
        yield server


def check(call: Any) -> None:
    """A call of one of the tools, with arguments of its schema."""
    assert call.type == "function"
    assert call.id
    arguments = json.loads(call.function.arguments)
    if call.function.name == "halt":
        assert arguments == {}
    else:
        assert call.function.name == "get_weather"
        assert arguments.keys() == {"unit", "days"}
        assert arguments["unit"] in ("celsius", "kelvin")
        assert 1 <= arguments["days"] <= 9


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_required_call_is_made_and_fits_its_schema(styled: LiveServer, seed: int) -> None:
    answer = ask(styled, tool_choice="required", parallel_tool_calls=False, seed=seed)
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (call,) = choice.message.tool_calls
    check(call)


def test_a_named_function_is_called_once(styled: LiveServer) -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    (choice,) = ask(styled, tool_choice=named).choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert call.function.name == "get_weather"
    check(call)


def test_a_streamed_call_is_that_of_the_whole_answer(styled: LiveServer) -> None:
    options = {"tool_choice": "required", "parallel_tool_calls": False, "logprobs": True}
    whole, chunks = ask(styled, **options), list(ask(styled, stream=True, **options))
    assert joined(chunks) == of_answer(whole)
    assert of_answer(whole)[2] == "tool_calls"
    entries = [
        entry
        for chunk in chunks
        for entry in (chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else [])
    ]
    expected = whole.choices[0].logprobs.content
    assert [entry.token for entry in entries] == [entry.token for entry in expected]
    # The second prompt begins with a cached prefix, and is rounded elsewhere.
    told = [entry.logprob for entry in expected]
    assert [entry.logprob for entry in entries] == pytest.approx(told, abs=1e-4)
    assert len(entries) == whole.usage.completion_tokens


def test_the_tools_are_in_the_prompt_unless_none_may_be_called(styled: LiveServer) -> None:
    without = ask(styled, tools=openai.omit, max_tokens=1).usage.prompt_tokens
    assert ask(styled, tool_choice="none", max_tokens=1).usage.prompt_tokens == without
    assert ask(styled, max_tokens=1).usage.prompt_tokens > without + 100
    told = styled.http.post("/tokenize", json={"messages": USER, "tools": TOOLS}).json()
    assert "The weather of a place." in styled.llm.tokenizer.decode(told["tokens"])


def test_a_call_and_its_answer_can_be_sent_back(styled: LiveServer) -> None:
    first = ask(styled, tool_choice="required", parallel_tool_calls=False).choices[0].message
    (call,) = first.tool_calls
    messages = [
        *USER,
        first.model_dump(),
        {"role": "tool", "tool_call_id": call.id, "content": "22 degrees"},
    ]
    answer = ask(styled, messages, max_tokens=2, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 2
    alone = ask(styled, [*USER, messages[2]], max_tokens=1)
    assert answer.usage.prompt_tokens > alone.usage.prompt_tokens + 10


def test_answers_have_their_form_or_are_calls(styled: LiveServer) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
              "additionalProperties": False}  # fmt: skip
    described = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for seed in range(4):
        (choice,) = ask(styled, response_format=described, seed=seed).choices
        if choice.message.tool_calls:
            assert choice.finish_reason in ("tool_calls", "length")
        else:
            assert json.loads(choice.message.content).keys() == {"ok"}


def test_a_schema_of_a_tool_that_cannot_be_followed_is_refused(styled: LiveServer) -> None:
    function = {"name": "f", "parameters": {"required": ["a"], "properties": {"a": False}}}
    tools = [{"type": "function", "function": function}]
    with pytest.raises(openai.BadRequestError) as refused:
        ask(styled, tools=tools, tool_choice="required")
    assert refused.value.param == "tools"
