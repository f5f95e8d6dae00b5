"""Calls of functions in `/v1/responses`, on a tiny random model whose template knows of tools.

The model's choice of words is noise, so the calls are demanded; what they hold is up to the schema.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.server.conftest import serving
from tests.server.tool_models import tool_model
from yaie.engine.llm_engine import LLMEngine

LAMP = {
    "type": "function",
    "name": "set_lamp",
    "parameters": {
        "type": "object",
        "properties": {"is_on": {"type": "boolean"}},
        "required": ["is_on"],
        "additionalProperties": False,
    },
}
CLOCK = {"type": "function", "name": "get_time", "description": "Tells the time."}
DEMAND: dict[str, Any] = {
    "tools": [LAMP, CLOCK],
    "tool_choice": {"type": "function", "name": "set_lamp"},
    "temperature": 0,
    "max_output_tokens": 200,
}


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    folder: Path = tool_model("hermes", tmp_path_factory.mktemp("tools") / "caller")
    with serving(lambda: LLMEngine(model=str(folder), num_blocks=256, threads=1)) as server:
        yield server.openai()


def respond(client: OpenAI, input: Any = "Light!", **options: Any) -> Any:
    return client.responses.create(model="caller", input=input, **{**DEMAND, **options})


def test_a_call_is_an_item_of_the_output(caller: OpenAI) -> None:
    answer = respond(caller)
    assert answer.status == "completed"
    [call] = answer.output
    assert (call.type, call.name, call.status) == ("function_call", "set_lamp", "completed")
    assert json.loads(call.arguments)["is_on"] in (True, False)
    assert call.id.startswith("fc_")
    assert call.call_id
    assert call.call_id != call.id
    assert answer.output_text == ""
    assert [tool.name for tool in answer.tools] == ["set_lamp", "get_time"]
    assert answer.tool_choice.name == "set_lamp"


def test_a_streamed_call_is_the_same_in_pieces(caller: OpenAI) -> None:
    events = list(respond(caller, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:3] == ["created", "in_progress", "output_item.added"]
    assert kinds[-3:] == ["function_call_arguments.done", "output_item.done", "completed"]
    pieces = [event.delta for event in events if event.type.endswith("arguments.delta")]
    [call] = events[-1].response.output
    assert "".join(pieces) == call.arguments == events[-3].arguments
    assert call.arguments == respond(caller).output[0].arguments
    assert call == events[-2].item
    assert events[2].item.call_id == call.call_id


def test_the_clients_own_stream_helper_follows_a_call(caller: OpenAI) -> None:
    with caller.responses.stream(model="caller", input="Light!", **DEMAND) as stream:
        answer: Any = stream.get_final_response()
    assert answer.output[0].name == "set_lamp"


def test_calls_and_what_they_returned_are_sent_back(caller: OpenAI) -> None:
    first = respond(caller)
    result = {
        "type": "function_call_output",
        "call_id": first.output[0].call_id,
        "output": [{"type": "input_text", "text": "done"}],
    }
    items = [{"role": "user", "content": "Light!"}, *first.output, result]
    second = respond(caller, items, tool_choice="auto", max_output_tokens=4)
    assert second.status == "incomplete"
    assert second.usage.input_tokens > first.usage.input_tokens


def test_the_prompt_is_that_of_the_same_conversation_in_a_chat(caller: OpenAI) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "set_lamp"}
    items = [
        {"role": "user", "content": "Light!"},
        {"role": "assistant", "content": "I do it."},
        {**call, "arguments": '{"is_on": true}'},
        {**call, "call_id": "c2", "arguments": '{"is_on": false}'},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    ]
    chat_call = {"type": "function", "function": {"name": "set_lamp"}}
    on = {**chat_call, "id": "c1", "function": {"name": "set_lamp", "arguments": '{"is_on": true}'}}
    off = {
        **chat_call,
        "id": "c2",
        "function": {"name": "set_lamp", "arguments": '{"is_on": false}'},
    }
    messages: Any = [
        {"role": "user", "content": "Light!"},
        {"role": "assistant", "content": "I do it.", "tool_calls": [on, off]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    chat = caller.chat.completions.create(model="caller", messages=messages, max_tokens=1)
    assert chat.usage is not None
    answer = respond(caller, items, tools=[], tool_choice="auto", max_output_tokens=1)
    assert answer.usage.input_tokens == chat.usage.prompt_tokens


def test_a_call_that_was_cut_is_incomplete(caller: OpenAI) -> None:
    answer = respond(caller, max_output_tokens=12)
    assert answer.status == "incomplete"
    assert answer.output[-1].status == "incomplete"


def test_arguments_stay_in_their_call_when_their_tokens_have_log_probabilities(
    caller: OpenAI,
) -> None:
    *_, last = respond(caller, stream=True, top_logprobs=1)
    [call] = [item for item in last.response.output if item.type == "function_call"]
    assert json.loads(call.arguments)["is_on"] in (True, False)
    said = [item for item in last.response.output if item.type == "message"]
    assert [part.text for item in said for part in item.content] == [""]
    num_entries = sum(len(part.logprobs) for item in said for part in item.content)
    assert num_entries == last.response.usage.output_tokens
