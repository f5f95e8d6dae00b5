"""Conversations with tools: what the chat template renders, and calls that copy from the question."""

import json
import random
import re
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from book.tutor.dialogues import REFUSAL, dialogues
from book.tutor.glossary import load_phrasings
from book.tutor.templates import expand
from book.tutor.tokenizer import CHAT_TEMPLATE
from book.tutor.tool_made import COMPOSED
from book.tutor.tool_results import result_of
from book.tutor.tool_schema import Tool, call_text, tools_turn
from book.tutor.tool_talk import ask_again, ask_beside_tools, ask_missing_tool, may_cover
from book.tutor.tool_use import ask_tool, draw_tool, draw_tools
from book.tutor.tool_values import NUMBER_WORDS, Value, spoken_values
from book.tutor.unseen import calls_in
from yaie.models.tutor import TUTOR_PATH
from yaie.server.tools import choose_format
from yaie.server.tools.formats import HermesFormat

pytestmark = pytest.mark.nightly

Talk = list[dict[str, str]]


@pytest.fixture(scope="module")
def talks() -> list[Talk]:
    return list(dialogues(seed=21, count=3000))


@pytest.fixture(scope="module")
def with_tools(talks: list[Talk]) -> list[Talk]:
    return [talk for talk in talks if "</tools>" in talk[0]["content"]]


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


def test_a_fair_share_of_conversations_offers_tools(
    talks: list[Talk], with_tools: list[Talk]
) -> None:
    assert 0.15 < len(with_tools) / len(talks) < 0.24
    assert not any(
        "<tool_call>" in m["content"] for talk in talks if talk not in with_tools for m in talk
    )


def test_calls_name_an_offered_tool_and_its_arguments(with_tools: list[Talk]) -> None:
    calls = 0
    for talk in with_tools:
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


def stands_in(question: str, value: Value, kind: str) -> bool:
    """Whether a person who reads the question can tell the value."""
    if isinstance(value, bool):
        return True
    if isinstance(value, list):
        return all(str(item) in question for item in value)
    if kind.startswith("enum:"):
        return any(said.lower() in question.lower() for said in spoken_values(kind)[str(value)])
    words = [NUMBER_WORDS[value - 1]] if isinstance(value, int) and 2 <= value <= 12 else []
    return any(said in question for said in (str(value), *words))


def test_a_value_stands_in_the_question() -> None:
    rng = random.Random(3)
    for _ in range(4000):
        tool = draw_tool(rng)
        question, arguments = ask_tool(tool, rng)
        assert "{" not in question
        kinds = {argument.name: argument.kind for argument in tool.arguments}
        for name, value in arguments.items():
            assert stands_in(question, value, kinds[name]), (question, arguments)
        required = {argument.name for argument in tool.arguments if not argument.optional}
        assert required <= arguments.keys()


def is_of_type(value: Any, listed: str) -> bool:
    """Whether a JSON value is what the line of a tool lists."""
    if listed.endswith("[]"):
        return isinstance(value, list) and all(is_of_type(item, listed[:-2]) for item in value)
    kinds: dict[str, tuple[type, ...]] = {
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "boolean": (bool,),
    }
    if listed not in kinds:
        return value in listed.split("|")
    return isinstance(value, kinds[listed]) and (listed == "boolean") == isinstance(value, bool)


def test_a_value_is_of_the_type_that_the_schema_lists() -> None:
    rng = random.Random(5)
    seen = set()
    for _ in range(4000):
        tool = draw_tool(rng)
        arguments = json.loads(json.dumps(ask_tool(tool, rng)[1]))
        listed = dict(
            pair.replace("?", "").split(":")
            for pair in tool.line().partition("(")[2].partition(")")[0].split(",")
            if pair
        )
        for name, value in arguments.items():
            assert is_of_type(value, listed[name]), (tool.line(), arguments)
            seen.add((listed[name], str(value).isdigit()))
    assert ("string", True) in seen, "no digits in a string"
    assert ("string[]", False) in seen


def test_arguments_stand_in_the_schemas_order() -> None:
    rng = random.Random(6)
    other_order = 0
    for _ in range(2000):
        tool = draw_tool(rng)
        question, arguments = ask_tool(tool, rng)
        order = [argument.name for argument in tool.arguments if argument.name in arguments]
        assert list(arguments) == order
        places = [question.find(str(value)) for value in arguments.values() if str(value)]
        other_order += places != sorted(places) and min(places) >= 0
    assert other_order > 100


def test_names_can_only_be_copied() -> None:
    rng = random.Random(7)
    tools = [draw_tool(rng) for _ in range(4000)]
    names = {tool.name for tool in tools}
    arguments = [argument.name for tool in tools for argument in tool.arguments]
    assert len(names) > 0.6 * len(tools)
    # Two tools in three are everyday ones, whose arguments have the names that everybody expects.
    assert len(set(arguments)) > 0.25 * len(arguments)
    assert any(not tool.arguments for tool in tools)
    for tool in tools:
        assert len({argument.name for argument in tool.arguments}) == len(tool.arguments)


def test_most_tools_have_plain_names() -> None:
    rng = random.Random(13)
    plain = {
        name.lower().replace("_", "")
        for file in ("tools_everyday", "tools")
        for table in load_phrasings(file)["tool"]
        for name in expand(table["name"])
    }
    tools = [draw_tool(rng) for _ in range(1000)]
    assert 0.55 < sum(tool.name.lower().replace("_", "") in plain for tool in tools) / 1000 < 0.85


def test_a_result_holds_what_its_tool_gives() -> None:
    rng = random.Random(14)
    gives = ("price=int:5-900", "currency=currency")
    results = [result_of(rng, {"symbol": "AAPL"}, gives) for _ in range(300)]
    assert sum("price" in text and "price" in reply for text, reply in results) > 100
    for text, reply in results:
        assert reply.startswith(("The result is ", "The tool "))
        assert all(number in reply for number in re.findall(r"\d+", text)), (text, reply)


def test_some_sets_do_several_things_with_one_thing() -> None:
    rng = random.Random(8)
    alike = 0
    for _ in range(400):
        made = [tool.sort for tool in draw_tools(rng) if tool.sort.startswith(COMPOSED)]
        things = [sort.rpartition(" ")[2] for sort in made]
        alike += len(set(things)) < len(things)
    assert alike > 50


def test_tools_of_one_group_are_often_offered_together() -> None:
    rng = random.Random(12)
    together = 0
    for _ in range(400):
        tools = draw_tools(rng)
        groups = [tool.group for tool in tools if tool.group]
        together += len(set(groups)) < len(groups)
        sorts = [tool.sort for tool in tools]
        assert len(set(sorts)) == len(sorts)
    assert together > 40


def test_a_reply_says_what_the_result_says() -> None:
    rng = random.Random(9)
    for _ in range(2000):
        text, reply = result_of(rng, {"city": "Oslo"})
        assert "<tool_call>" not in reply
        assert reply.startswith(("The result is ", "The tool "))
        numbers = re.findall(r"\d+", text)
        assert all(number in reply for number in numbers), (text, reply)


def test_the_same_is_asked_for_another_value() -> None:
    rng = random.Random(10)
    again = 0
    for _ in range(500):
        tool = draw_tool(rng)
        arguments = ask_tool(tool, rng)[1]
        found = ask_again(tool, arguments, rng)
        if found is not None:
            again += 1
            changed = [name for name in arguments if arguments[name] != found[1][name]]
            assert list(found[1]) == list(arguments)
            assert len(changed) <= 1
            assert all(str(found[1][name]) in found[0] for name in changed)
    assert again > 50


def test_prompts_beside_tools_are_for_none_of_them() -> None:
    rng = random.Random(11)
    weather = Tool("get_weather", "The weather", (), ("Does it rain in {0}",), "weather")
    assert may_cover([weather], "Will there be weather tomorrow")
    assert not may_cover([weather], "Who painted the Scream")
    prompts = [ask_beside_tools([weather], rng) for _ in range(500)]
    assert not any("weather" in prompt.lower().split() for prompt in prompts)


def test_tools_are_not_always_called(with_tools: list[Talk]) -> None:
    replies = [m["content"] for talk in with_tools for m in talk if m["role"] == "assistant"]
    plain = sum("<tool_call>" not in reply for reply in replies) / len(replies)
    assert 0.3 < plain < 0.75
    assert 0.05 < sum(reply == REFUSAL for reply in replies) / len(replies) < 0.3


def test_a_missing_tool_is_of_another_sort() -> None:
    rng = random.Random(4)
    for _ in range(200):
        tools = draw_tools(rng)
        assert len({tool.name for tool in tools}) == len(tools)
        assert ask_missing_tool(tools, rng).strip()
