"""Calls are read alike however a text is cut, and nothing of it is lost."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaie.server.tools.deepseek import BEGIN, CALL, CALL_END, END, SEPARATOR, DeepSeekParser
from yaie.server.tools.events import Arguments, Call, Content, Event
from yaie.server.tools.formats import HermesParser, Llama3Parser, MistralParser
from yaie.server.tools.parser import CallParser
from yaie.server.tools.qwen_coder import QwenCoderParser

STRINGS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
}
NAMES = {"get_weather": STRINGS, "put": {"type": "object"}}
PARSERS = [HermesParser, Llama3Parser, MistralParser, QwenCoderParser, DeepSeekParser]

Read = tuple[str, list[tuple[str, str]]]


def joined(events: list[Event]) -> Read:
    """Content, and (name, arguments) of each call."""
    content, calls = "", []
    for event in events:
        match event:
            case Content(text):
                content += text
            case Call(index, name):
                assert index == len(calls)
                calls.append((name, ""))
            case Arguments(index, text):
                assert index == len(calls) - 1
                calls[index] = (calls[index][0], calls[index][1] + text)
    return content, calls


def read(parser: type[CallParser], *pieces: str) -> Read:
    one = parser(NAMES)
    events = [event for piece in pieces for event in one.push(piece)]
    return joined(events + one.end())


def every_split(text: str) -> Iterator[list[str]]:
    """Cut in one place, and into single characters."""
    for place in range(len(text) + 1):
        yield [text[:place], text[place:]]
    yield list(text)


GET = '{"name": "get_weather", "arguments": {"city": "Bonn"}}'
BONN = ("get_weather", '{"city": "Bonn"}')
CODED = "<function=get_weather>\n<parameter=city>\nBonn\n</parameter>\n</function>"
V3 = f'{CALL}function{SEPARATOR}get_weather\n```json\n{{"city": "Bonn"}}\n```{CALL_END}'
V31 = f'{CALL}get_weather{SEPARATOR}{{"city": "Bonn"}}{CALL_END}'


def coded(values: str, name: str = "get_weather") -> str:
    return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"


CASES: list[tuple[type[CallParser], str, str, list[tuple[str, str]]]] = [
    (HermesParser, f"<tool_call>\n{GET}\n</tool_call>", "", [BONN]),
    (HermesParser, f"I look.\n\n<tool_call>{GET}</tool_call>", "I look.", [BONN]),
    (HermesParser, f"<tool_call>{GET}</tool_call>\n<tool_call>{GET}</tool_call>\n", "", [BONN] * 2),
    (HermesParser, f"<tool_call>{GET}", "", [BONN]),
    (HermesParser, '<tool_call>{"arguments": {"a": "}"}, "name": "put"}</tool_call>', "",
     [("put", '{"a": "}"}')]),
    (HermesParser, '<tool_call>{"id": -1.5e3, "name": "put", "x": [null, {}]}</tool_call>', "",
     [("put", "{}")]),
    (HermesParser, r'<tool_call>{"name": "put", "arguments": {"a": "\"\\é😀"}}</tool_call>', "",
     [("put", r'{"a": "\"\\é😀"}')]),
    (HermesParser, f"<tool_call><tool_call>{GET}</tool_call>", "<tool_call>", [BONN]),
    (HermesParser, f"<tool_call>{{bad <tool_call>{GET}</tool_call> ok", "<tool_call>{bad ok",
     [BONN]),
    (HermesParser, '<tool_call>{"name": "get_weather", "arguments": {"city": "Bo', "",
     [("get_weather", '{"city": "Bo')]),
    (HermesParser, '<tool_call>{"name": "put", "arguments": {"a": }}!', "}}!", [("put", '{"a": ')]),
    (Llama3Parser, GET.replace("arguments", "parameters"), "", [BONN]),
    (Llama3Parser, f"  {GET}; {GET} ", "", [BONN] * 2),
    (Llama3Parser, f"Hm. <|python_tag|>{GET}", "Hm.", [BONN]),
    (Llama3Parser, f"<|python_tag|>{GET};{GET}", "", [BONN] * 2),
    (MistralParser, f"[TOOL_CALLS] [{GET}, {GET}]", "", [BONN] * 2),
    (MistralParser, f"So:[TOOL_CALLS][{GET}]", "So:", [BONN]),
    (MistralParser, '[TOOL_CALLS]get_weather[ARGS]{"city": "Bonn"}[TOOL_CALLS]put[ARGS]{}', "",
     [BONN, ("put", "{}")]),
    (MistralParser, '[TOOL_CALLS]get_weather[CALL_ID]a1B2c3D4e[ARGS] {"city": "Bonn"}', "", [BONN]),
    (MistralParser, '[TOOL_CALLS]get_weather{"city": "Bonn"}', "", [BONN]),
    (QwenCoderParser, f"So:\n<tool_call>\n{CODED}\n</tool_call>", "So:", [BONN]),
    (QwenCoderParser, f"<tool_call>{CODED}</tool_call>\n<tool_call>\n{CODED}\n</tool_call>\n", "",
     [BONN] * 2),
    (QwenCoderParser, f"{CODED}\n</tool_call> ok", " ok", [BONN]),
    (QwenCoderParser, f"{CODED}{CODED}", "", [BONN] * 2),
    (QwenCoderParser, coded("", "put"), "", [("put", "{}")]),
    (QwenCoderParser, coded('<parameter=city>\n\na "b"\n<c> </p\n\n</parameter>\n'), "",
     [("get_weather", r'{"city": "\na \"b\"\n<c> </p\n"}')]),
    (QwenCoderParser, coded("<parameter=city></parameter><parameter=days>\n 3 \n</parameter>"), "",
     [("get_weather", '{"city": "", "days": 3}')]),
    (QwenCoderParser, coded('<parameter=a>\n{"b": [1, "x"]}\n</parameter>\n', "put"), "",
     [("put", '{"a": {"b": [1, "x"]}}')]),
    (QwenCoderParser, coded("<parameter=city>\nBo\n</parameter>oops"), "oops</function>\n</tool_call>",
     [("get_weather", '{"city": "Bo"')]),
    (QwenCoderParser, "<function=get_weather><parameter=city>\nBo", "",
     [("get_weather", '{"city": "Bo')]),
    (QwenCoderParser, "<function=get_weather>\n<parameter=days>\n3", "", [("get_weather", '{"days": ')]),
    (DeepSeekParser, f"{BEGIN}{V3}\n{V3}{END}", "", [BONN] * 2),
    (DeepSeekParser, f"I look.\n{BEGIN}{V31}{V31}{END}", "I look.", [BONN] * 2),
    (DeepSeekParser, f"{BEGIN}{V31}", "", [BONN]),
    (DeepSeekParser, f"{V31}{END}", "", [BONN]),
    (DeepSeekParser, f"{BEGIN}{V31}{END} ok", " ok", [BONN]),
    (DeepSeekParser, f'{BEGIN}{CALL}put{SEPARATOR}{{"a": }}!', "}!", [("put", '{"a": ')]),
]  # fmt: skip


@pytest.mark.parametrize(("parser", "text", "content", "calls"), CASES)
def test_calls_are_read_alike_however_the_text_is_cut(
    parser: type[CallParser], text: str, content: str, calls: list[tuple[str, str]]
) -> None:
    for pieces in every_split(text):
        assert read(parser, *pieces) == (content, calls), pieces


@pytest.mark.parametrize(
    ("parser", "text", "content"),
    [
        (parser, text, content)
        for parser, text, content, _ in CASES
        if not set("<[{}") & set(content)
    ],
)
def test_a_limit_leaves_no_markup_in_the_content_wherever_it_cuts(
    parser: type[CallParser], text: str, content: str
) -> None:
    for place in range(len(text)):
        one = parser(NAMES)
        events = [event for character in text[:place] for event in one.push(character)]
        begun = joined(events + one.end(is_cut=True))[0]
        assert content.startswith(begun.rstrip()), text[:place]
        at_once = parser(NAMES)
        assert joined(at_once.push(text[:place]) + at_once.end(is_cut=True))[0] == begun


NO_CALLS = [
    *((parser, text) for parser in PARSERS for text in (
        "", " \n", "Hello, world.", "a < b << c [1] {2}", "<tool_cal", "[TOOL_CALL", "<|python_ta",
        "end <",
    )),
    (HermesParser, GET),
    (HermesParser, "<tool_call>"),
    (HermesParser, "<tool_call> hello"),
    (HermesParser, '<tool_call>{"name": "other", "arguments": {}}</tool_call>'),
    (HermesParser, '<tool_call>{"name": "put", "name": "put"}</tool_call>'),
    (HermesParser, '<tool_call>{"name": 5, "arguments": {}}</tool_call>'),
    (HermesParser, '<tool_call>{"arguments": {}}</tool_call>'),
    (HermesParser, '<tool_call>{"arguments": "x", "name": "put"}</tool_call>'),
    (HermesParser, '<tool_call>{"arguments": {"a": 01}, "name": "put"}</tool_call>'),
    (HermesParser, '<tool_call>{"arguments": {"a": "\n"}, "name": "put"}</tool_call>'),
    (HermesParser, '<tool_call>{"a": tru, "name": "put"}</tool_call>'),
    (HermesParser, '<tool_call>{"a": [1}, "name": "put"}</tool_call>'),
    (HermesParser, '<tool_call>{"a": 1,}</tool_call>'),
    (HermesParser, r'<tool_call>{"a": "\x", "name": "put"}</tool_call>'),
    (HermesParser, r'<tool_call>{"a": "\u12g4", "name": "put"}</tool_call>'),
    (Llama3Parser, '{"name": "other", "parameters": {}}'),
    (Llama3Parser, '{"answer": 42}'),
    (Llama3Parser, f"Call {GET}"),
    (Llama3Parser, "<|python_tag|>print(1)"),
    (MistralParser, "[TOOL_CALLS]"),
    (MistralParser, "[TOOL_CALLS] []"),
    (MistralParser, "[TOOL_CALLS]other[ARGS]{}"),
    (MistralParser, "[TOOL_CALLS]put[OTHER]{}"),
    (MistralParser, "[TOOL_CALLS]put[ARGS] x"),
    (QwenCoderParser, "<tool_call>\n{}"),
    (QwenCoderParser, "<function=other>\n</function>"),
    (QwenCoderParser, "<function=put\n></function>"),
    (QwenCoderParser, GET),
    (DeepSeekParser, BEGIN),
    (DeepSeekParser, f"{BEGIN}{CALL}other{SEPARATOR}{{}}{CALL_END}{END}"),
    (DeepSeekParser, f"{BEGIN}{CALL}function{SEPARATOR}put\n{{}}"),
    (DeepSeekParser, f"{BEGIN}{CALL}function{SEPARATOR}put\n```json\n[]"),
    (DeepSeekParser, f"{BEGIN}{CALL}{'x' * 200}{SEPARATOR}{{}}{CALL_END}{END}"),
]  # fmt: skip


@pytest.mark.parametrize(("parser", "text"), NO_CALLS)
def test_what_is_no_call_comes_back_as_content(parser: type[CallParser], text: str) -> None:
    for pieces in every_split(text):
        assert read(parser, *pieces) == (text, []), pieces


FRAGMENTS = st.sampled_from(
    ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "[ARGS]", "put", GET, ";", "{",
     "}", "[", "]", '"', ",", ":", '"name"', '"arguments"', "\\", "1.5", " ", "\n", "x", "é", "<", "t",
     "<function=put>", "<function=get_weather>", "<parameter=city>", "</parameter>", "</function>",
     BEGIN, CALL, SEPARATOR, CALL_END, END, "function", "```json", "```"]
)  # fmt: skip


@pytest.mark.parametrize("parser", PARSERS)
@given(parts=st.lists(FRAGMENTS, max_size=12), data=st.data())
def test_any_text_is_read_alike_however_it_is_cut(
    parser: type[CallParser], parts: list[str], data: st.DataObject
) -> None:
    text = "".join(parts)
    whole = read(parser, text)
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    assert read(parser, *pieces) == whole
    assert read(parser, *text) == whole
    if not whole[1]:
        assert whole[0] == text


def test_content_and_arguments_are_passed_on_as_they_come() -> None:
    parser = HermesParser(NAMES)
    assert joined(parser.push("Hi th")) == ("Hi th", [])
    assert parser.push(" <tool_ca") == []
    assert parser.push('ll>{"name": "put"') == []
    assert joined(parser.push(', "arguments": {"a"')) == ("", [("put", '{"a"')])
    assert parser.push(": 1") == [Arguments(0, ": 1")]
    assert not parser.has_called
    assert parser.push("}") == [Arguments(0, "}")]
    assert parser.has_called


def test_deeply_nested_arguments_do_not_exhaust_the_stack() -> None:
    deep = '{"a": ' + "[" * 20_000 + "]" * 20_000 + "}"
    text = f'<tool_call>{{"name": "put", "arguments": {deep}}}</tool_call>'
    assert read(HermesParser, text) == ("", [("put", deep)])


def test_strings_between_tags_are_passed_on_while_they_are_written() -> None:
    parser = QwenCoderParser(NAMES)
    assert joined(parser.push("<tool_call>\n<function=get_weather>")) == ("", [("get_weather", "")])
    assert parser.push("\n<parameter=city>\n") == [Arguments(0, '{"city": "')]
    assert parser.push("Bo") == [Arguments(0, "Bo")]
    assert parser.push("nn\n</para") == [Arguments(0, "nn")]
    assert parser.push("graph>\n") == [Arguments(0, "\\n</paragraph>")]
    assert parser.push("</parameter>\n") == [Arguments(0, '"')]
    assert not parser.has_called
    assert parser.push("</function>") == [Arguments(0, "}")]
    assert parser.has_called


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "5", '"5"'),
        ({"type": "integer"}, "5", "5"),
        ({"type": "integer"}, "5.0", "5.0"),
        ({"type": "integer"}, "five", '"five"'),
        ({"type": "number"}, "5", "5"),
        ({"type": "number"}, "NaN", '"NaN"'),
        ({"type": "boolean"}, "True", "true"),
        ({"type": ["string", "null"]}, "None", "null"),
        ({"type": ["string", "null"]}, "Nonesuch", '"Nonesuch"'),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "7", "7"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "7.5", '"7.5"'),
        ({"enum": ["1", "2"]}, "1", '"1"'),
        ({"const": 1}, "1", "1"),
        ({"$ref": "#/$defs/flag"}, "false", "false"),
        ({"$ref": "#/$defs/loop"}, "x", '"x"'),
        ({"allOf": [{"description": "d"}, {"type": "string"}]}, "1", '"1"'),
        ({"type": "array"}, "[" * 100_000, '"' + "[" * 100_000 + '"'),
        ({}, '"quoted"', r'"\"quoted\""'),
        ({}, "Größe 漢", '"Größe 漢"'),
        ({}, '{"a": 1}', '{"a": 1}'),
        ({"type": 5, "enum": 7}, "x", '"x"'),
    ],
)  # fmt: skip
def test_the_schema_tells_what_a_text_between_tags_is(
    schema: dict[str, object], text: str, value: str
) -> None:
    shared = {"flag": {"type": "boolean"}, "loop": {"$ref": "#/$defs/loop"}}
    functions = {"f": {"type": "object", "properties": {"a": schema}, "$defs": shared}}
    parser = QwenCoderParser(functions)
    said = f"<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>"
    assert joined(parser.push(said)) == ("", [("f", f'{{"a": {value}}}')])
