"""What a body may ask for in all: schemas, and JSON in strings, which nothing counted with the body."""

import json
from typing import Any

import pytest

from solutions.api_server.schemas import ChatRequest
from yaie.core.errors import InvalidRequestError
from yaie.core.fields import MAX_JSON_DEPTH
from yaie.server import json_limits, work
from yaie.server.held_bodies import SMALL
from yaie.server.json_limits import MAX_DEPTH, MAX_NAMES, MAX_VALUES
from yaie.server.work import MAX_SCHEMA_CHARS, MAX_SCHEMA_VALUES, check_work


def chat(*arguments: str) -> dict[str, Any]:
    calls = [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}
        for text in arguments
    ]
    return {
        "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": calls}]
    }


def response(*arguments: str) -> dict[str, Any]:
    return {"input": [{"type": "function_call", "arguments": text} for text in arguments]}


HALF = '{"a": [%s1]}' % ("1," * (MAX_VALUES // 2 + 1))
DEEP = '{"a": %s}' % ("[" * MAX_DEPTH + "]" * MAX_DEPTH)
FIELDS = json.dumps(dict.fromkeys(map(str, range(MAX_NAMES + 1)), 1))
AT = {"messages": "[1].tool_calls[%d].function.arguments", "input": "[%d].arguments"}


@pytest.mark.parametrize("make", [chat, response])
@pytest.mark.parametrize(
    ("arguments", "at", "words"),
    [
        (["{}", DEEP], 1, f"more than {MAX_DEPTH} levels"),
        ([HALF.replace("1,", "1,1,")], 0, f"more than {MAX_VALUES} values"),
        (["{}", HALF, HALF], None, f"more than {MAX_VALUES} values"),
        ([FIELDS], 0, f"more than {MAX_NAMES} fields"),
    ],
)
def test_arguments_in_strings_have_the_limits_of_a_body(
    make: Any, arguments: list[str], at: int | None, words: str
) -> None:
    (field,) = make()
    with pytest.raises(InvalidRequestError, match=words) as refused:
        check_work(make(*arguments))
    assert refused.value.param == (field if at is None else field + AT[field] % at)
    check_work(make("{}", HALF))
    check_work(make(json.dumps({"text": DEEP})))  # what is a string there is a string


@pytest.mark.parametrize(
    "text",
    [
        '{"a": %s}' % ("9" * 5000),  # digits
        '{"a": 1e999}',
        '{"a": NaN}',
        '{"a": "\\ud800"}',
        '{"\\udfff": 1}',
        '{"a": %s}' % ("[" * 100 + "]" * 100),  # deeper than what is passed on as it is may be
    ],
)
def test_what_no_template_could_write_again_is_refused_inside_of_arguments(text: str) -> None:
    from pydantic import ValidationError

    with pytest.raises(ValidationError, match="arguments"):
        ChatRequest.model_validate(chat(text))


def test_a_small_body_holds_no_more_than_may_be_but_for_the_depth_of_arguments() -> None:
    """So one that is right as it is need not be looked through (`request_body.py`)."""
    assert min(MAX_VALUES, MAX_NAMES, MAX_SCHEMA_CHARS) > SMALL
    assert SMALL // 2 + 1 < MAX_SCHEMA_VALUES  # a value has two bytes, with its comma
    assert MAX_JSON_DEPTH < MAX_DEPTH  # which validation sees to


def schemas(schema: Any) -> list[tuple[str, dict[str, Any]]]:
    """The same schema in each field of each dialect."""
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    return [
        ("tools", {"tools": [tool]}),
        ("tools", {"tools": [{"name": "f", "input_schema": schema}]}),
        ("response_format", {"response_format": {"json_schema": {"schema": schema}}}),
        ("text", {"text": {"format": {"type": "json_schema", "schema": schema}}}),
        ("output_config", {"output_config": {"format": {"schema": schema}}}),
    ]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"enum": list(range(MAX_SCHEMA_VALUES))}, f"{MAX_SCHEMA_VALUES} names and values"),
        ({str(number): 1 for number in range(MAX_SCHEMA_VALUES // 2)}, "names and values"),
        ({"description": "x" * MAX_SCHEMA_CHARS}, f"{MAX_SCHEMA_CHARS} characters"),
        ({"x" * MAX_SCHEMA_CHARS: 1}, "characters"),
    ],
)
def test_schemas_are_bounded_in_every_dialect(schema: Any, words: str) -> None:
    for field, body in schemas(schema):
        with pytest.raises(InvalidRequestError, match=words) as refused:
            check_work(body)
        assert refused.value.param == field
    for _, body in schemas({"enum": list(range(MAX_SCHEMA_VALUES - 100))}):
        check_work(body)


def test_no_more_values_are_visited_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[Any] = []
    values_in = work._values_in

    def counted(value: Any) -> Any:
        for inner in values_in(value):
            visited.append(inner)
            yield inner

    monkeypatch.setattr(work, "_values_in", counted)
    with pytest.raises(InvalidRequestError):
        check_work({"tools": [[1] * 10 for _ in range(50_000)]})
    assert len(visited) == MAX_SCHEMA_VALUES + 1


@pytest.mark.parametrize(
    "body",
    [None, [], 5, "x", {}, {"messages": 5}, {"messages": [5, {"tool_calls": [5]}]}, {"input": "x"},
     {"tools": "x"}, {"text": None}],
)  # fmt: skip
def test_what_is_something_else_is_left_to_the_endpoint(body: Any) -> None:
    check_work(body)


def test_thousands_of_short_arguments_are_not_looked_through_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[bytes] = []
    unescaped = json_limits._unescaped
    monkeypatch.setattr(
        json_limits, "_unescaped", lambda text: seen.append(text) or unescaped(text)
    )
    check_work(chat(*['{"a": [1, 2, {"b": ":"}]}'] * 5000))
    assert seen == []
    check_work(chat(*["{}"] * 5000, json.dumps({"a": "[" * 500})))
    assert len(seen) == 1  # of the one that may be too deep
