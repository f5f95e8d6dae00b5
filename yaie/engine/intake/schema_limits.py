"""What a schema or grammar of a client may be, before llguidance sees it.

llguidance has limits of its own for nearly everything. Here are those for the rest.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from math import lcm
from typing import Any

from yaie.core.errors import InvalidRequestError
from yaie.core.params import Constraint
from yaie.engine.intake.nesting import MOST_LEVELS, levels_of

PARAM = "response_format"
NAMES = {"json_object": "the grammar", "json_schema": "the schema", "lark": "the grammar"}
MOST_CHARS = 1 << 17
"""Of a schema or grammar. Compiling takes up to a second at this size."""
MOST_MULTIPLE = 10_000
"""A number's remainder is tracked by as many states; at a million they take minutes and gigabytes."""
MOST_CONSTANT = 16_384
"""Characters of one constant, as JSON. llguidance cuts all of it into tokens at once, a microsecond
each."""
_OF_NAMES = frozenset(
    ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
)
"""Keywords whose value has names of the client's for keys."""
MOST_OPTIONAL = 500
"""Properties of one object that may be left out. llguidance needs four items for each in a row of 2,000,
and takes seconds to find out that they do not fit."""

_ASCII_ESCAPE = re.compile(r"\\u00([0-7][0-9a-fA-F])")
_MULTIPLE = re.compile(r'"multipleOf"\s*:\s*([^\s,}\]]+)')
_JSON_RULE = re.compile(r"%json\s*(?=\{)")


def name_of(constraint: Constraint) -> str:
    """How errors call it."""
    return NAMES.get(constraint.kind, "the grammar")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def schemas_in(lark: str) -> Iterator[Any]:
    """The schemas in a grammar."""
    decoder, place = json.JSONDecoder(), 0
    while (found := _JSON_RULE.search(lark, place)) is not None:
        place = found.end()
        with contextlib.suppress(ValueError, RecursionError):
            schema, place = decoder.raw_decode(lark, place)
            yield schema


def check_shape(schema: Any) -> None:
    """Raise InvalidRequestError for what would end llguidance's stack, and with it this process, or take
    it seconds."""
    if levels_of(schema) > MOST_LEVELS:
        raise InvalidRequestError(
            f"the schema is more than {MOST_LEVELS} levels deep where its references are followed. Let "
            "fewer definitions lead from one to the next",
            param=PARAM,
        )
    rest: list[tuple[Any, bool]] = [(schema, False)]
    while rest:
        one, has_names = rest.pop()
        if isinstance(one, list):
            rest += [(inner, False) for inner in one]
        if not isinstance(one, dict):
            continue
        rest += [(inner, not has_names and key in _OF_NAMES) for key, inner in one.items()]
        if has_names:
            continue
        _check_constants(one)
        if isinstance(properties := one.get("properties"), dict):
            required = one.get("required")
            listed = required if isinstance(required, list) else []
            required_names = {name for name in listed if isinstance(name, str)}
            if len(properties.keys() - required_names) > MOST_OPTIONAL:
                raise InvalidRequestError(
                    f"an object of the schema has more than {MOST_OPTIONAL} properties that may be left "
                    "out. Require some of them, or put them into objects of their own",
                    param=PARAM,
                )


def _check_constants(one: dict[str, Any]) -> None:
    """Of a schema: those of `const` and `enum`, and the names of its properties."""
    several = [one.get(keyword) for keyword in ("enum", "properties", "required")]
    constants = [it for listed in several if isinstance(listed, dict | list) for it in listed]
    for constant in (*constants, one.get("const")):
        if is_long_constant(constant):
            raise InvalidRequestError(
                f"a constant or name in the schema has more than {MOST_CONSTANT} characters. Let the "
                "answer refer to it by something shorter",
                param=PARAM,
            )


def is_long_constant(constant: Any) -> bool:
    """Whether it has more than MOST_CONSTANT characters."""
    return len(constant if isinstance(constant, str) else json.dumps(constant)) > MOST_CONSTANT


def check_size(constraint: Constraint) -> None:
    """Raise InvalidRequestError for a text that is none, and for what llguidance would work on for
    minutes: it has limits of its own for all but these two."""
    if not _is_text(constraint.text):
        raise InvalidRequestError(
            f"{name_of(constraint)} holds half of a surrogate pair, which is not a character. Leave it "
            "out, or send the whole pair",
            param=PARAM,
        )
    if len(constraint.text) > MOST_CHARS:
        raise InvalidRequestError(
            f"{name_of(constraint)} has {len(constraint.text)} characters and "
            f"may have {MOST_CHARS} at most",
            param=PARAM,
        )
    text = _ASCII_ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), constraint.text)
    # Several in one `allOf` make one automaton of their least common multiple.
    multiple = 1
    for number in _MULTIPLE.findall(text):
        multiple = lcm(multiple, _digits(number))
        if multiple <= MOST_MULTIPLE:
            continue
        raise InvalidRequestError(
            "the schema's multipleOf is too large to be enforced token by token (the least common "
            f"multiple of all of them, decimal point left out, may be {MOST_MULTIPLE} at most)",
            param=PARAM,
        )


def _digits(number: str) -> int:
    """0.25 -> 25, 1e3 -> 1000; for one of many digits another that is too large. What is no number is
    left to the compiler."""
    try:
        _, digits, exponent = Decimal(number).as_tuple()
    except InvalidOperation:
        return 1
    if not isinstance(exponent, int) or exponent > 9 or len(digits) > 9:
        return MOST_MULTIPLE + 1
    value = int("".join(map(str, digits))) * 10 ** max(0, exponent)
    return value or 1
