"""Which form of calls a model uses is told from its template; grammars let only such calls through."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.test_tool_parsers import read
from tests.server.tool_models import STYLES, tool_tokenizer
from yaie.models.tokenizer import Tokenizer
from yaie.server.tools import ToolFormat, choose_format, with_names_of_tools
from yaie.server.tools.deepseek import BEGIN, CALL, CALL_END, END
from yaie.server.tools.deepseek import SEPARATOR as SEP


def no_special(text: str) -> None:
    """A tokenizer without special tokens."""


@pytest.mark.parametrize("style", STYLES)
def test_the_form_of_calls_is_told_from_the_chat_template(style: str) -> None:
    expected = {
        "mistral-named": "MistralNamed", "qwen-coder": "QwenCoder", "deepseek-v3": "DeepSeekV3",
        "deepseek-v31": "DeepSeekV31", "hermes": "Hermes", "llama3": "Llama3", "mistral": "Mistral",
    }  # fmt: skip
    kind = expected[style.removesuffix("-special")]
    assert type(choose_format("auto", STYLES[style][0], no_special)).__name__ == f"{kind}Format"


@pytest.mark.parametrize(
    "template",
    [
        "",
        "{{ messages }}",
        "{{ tools }} in a form of its own",
        "<tool_call>\n<function=name>",
    ],
)
def test_a_template_that_says_nothing_of_calls_has_no_form(template: str) -> None:
    assert choose_format("auto", template, no_special) is None


def test_a_form_can_be_named_or_switched_off() -> None:
    assert type(choose_format("hermes", "{{ tools }}", no_special)).__name__ == "HermesFormat"
    assert choose_format("hermes", "{{ messages }}", no_special) is None
    assert choose_format("none", STYLES["hermes"][0], no_special) is None


# --- grammars ---

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
ARGUMENTS = {"get_weather": '{"city": "Bonn", "days": 3}', "put": "{}"}


def demand(**changes: Any) -> dict[str, Any]:
    functions = {"get_weather": CITY, "put": {"type": "object"}}
    usual = {"functions": functions, "is_required": True, "may_be_several": True, "answer": None}
    return usual | changes


def tagged(arguments: str) -> str:
    values = json.loads(arguments).items()
    return "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values)


def written(style: str, *names: str) -> str:
    """Calls as a model writes them."""
    calls = [(name, ARGUMENTS[name]) for name in names]
    match style.removesuffix("-special"):
        case "hermes":
            said = [
                f'<tool_call>\n{{"name": "{n}", "arguments": {a}}}\n</tool_call>' for n, a in calls
            ]
            return "\n".join(said)
        case "llama3":
            return "; ".join(f'{{"name": "{n}", "parameters": {a}}}' for n, a in calls)
        case "qwen-coder":
            said = [f"<function={n}>\n{tagged(a)}</function>" for n, a in calls]
            return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in said)
        case "deepseek-v3":
            said = [f"{CALL}function{SEP}{n}\n```json\n{a}\n```{CALL_END}" for n, a in calls]
            return BEGIN + "\n".join(said) + END
        case "deepseek-v31":
            return BEGIN + "".join(f"{CALL}{n}{SEP}{a}{CALL_END}" for n, a in calls) + END
        case "mistral":
            listed = ", ".join(f'{{"name": "{n}", "arguments": {a}}}' for n, a in calls)
            return f"[TOOL_CALLS][{listed}]"
        case _:
            return "".join(f"[TOOL_CALLS]{n}[ARGS]{a}" for n, a in calls)


class Speaker:
    """Says texts under a grammar."""

    def __init__(self, style: str, folder: Path) -> None:
        import llguidance.hf
        from transformers import AutoTokenizer

        self.tokenizer = Tokenizer.load(tool_tokenizer(style, folder))
        self.form = choose_format(
            "auto", self.tokenizer.chat_template, self.tokenizer.special_token_id
        )
        self._llguidance = llguidance.hf.from_tokenizer(AutoTokenizer.from_pretrained(folder))

    def may_say(self, text: str, **changes: Any) -> bool:
        """Whether the text, as a whole answer, is one that the grammar knows."""
        import llguidance

        assert isinstance(self.form, ToolFormat)
        grammar = self.form.grammar(demand(**changes))
        matcher = llguidance.LLMatcher(self._llguidance, llguidance.grammar_from("lark", grammar))
        assert not matcher.is_error(), matcher.get_error()
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


@pytest.fixture(scope="module", params=list(STYLES))
def speaker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Speaker:
    return Speaker(request.param, tmp_path_factory.mktemp("tools") / request.param)


@pytest.fixture
def style(speaker: Speaker, request: pytest.FixtureRequest) -> str:
    name: str = request.node.callspec.params["speaker"]
    return name


def test_a_required_call_can_be_said_and_read_and_nothing_else(
    speaker: Speaker, style: str
) -> None:
    one, two = written(style, "get_weather"), written(style, "get_weather", "put")
    assert speaker.may_say(one)
    assert speaker.may_say(two) == (style != "llama3")  # whose templates take one back in a turn
    assert not speaker.may_say("Hello")
    assert not speaker.may_say("")
    assert not speaker.may_say(one.replace("city", "town"))
    assert not speaker.may_say(one.replace("get_weather", "get_time"))
    assert not speaker.may_say(one.replace("3", '"3"'))
    assert not speaker.may_say(one + " and more")
    assert speaker.form is not None
    assert read(speaker.form.parser, two) == (
        "",
        [(name, ARGUMENTS[name]) for name in ("get_weather", "put")],
    )


def test_one_call_at_most_means_one(speaker: Speaker, style: str) -> None:
    assert speaker.may_say(written(style, "put"), may_be_several=False)
    assert not speaker.may_say(written(style, "put", "put"), may_be_several=False)


def test_text_may_come_instead_of_a_call_or_before_it(speaker: Speaker, style: str) -> None:
    free = {"is_required": False, "may_be_several": False}
    call = written(style, "get_weather")
    assert speaker.may_say("", **free)
    assert speaker.may_say("Hello, < [1] you.", **free)
    assert speaker.may_say(call, **free)
    assert not speaker.may_say(call.replace("city", "town"), **free)
    assert not speaker.may_say(call + call, **free)
    if style != "llama3":  # there, a call stands at the beginning, or behind the tag
        assert speaker.may_say(f"I look.\n{call}", **free)
    else:
        assert speaker.may_say(f"I look.\n<|python_tag|>{call}", **free)


def test_an_answer_has_its_form_where_calls_may_come_instead(speaker: Speaker, style: str) -> None:
    form = {"is_required": False, "answer": {"type": "object", "required": ["x"]}}
    assert speaker.may_say('{"x": 1}', **form)
    assert speaker.may_say(written(style, "put"), **form)
    assert not speaker.may_say("Hello", **form)
    assert not speaker.may_say('{"y": 1}', **form)


def test_markers_of_calls_stay_in_the_text_and_other_special_tokens_do_not(
    speaker: Speaker, style: str
) -> None:
    said = written(style, "put", "put")
    ids = speaker.tokenizer.encode(said, add_special_tokens=False)
    assert speaker.tokenizer.decode([0, *ids, 1]) == said
    assert (
        b"".join(speaker.tokenizer.token_bytes(id) or b"" for id in [0, *ids, 1]) == said.encode()
    )


def test_a_call_of_an_earlier_turn_reaches_the_template(speaker: Speaker, style: str) -> None:
    call = {"id": "123456789", "type": "function",
            "function": {"name": "put", "arguments": {"a": [1]}}}  # fmt: skip
    turn = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert speaker.form is not None
    turns = speaker.form.conversation([turn], None)
    text = speaker.tokenizer.decode(speaker.tokenizer.apply_chat_template(turns))
    if style == "qwen-coder":
        assert "<parameter=a>\n[1]\n</parameter>" in text
        return
    assert json.loads(text[text.index('{"a"') :].split("}")[0] + "}") == {"a": [1]}


def test_a_tools_message_is_given_the_name_of_its_function() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "put", "arguments": {}}}
    messages = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "5"},
        {"role": "tool", "tool_call_id": "c2", "content": "6"},
        {"role": "tool", "tool_call_id": "c1", "content": "7", "name": "mine"},
        {"role": "tool", "content": "8"},
    ]
    named = with_names_of_tools(messages)
    assert [message.get("name") for message in named] == [None, "put", None, "mine", None]
    assert "name" not in messages[1]
