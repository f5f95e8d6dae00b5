"""The API page's last table has every field of every body, and no other.

A tool that is declared inside of something has the fields of one at the top, and no rows of its own.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel

from tests.server.taken import bodies_taken
from yaie.server.lenient.fields import DIALECTS

PAGE = Path(__file__).parents[2] / "book/src/http-reference.md"
NAMES = DIALECTS
WHAT = {"honoured", "no effect", "refused"}

TOOL = re.compile(
    r"(?:(?:input\[\]|messages\[\]\.content\[\])\.tools?|tools\[\]\.tools)"
    r"(?:\[\])?(?:\.tools\[\])?(?:\.definition)?(?:\.(?P<field>.+))?"
)
Field = tuple[str, str]
"""(the body's name, the way to the field)."""


def models_in(hint: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """The models that a type holds, each with "[]" for every list on the way."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint, ""
    elif get_origin(hint) is Annotated:
        yield from models_in(get_args(hint)[0])
    else:
        step = "[]" if get_origin(hint) is list else ""
        for option in get_args(hint):
            yield from ((model, step + rest) for model, rest in models_in(option))


def fields_of(model: type[BaseModel], way: str = "") -> Iterator[str]:
    """Every field of a body, those of objects in it included."""
    for name, field in model.model_fields.items():
        here = way + (field.alias or name)
        yield here
        for inner, step in models_in(field.annotation):
            yield from fields_of(inner, f"{here}{step}.")


def at_the_top(field: str) -> str:
    """A field of a tool that is declared inside of something as one of `tools[]`."""
    found = TOOL.fullmatch(field)
    if found is None:
        return field
    return "tools" if found["field"] in (None, "tools") else f"tools[].{found['field']}"


def taken() -> set[Field]:
    """What the server knows."""
    bodies = bodies_taken()
    assert bodies.keys() == NAMES.keys(), "name the new body in DIALECTS and on the page"
    return {
        (NAMES[path], at_the_top(field))
        for path, body in bodies.items()
        for model, _ in models_in(body)
        for field in fields_of(model)
    }


def told() -> list[tuple[Field, str]]:
    """What the page says becomes of each."""
    section = PAGE.read_text(encoding="utf-8").split("\n## Every field\n")[1]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    return [
        ((body.strip(), field.strip(" `")), what.strip())
        for fields, bodies, what, _ in rows
        for field in fields.split(",")
        for body in bodies.split(",")
    ]


def test_every_field_has_a_row() -> None:
    assert taken() - {field for field, _ in told()} == set()


def test_every_row_is_a_field() -> None:
    assert {field for field, _ in told()} - taken() == set()


def test_no_field_is_told_twice_and_each_row_says_what_happens() -> None:
    counts = Counter(field for field, _ in told())
    assert [field for field, count in counts.items() if count > 1] == []
    assert {what for _, what in told()} == WHAT


def test_what_has_no_effect_is_said_to_have_none_in_the_schema_too() -> None:
    """A client that reads only the OpenAPI document learns it as well."""
    silent = []
    for path, body in bodies_taken().items():
        for model, _ in models_in(body):
            for name, field in model.model_fields.items():
                key = (NAMES[path], field.alias or name)
                if (key, "no effect") in told() and not field.description:
                    silent.append(key)
    assert silent == []
