"""Every number of every body has a range, which is checked, in the schema, and on the API's page."""

import math
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, TypeAdapter, ValidationError

from book.tools.reference import render_ranges
from solutions.api_server import CompletionRequest
from solutions.api_server.errors import validation_error
from tests.server.taken import bodies_taken
from tests.server.test_field_table import PAGE, models_in
from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams
from yaie.core.range import MAX_SHOWN
from yaie.core.ranges import LARGEST, MAX_TOKENS, RANGES, SAMPLED, shown
from yaie.server.next_token import NextTokenRequest

NUMBERS = ("integer", "number")
LIMITS = ({"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"})
BEYOND = (2**63, -(2**63) - 1, 2**64, 10**4300, -(10**5000), math.inf, -math.inf, math.nan)


def bodies() -> list[Any]:
    """What every route takes, the page's own among them."""
    return [*bodies_taken().values(), NextTokenRequest]


def models() -> set[type[BaseModel]]:
    """Every model of an object, at any depth."""
    found: set[type[BaseModel]] = set()
    waiting = [model for body in bodies() for model, _ in models_in(body)]
    while waiting:
        model = waiting.pop()
        if model not in found:
            found.add(model)
            fields = model.model_fields.values()
            waiting += [inner for one in fields for inner, _ in models_in(one.annotation)]
    return found


def unbounded(schema: Any, way: str, told: frozenset[str] = frozenset()) -> Iterator[str]:
    """Where a number may be anything. told: the words that stand beside a union."""
    if isinstance(schema, list):
        for one in schema:
            yield from unbounded(one, way, told)
    if not isinstance(schema, dict):
        return
    here = told | schema.keys()
    kinds = schema.get("type")
    is_number = any(kind in NUMBERS for kind in (kinds if isinstance(kinds, list) else [kinds]))
    if is_number and not all(here & some for some in LIMITS):
        yield way
    for name in ("anyOf", "oneOf", "allOf"):
        yield from unbounded(schema.get(name), way, here)
    for name in ("items", "additionalProperties", "prefixItems"):
        yield from unbounded(schema.get(name), f"{way}[]")
    for name in ("properties", "$defs"):
        for key, inner in schema.get(name, {}).items():
            yield from unbounded(inner, f"{way}.{key}")


@pytest.mark.parametrize("body", bodies(), ids=lambda body: getattr(body, "__name__", "union"))
def test_every_number_of_a_body_has_a_range_in_its_schema(body: Any) -> None:
    schema = TypeAdapter(body).json_schema()
    assert list(unbounded(schema, "")) == []


def test_a_number_without_a_range_would_be_found() -> None:
    class Loose(BaseModel):
        a: list[int | str] | None = None
        b: dict[str, float] | None = None
        c: Annotated[int, RANGES] = 0

    assert list(unbounded(Loose.model_json_schema(), "")) == [".a[]", ".b[]", ".c"]


def test_a_body_refuses_each_number_beyond_its_range_that_sampling_parameters_do_not_check() -> (
    None
):
    """What has no effect, and so reaches nobody, too. `test_odd_values.py` sends the others."""
    num_fields = 0
    for model in models():
        for name, field in model.model_fields.items():
            hint: Any = field.annotation
            for mark in field.metadata:
                hint = Annotated[hint, mark]
            adapter = TypeAdapter(hint)
            if name in SAMPLED or not {*NUMBERS} & {*_kinds(adapter.json_schema())}:
                continue
            num_fields += 1
            for number in BEYOND:
                for value in (number, [number], [[number]], {"5": number}):
                    assert not _is_taken(adapter, value), (model, name, value)
    assert num_fields > 15


def _is_taken(adapter: TypeAdapter[Any], value: Any) -> bool:
    try:
        adapter.validate_python(value)
    except (ValidationError, InvalidRequestError):
        return False
    return True


def _kinds(schema: Any) -> Iterator[str]:
    """The types of numbers that a field takes by itself, not in objects in it."""
    if isinstance(schema, dict):
        kinds = schema.get("type", ())
        yield from [kinds] if isinstance(kinds, str) else kinds
        for name in ("anyOf", "oneOf", "items", "additionalProperties"):
            yield from _kinds(schema.get(name))
    elif isinstance(schema, list):
        for one in schema:
            yield from _kinds(one)


def refused(body: dict[str, Any]) -> InvalidRequestError | None:
    """How a completion is refused, if it is."""
    try:
        CompletionRequest.model_validate(body).sampling_params({})
    except ValidationError as error:
        faults = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        return validation_error(faults)
    except InvalidRequestError as error:
        return error
    return None


@pytest.mark.parametrize("name", SAMPLED)
def test_the_schema_tells_the_range_that_is_checked_to_the_last_number(name: str) -> None:
    schema = Draft202012Validator(CompletionRequest.model_json_schema())
    limits = RANGES[name]
    for value in (int(limit) + step for limit in (limits.low, limits.high) for step in (-1, 0, 1)):
        body = {"prompt": "x", "echo": True, "max_tokens": None, name: value}
        if name == "min_tokens" and limits.holds(value):
            body["max_tokens"] = MAX_TOKENS
        error = refused(body)
        assert schema.is_valid(body) == (error is None), (name, value)
        allowed = limits.holds(value) or (name, value) == ("max_tokens", 0)  # with echo
        assert (error is None) == allowed
        if error is not None:
            assert error.param == name
            assert limits.told.split(" and ")[1] in error.message
            assert str(value) in error.message


def test_from_python_the_same_ranges_hold() -> None:
    for name in SAMPLED:
        limits = RANGES[name]
        for value in (int(limits.low) - 1, int(limits.high) + 1, 10**5000, -(10**5000)):
            with pytest.raises(InvalidRequestError) as error:
                SamplingParams(**{name: value})
            assert error.value.param == name
            assert name in error.value.message
            assert len(error.value.message) < 200
    for name in ("stop_token_ids", "logprob_token_ids"):
        with pytest.raises(InvalidRequestError, match=r"between 0 and 2147483647, got -1"):
            SamplingParams(**{name: [5, -1], "logprobs": 1})
    with pytest.raises(InvalidRequestError, match="logit_bias: the bias of 5"):
        SamplingParams(logit_bias={5: 100.5})
    with pytest.raises(InvalidRequestError, match="logit_bias: token"):
        SamplingParams(logit_bias={2**63: 1.0})


def test_the_largest_numbers_that_are_taken_do_not_end_the_engine() -> None:
    """What the table allows is what arrays of the engine's can hold."""
    import numpy as np

    for name in ("min_tokens", "top_k", "seed", "max_tokens", "token"):
        limits = RANGES[name]
        assert np.array([int(limits.low), int(limits.high)], dtype=np.int64)[1] == limits.high


def test_a_value_is_quoted_in_a_few_characters_whatever_it_is() -> None:
    for value in (10**5000, -(10**5000), "x" * 10**6, [1] * 10**6, b"\xff" * 99, 2**63, 1e308, True,
                  LARGEST, {"a": 1}):  # fmt: skip
        assert len(shown(value)) <= MAX_SHOWN
    assert shown(10**5000) == "an integer of about 5001 digits"
    assert shown(-5) == "-5"


def test_the_page_has_a_row_for_every_range() -> None:
    assert "\n## Ranges of numbers\n" in PAGE.read_text(encoding="utf-8")
    assert "\n{{#ranges}}\n" in PAGE.read_text(encoding="utf-8")
    rows = render_ranges().splitlines()[2:]
    assert len(rows) == len(RANGES)
    for row, limits in zip(rows, RANGES.values(), strict=True):
        assert f"| {limits.told} |" in row
        assert all(f"`{name}`" in row for name in limits.fields or (limits.name,))


def test_every_numeric_field_has_its_row() -> None:
    """By name: the last part of the way to it, with [] for each list."""
    told = {name.split(".")[-1] for row in RANGES.values() for name in row.fields or (row.name,)}
    taken = set()
    for model in models():
        for name, schema in model.model_json_schema()["properties"].items():
            taken |= {f"{name}{step}" for step in _numeric(schema)}
    assert {name for name in taken if not name.startswith("logit_bias")} - told == set()
    assert len(taken) > 20


def _numeric(schema: Any, step: str = "") -> Iterator[str]:
    """ "" if a field may be a number, "[]" if a list of them, and so on."""
    if isinstance(schema, dict):
        if schema.get("type") in NUMBERS:
            yield step
        yield from _numeric(schema.get("anyOf"), step)
        yield from _numeric(schema.get("items"), f"{step}[]")
    elif isinstance(schema, list):
        for one in schema:
            yield from _numeric(one, step)
