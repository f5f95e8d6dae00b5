"""What a client's schema and a model's text cost to read is linear in their length: work is counted."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.server.test_tool_parsers import joined, read
from yaie.core.constraint import Constraint
from yaie.core.errors import InvalidRequestError
from yaie.engine.input.grammars.schema_limits import MOST_CHARS, circular_ref, pointed_at
from yaie.server.answer_form import MOST_TOOLS_CHARS, AnswerForm
from yaie.server.dialects.messages_reply import UNREADABLE, OpenToolUse
from yaie.server.tools import parser as parser_module
from yaie.server.tools import xml_values
from yaie.server.tools.formats import HermesFormat, HermesParser, Llama3Parser
from yaie.server.tools.parser import CallParser
from yaie.server.tools.qwen_coder import QwenCoderFormat, QwenCoderParser
from yaie.server.tools.xml_values import Kinds, as_json

WIDE, DEEP = 16, 8


def wide_and_deep(last: dict[str, Any]) -> dict[str, Any]:
    """Sixteen ways at each of eight levels, which end in `last`: 16^8 paths through a few schemas."""
    level = {
        f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"} for _ in range(WIDE)]}
        for i in range(DEEP)
    }
    defs = {**level, f"d{DEEP}": last}
    properties = {"x": {"$ref": "#/$defs/d0"}, "y": {"$ref": "#/$defs/d0"}}
    return {"type": "object", "$defs": defs, "properties": properties, "required": ["x"]}


RECURSIVE: dict[str, Any] = {
    "type": "object",
    "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * WIDE}},
    "properties": {"x": {"$ref": "#/$defs/a"}},
}
BACK = {"anyOf": [{"$ref": "#/$defs/d0"}] * WIDE}


def num_schemas(schema: Any) -> int:
    """Objects in a schema."""
    rest, count = [schema], 0
    while rest:
        one = rest.pop()
        count += isinstance(one, dict)
        rest += one.values() if isinstance(one, dict) else one if isinstance(one, list) else []
    return count


@pytest.mark.parametrize(
    "schema", [RECURSIVE, wide_and_deep(BACK), wide_and_deep({"type": "integer"})]
)
def test_a_schema_is_looked_at_once_however_many_ways_lead_to_it(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = json.loads(json.dumps(schema))  # each of them an object of its own, as a client's are
    looks = 0
    told_by = xml_values._told_by

    def counted(one: Any, root: Any) -> Any:
        nonlocal looks
        looks += 1
        return told_by(one, root)

    monkeypatch.setattr(xml_values, "_told_by", counted)
    call = "<tool_call>\n<function=f>\n<parameter=x>\n5\n</parameter>\n</function>\n</tool_call>"
    parsers = QwenCoderFormat(lambda text: None).parsers({"f": schema}, 8)
    for parser in parsers:
        assert joined(parser.push(call) + parser.end()) == ("", [("f", '{"x": 5}')])
    assert looks <= num_schemas(schema)
    demand = {"functions": {"f": schema}, "is_required": True, "may_be_several": True,
              "answer": None}  # fmt: skip
    QwenCoderFormat(lambda text: None).grammar(demand)
    assert looks <= 2 * num_schemas(schema)


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        ({"anyOf": [{"$ref": "#"}, {"type": "string"}, {"type": "integer"}]}, "string integer"),
        ({"anyOf": [{"type": "null"}] * 40 + [{"type": "string"}]}, "null string"),
        ({"oneOf": [{"type": "number"}, {"const": 1}]}, "number"),
        ({"anyOf": [{}, {"type": "string"}]}, ""),
        ({"allOf": [{"type": ["string", "null"]}, {"type": "string"}, True]}, "string"),
        ({"allOf": [{"type": "number"}, {"enum": [1, 2]}]}, "integer"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, ""),
        ({"$ref": "#"}, ""),
        ({"$ref": "#/nothing"}, ""),
        ({"type": "any"}, ""),
        (True, ""),
    ],
)
def test_the_types_of_a_schema_are_those_of_its_alternatives(schema: Any, kinds: str) -> None:
    assert Kinds(schema).of(schema) == frozenset(kinds.split())


def test_a_long_chain_of_alternatives_is_followed_without_recursion() -> None:
    root: dict[str, Any] = {f"d{i}": {"anyOf": [{"$ref": f"#/d{i + 1}"}]} for i in range(3000)}
    root["d3000"] = {"type": "boolean"}
    kinds = Kinds(root)
    assert kinds.of(root["d0"]) == {"boolean"}
    assert kinds.num_visited == 6001
    assert kinds.of(root["d1500"]) == {"boolean"}
    assert kinds.num_visited == 6001


def test_shared_definitions_are_not_copied_for_each_of_a_thousand_properties() -> None:
    """They made a grammar of 64 MB out of a schema of 130 kB."""
    schema = {
        "type": "object",
        "$defs": {"d": {"enum": ["x" * 50_000]}},
        "properties": {f"p{i}": {"type": "array", "items": {"$ref": "#/$defs/d"}}
                       for i in range(1000)},
    }  # fmt: skip
    demand = {"functions": {"f": schema}, "is_required": True, "may_be_several": True,
              "answer": None}  # fmt: skip
    with pytest.raises(InvalidRequestError, match=r"131072 characters.*copy of \$defs") as error:
        QwenCoderFormat(lambda text: None).grammar(demand)
    assert error.value.param == "tools"
    schema["properties"] = {"p0": {"type": "array", "items": {"$ref": "#/$defs/d"}}}
    assert len(QwenCoderFormat(lambda text: None).grammar(demand)) < 60_000


# --- what a model writes ---


LONG = 5_000
WRITTEN: dict[str, tuple[type[CallParser], str]] = {
    "a value before the name": (HermesParser, '<tool_call>\n{"x": "' + "a" * LONG),
    "arguments before the name": (Llama3Parser, '{"parameters": {"a": "' + "b" * LONG),
    "a list before the name": (HermesParser, '<tool_call>\n{"x": [' + "1, " * (LONG // 3)),
    "keys of numbers before the name": (HermesParser, "<tool_call>{" + '"a": 1, ' * (LONG // 8)),
    "space": (HermesParser, " \n" * (LONG // 2)),
    "a value between tags": (
        QwenCoderParser, "<function=get_weather>\n<parameter=days>\n" + "1" * LONG),
    "a number": (HermesParser, '<tool_call>\n{"name": "put", "arguments": {"a": ' + "1" * LONG),
    "a list": (HermesParser, '<tool_call>\n{"name": "put", "arguments": {"a": ['
               + "1, " * (LONG // 3)),
    "text full of tags": (HermesParser, "a <tool " * (LONG // 8)),
}  # fmt: skip


@pytest.mark.parametrize("size", [1, 7, LONG * 2])
@pytest.mark.parametrize("name", WRITTEN)
def test_text_of_any_length_is_not_copied_for_each_of_its_characters(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held back, and what is passed on, are joined when they are complete."""
    kind, text = WRITTEN[name]
    copied = 0

    def held(parser: CallParser) -> str:
        nonlocal copied
        joined_text = "".join(parser._pieces)
        if len(parser._pieces) > 1:
            copied += len(joined_text)
            parser._pieces = [joined_text]
        return joined_text

    def write_text(parser: CallParser) -> None:
        nonlocal copied
        copied += sum(map(len, parser._written))
        given_out(parser)

    given_out = CallParser._write_text
    setter = CallParser._held.fset  # type: ignore[attr-defined]
    monkeypatch.setattr(parser_module.CallParser, "_held", property(held, setter))
    monkeypatch.setattr(parser_module.CallParser, "_write_text", write_text)
    parser = kind({"get_weather": {"type": "object"}, "put": {"type": "object"}})
    for start in range(0, len(text), size):
        parser.push(text[start : start + size])
    parser.end()
    assert copied <= 4 * len(text)


def test_a_call_of_pieces_is_the_call_of_the_whole() -> None:
    for name, (kind, text) in WRITTEN.items():
        text = text[:60]
        assert read(kind, text) == read(kind, *text), name


# --- numbers and strings that Python cannot read or write ---


@pytest.mark.parametrize("value", ["1e999", "-1E400", "[1e999]", "9" * 5000, '{"a": NaN}'])
def test_a_number_that_nobody_can_read_is_passed_on_as_a_string(value: str) -> None:
    assert as_json(value, frozenset()) == json.dumps(value)
    assert json.loads(as_json(value, frozenset(["number", "integer"]))) == value


@pytest.mark.parametrize("step", ["9" * 5000, "²", "-1", "1_0", "3"])
def test_a_reference_into_a_list_that_is_no_place_of_it_leads_nowhere(step: str) -> None:
    schema = {"anyOf": [{"$ref": f"#/anyOf/{step}"}, {"type": "string"}, True]}
    assert pointed_at(schema, f"#/anyOf/{step}") is None
    assert circular_ref(schema) is None


def test_references_are_percent_decoded_and_anchors_lead_nowhere() -> None:
    root = {"$defs": {"a b": {"type": "string"}, "c/d": {"type": "null"}}}
    assert pointed_at(root, "#/$defs/a%20b") == {"type": "string"}
    assert pointed_at(root, "#/$defs/c~1d") == {"type": "null"}
    assert pointed_at(root, "#anchor") is None
    assert pointed_at(root, "#") is root


@pytest.mark.parametrize(
    "value",
    ["1e999", "-1e999", "9" * 5000, '"\\ud800"', "[" * 300 + "]" * 300],
    ids=["too large", "too small", "5,000 digits", "half a pair", "300 brackets"],
)
def test_an_input_that_cannot_be_written_again_comes_as_a_text(value: str) -> None:
    """`/v1/messages` gives tools objects: what a model wrote there was a fault of the server."""
    text = f'{{"a": {value}}}'
    block = OpenToolUse(0, "id", "f")
    list(block.more(text))
    given = block.whole()["input"]
    assert given == {UNREADABLE: text}
    json.dumps(given, allow_nan=False, ensure_ascii=False).encode()


def test_an_input_that_was_cut_off_is_what_is_complete_of_it() -> None:
    block = OpenToolUse(0, "id", "f")
    list(block.more('{"a": 1, "b": [2, '))
    assert block.whole()["input"] == {"a": 1, "b": [2]}


def test_schemas_of_megabytes_are_not_even_read_again() -> None:
    def reads() -> None:
        raise AssertionError("it was read")

    service: Any = SimpleNamespace(known_format=reads, reasoning=SimpleNamespace(before=reads))
    with pytest.raises(InvalidRequestError, match="524289 characters and may have 524288") as error:
        AnswerForm(Constraint("tools", " " * (MOST_TOOLS_CHARS + 1)))._grammar(service, [5])
    assert error.value.param == "tools"
    long = Constraint("json_schema", " " * (MOST_CHARS + 1))
    assert AnswerForm(long)._grammar(service, [5]) is long


def test_json_grammars_of_other_forms_grow_with_their_schemas_alone() -> None:
    """Each schema is written once."""
    schema = wide_and_deep({"type": "integer"})
    demand = {"functions": {"f": schema, "g": schema}, "is_required": True, "may_be_several": True,
              "answer": None}  # fmt: skip
    grammar = HermesFormat(lambda text: None).grammar(demand)
    assert len(grammar) <= 2 * len(json.dumps(schema)) + 1000
