"""Calls are read alike however a text is cut, and nothing of it is lost."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaie.server.tools.formats import HermesParser, Llama3Parser, MistralParser
from yaie.server.tools.parser import Arguments, Call, CallParser, Content, Event

NAMES = ("get_weather", "put")
PARSERS = [HermesParser, Llama3Parser, MistralParser]

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
]  # fmt: skip


@pytest.mark.parametrize(("parser", "text", "content", "calls"), CASES)
def test_calls_are_read_alike_however_the_text_is_cut(
    parser: type[CallParser], text: str, content: str, calls: list[tuple[str, str]]
) -> None:
    for pieces in every_split(text):
        assert read(parser, *pieces) == (content, calls), pieces


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
]  # fmt: skip


@pytest.mark.parametrize(("parser", "text"), NO_CALLS)
def test_what_is_no_call_comes_back_as_content(parser: type[CallParser], text: str) -> None:
    for pieces in every_split(text):
        assert read(parser, *pieces) == (text, []), pieces


FRAGMENTS = st.sampled_from(
    ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "[ARGS]", "put", GET, ";", "{",
     "}", "[", "]", '"', ",", ":", '"name"', '"arguments"', "\\", "1.5", " ", "\n", "x", "é", "<", "t"]
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
