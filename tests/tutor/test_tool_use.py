"""Conversations with tools: what the chat template renders, and calls that copy from the question."""

import json
import random
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from yaie.server.tools import choose_format
from yaie.server.tools.formats import HermesFormat
from yaie.tutor import TUTOR_PATH
from yaie.tutor.dialogues import REFUSAL, dialogues
from yaie.tutor.tokenizer import CHAT_TEMPLATE
from yaie.tutor.tool_talk import ask_missing_tool
from yaie.tutor.tool_use import ask_tool, call_text, draw_tool, draw_tools, tools_turn
from yaie.tutor.unseen import calls_in

TALKS = list(dialogues(seed=21, count=3000))
WITH_TOOLS = [talk for talk in TALKS if "</tools>" in talk[0]["content"]]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(TUTOR_PATH)
    loaded.chat_template = CHAT_TEMPLATE
    return loaded


def schema(
    name: str, about: str, properties: dict[str, Any], required: list[str]
) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    function = {"name": name, "description": about, "parameters": parameters}
    return {"type": "function", "function": function}


def test_the_template_writes_what_training_writes(tokenizer: PreTrainedTokenizerBase) -> None:
    properties = {
        "city": {"type": "string"},
        "unit": {"type": "string", "enum": ["c", "f"]},
        "days": {"type": "array", "items": {"type": "integer"}},
        "wind": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        "limit": {"type": ["number", "null"]},
        "other": {},
    }
    tools = [
        schema("get_weather", "The weather\n  of a city", properties, ["city"]),
        {"type": "function", "function": {"name": "now"}},
    ]
    listed = "city:string,unit?:c|f,days?:integer[],wind?:boolean,limit?:number,other?:any"
    lines = [
        f"get_weather({listed}): The weather of a city",
        "now()",
    ]
    arguments = {"city": "Zürich <1> 'old'", "unit": "c"}
    call = {
        "type": "function",
        "id": "1",
        "function": {"name": "get_weather", "arguments": arguments},
    }
    talk: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "31"},
    ]
    plain = [
        {"role": "system", "content": tools_turn(lines, "Be brief.")},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": call_text("get_weather", arguments)},
        {"role": "tool", "content": "31"},
    ]

    def render(messages: list[dict[str, Any]], offered: Any = None) -> str:
        return str(
            tokenizer.apply_chat_template(
                messages, tools=offered, tokenize=False, add_generation_prompt=True
            )
        )

    assert render(talk, tools) == render(plain)
    assert render(talk[1:], tools) == render(
        [{**plain[0], "content": tools_turn(lines)}, *plain[1:]]
    )
    call["function"] = {
        "name": "get_weather",
        "arguments": json.dumps(arguments, ensure_ascii=False),
    }
    assert render(talk, tools) == render(plain)


def test_without_tools_the_template_is_the_plain_one(tokenizer: PreTrainedTokenizerBase) -> None:
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
    rendered = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert rendered == (
        "<|begin_of_text|><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_the_server_reads_the_tutors_calls() -> None:
    assert isinstance(choose_format("auto", CHAT_TEMPLATE, lambda _: None), HermesFormat)


def test_a_fair_share_of_conversations_offers_tools() -> None:
    assert 0.1 < len(WITH_TOOLS) / len(TALKS) < 0.25
    assert not any(
        "<tool_call>" in m["content"] for talk in TALKS if talk not in WITH_TOOLS for m in talk
    )


def test_calls_name_an_offered_tool_and_its_arguments() -> None:
    calls = 0
    for talk in WITH_TOOLS:
        offered = {
            line.split("(")[0]: line for line in talk[0]["content"].splitlines() if "(" in line
        }
        for message in talk:
            for name, arguments in calls_in(message["content"]):
                calls += 1
                assert name in offered
                assert all(
                    f"{key}:" in offered[name] or f"{key}?:" in offered[name] for key in arguments
                )
    assert calls > 200


def test_a_value_stands_in_the_question() -> None:
    rng = random.Random(3)
    for _ in range(2000):
        tool = draw_tool(rng)
        question, arguments = ask_tool(tool, rng)
        assert "{" not in question
        shown = [value for value in arguments.values() if not isinstance(value, bool)]
        assert all(str(value) in question for value in shown), (question, arguments)
        required = {argument.name for argument in tool.arguments if not argument.optional}
        assert required <= arguments.keys()


def test_tools_are_not_always_called() -> None:
    replies = [m["content"] for talk in WITH_TOOLS for m in talk if m["role"] == "assistant"]
    plain = sum("<tool_call>" not in reply for reply in replies) / len(replies)
    assert 0.3 < plain < 0.75
    assert 0.05 < sum(reply == REFUSAL for reply in replies) / len(replies) < 0.3


def test_a_missing_tool_is_of_another_sort() -> None:
    rng = random.Random(4)
    for _ in range(200):
        tools = draw_tools(rng)
        assert len({tool.name for tool in tools}) == len(tools)
        assert ask_missing_tool(tools, rng).strip()
