"""What the forms of Qwen3-Coder and DeepSeek need beyond a parser: schemas between tags, tools in the
system message. Calls that go wrong, and choices of some of the tools, in every form."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.server.conftest import LiveServer, serving
from tests.server.test_tool_calls import Parrot
from tests.server.test_tool_grammars import Speaker, no_special, tagged, written
from tests.server.tool_asking import STOP_TOOL, TOOLS, WEATHER, ask, joined, of_answer
from tests.server.tool_models import STYLES, tool_model
from yaie.core.errors import InvalidRequestError
from yaie.engine.llm_engine import LLMEngine
from yaie.server.tools import choose_format
from yaie.server.tools.deepseek import BEGIN, CALL, CALL_END, END
from yaie.server.tools.deepseek import SEPARATOR as SEP

# --- schemas between tags ---


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Speaker:
    return Speaker("qwen-coder", tmp_path_factory.mktemp("tools") / "coder")


def coded(arguments: dict[str, Any]) -> str:
    return f"<tool_call>\n<function=f>\n{tagged(json.dumps(arguments))}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "string", "enum": ["a", "b c"]}, "b c", "c"),
        ({"const": 5}, "5", "6"),
        ({"type": "string", "pattern": "^[a-z/]{2}$"}, "a/", "a/b"),
        ({"type": "string", "pattern": r"\\|/"}, "a/b", "ab"),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "a\nb", "abcd"),
        ({"type": "integer", "maximum": 9}, "7", "x"),
        ({"type": "array", "items": {"$ref": "#/$defs/n"}}, "[1, 2]", '["x"]'),
        ({"$ref": "#/$defs/n"}, "3", "x"),
        ({"type": "boolean"}, "true", "maybe"),
    ],
)
def test_values_between_tags_follow_their_schema(
    coder: Speaker, schema: dict[str, Any], right: str, wrong: str
) -> None:
    root = {"type": "object", "properties": {"v": schema}, "required": ["v"],
            "$defs": {"n": {"type": "integer"}}}  # fmt: skip
    functions = {"functions": {"f": root}}
    assert coder.may_say(coded({"v": right}), **functions)
    assert not coder.may_say(coded({"v": wrong}), **functions)
    assert not coder.may_say(coded({}), **functions)


def test_text_between_tags_may_be_any_but_its_end(coder: Speaker) -> None:
    root = {"type": "object", "properties": {"v": {"type": "string"}, "w": {}}, "required": ["v"]}
    functions = {"functions": {"f": root}}
    assert coder.may_say(coded({"v": 'x\n\n<y> </function> "</param'}), **functions)
    assert coder.may_say(coded({"v": "", "w": "[1]"}), **functions)
    assert not coder.may_say(coded({"w": "x", "v": "x"}), **functions)
    assert not coder.may_say(coded({"v": "x", "u": "x"}), **functions)
    assert not coder.may_say(coded({"v": "x</parameter>"}), **functions)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"required": ["a"]}]},
        {"properties": {"a>": {}}},
        {"properties": {"a": False}, "required": ["a"]},
        {"properties": []},
        {"required": [1]},
        {"$ref": "#/nowhere"},
    ],
)
def test_a_schema_that_tags_cannot_follow_is_refused(schema: dict[str, Any]) -> None:
    form = choose_format("qwen3_coder", "{{ tools }}", no_special)
    assert form is not None
    demand = {"functions": {"f": schema}, "is_required": True, "may_be_several": True}
    with pytest.raises(InvalidRequestError, match="properties and required") as refused:
        form.grammar({**demand, "answer": None})
    assert refused.value.param == "tools"


# --- tools in the system message ---

PUT = {"name": "put", "description": "Puts.", "parameters": {"type": "object"}}
TOLD = [{"type": "function", "function": PUT}]


@pytest.mark.parametrize("parser", ["deepseek_v3", "deepseek_v31"])
def test_tools_are_told_where_the_template_does_not(parser: str) -> None:
    form = choose_format(parser, "", no_special)
    assert form is not None
    user = {"role": "user", "content": "hi"}
    system, after = form.conversation([user], TOLD)
    assert after is user
    assert system["role"] == "system"
    for expected in ("### put", "Description: Puts.", '{"type": "object"}', CALL, SEP):
        assert expected in system["content"]
    assert ("```json" in system["content"]) == (parser == "deepseek_v3")
    [system, _] = form.conversation([{"role": "system", "content": "Be brief."}, user], TOLD)
    assert system["content"].startswith("Be brief.\n\n## Tools")
    parts = [{"type": "text", "text": "Be brief."}]
    [system, _] = form.conversation([{"role": "developer", "content": parts}, user], TOLD)
    assert system["content"][0] == parts[0]
    assert "### put" in system["content"][1]["text"]
    assert form.conversation([user], None) == [user]
    listing = choose_format(parser, "{{ tools }}", no_special)
    assert listing is not None
    assert listing.conversation([user], TOLD) == [user]


# --- calls that go wrong, in every form ---

HEAD = '<tool_call>{"name": "halt", "arguments": '
WRONG = {
    "hermes": (f'{HEAD}{{"a": }}!', '{"a": ', "}!"),
    "llama3": ('{"name": "halt", "parameters": {"a": }!', '{"a": ', "}!"),
    "mistral": ('[TOOL_CALLS] [{"name": "halt", "arguments": {"a" 1}}]', '{"a" ', "1}}]"),
    "mistral-named": ('[TOOL_CALLS]halt[ARGS]{"a": ]', '{"a": ', "]"),
    "qwen-coder": ("<function=halt><parameter=a>\n1\n</parameter>?", '{"a": 1', "?"),
    "deepseek-v3": (f'{BEGIN}{CALL}function{SEP}halt\n```json\n{{"a": ]', '{"a": ', "]"),
    "deepseek-v31": (f'{BEGIN}{CALL}halt{SEP}{{"a": ]{CALL_END}{END}', '{"a": ', f"]{CALL_END}{END}"),
}  # fmt: skip


@pytest.mark.parametrize("style", WRONG)
def test_a_call_that_goes_wrong_stays_as_far_as_it_came_and_is_no_reason(style: str) -> None:
    """It cannot be taken back from a stream, and the whole answer says the same. The reason tells
    clients not to call: it is "stop"."""
    said, arguments, rest = WRONG[style]

    def parrot() -> Parrot:
        engine = Parrot()
        engine.tokenizer.chat_template = STYLES[style][0]
        return engine

    with serving(parrot) as server:
        messages = [{"role": "user", "content": said}]
        whole = of_answer(ask(server, messages, max_tokens=openai.omit))
        assert whole == (rest, [("halt", arguments)], "stop")
        assert joined(ask(server, messages, max_tokens=openai.omit, stream=True)) == whole


# --- some of the tools ---


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder: Path = tool_model("hermes", tmp_path_factory.mktemp("tools") / "caller")
    with serving(lambda: LLMEngine(model=str(folder), num_blocks=256, threads=1)) as server:
        yield server


def test_only_allowed_tools_are_called_though_all_are_in_the_prompt(caller: LiveServer) -> None:
    options: Any = {"tool_choice": allowed("required", "halt"), "parallel_tool_calls": False}
    for seed in range(4):
        answer = ask(caller, seed=seed, **options)
        assert of_answer(answer) == ("", [("halt", "{}")], "tool_calls")
    every = ask(caller, max_tokens=1, tool_choice="auto").usage.prompt_tokens
    assert answer.usage.prompt_tokens == every
    tools = [{"type": "function", "name": tool["function"]["name"]} for tool in TOOLS]
    choice = {"type": "allowed_tools", "mode": "required", "tools": tools[1:]}
    response: Any = caller.openai().responses.create(
        model="caller", input="hi", tools=tools, tool_choice=choice, parallel_tool_calls=False
    )  # fmt: skip
    assert [item.name for item in response.output] == ["halt"]
    assert response.tool_choice.type == "allowed_tools"


def test_a_tool_that_is_not_allowed_cannot_be_called(tmp_path: Path) -> None:
    from solutions.api_server import ChatRequest

    for style in ("hermes", "qwen-coder", "deepseek-v31"):
        speaker = Speaker(style, tmp_path / style)
        weather = {"type": "function", "function": {"name": "get_weather"}}
        put = {"type": "function", "function": {"name": "put"}}
        body = {"messages": [{"role": "user", "content": "hi"}], "tools": [weather, put]}
        chosen = ChatRequest.model_validate({**body, "tool_choice": allowed("auto", "put")})
        constraint = chosen.sampling_params({}).constraint
        assert constraint is not None
        demand = json.loads(constraint.text)
        assert chosen.callable_functions.keys() == {"put"}
        assert speaker.may_say("No.", **demand)
        assert speaker.may_say(written(style, "put"), **demand)
        assert not speaker.may_say(written(style, "get_weather"), **demand)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (allowed("auto", "other"), "not among"),
        (allowed("sometimes", "halt"), "allowed_tools"),
        (allowed("auto"), "allowed_tools"),
        ({"type": "allowed_tools"}, "allowed_tools"),
    ],
)
def test_a_choice_of_tools_that_cannot_be_is_refused(
    caller: LiveServer, choice: Any, message: str
) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [WEATHER, STOP_TOOL]}
    refused = caller.http.post("/v1/chat/completions", json={**body, "tool_choice": choice})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == "tool_choice"
    assert message in error["message"]
