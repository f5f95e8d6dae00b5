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
from urllib.parse import unquote

from yaie.core.constraint import Constraint
from yaie.core.errors import InvalidRequestError

PARAM = "response_format"
NAMES = {
    "json_object": "the grammar",
    "json_schema": "the schema",
    "lark": "the grammar",
    "gbnf": "the grammar",
}
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

MOST_LEVELS = 800
"""Of braces and brackets, and one for each reference. 1,000 were compiled on a stack of 8 MB, 2,500 were
not."""
_CHOICES = ("anyOf", "oneOf")
"""Keywords that leave a way out of a circle, if they have another alternative."""
_INDEX = re.compile(r"[0-9]{1,9}")
"""Of an element of a list. Python refuses to make a number of more than 4,300 digits."""
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


def circular_ref(schema: Any) -> str | None:
    """A `$ref` that leads back to itself without a property or an item in between; None if none does.

    No value fits such a schema, and what the compiler or the matcher says of it tells a person nothing.
    """
    done: set[int] = set()
    for start in _objects(schema):
        # Depth first; `path` is what leads to the one that is looked at.
        stack: list[Iterator[tuple[dict[str, Any], str | None]]] = [iter([(start, None)])]
        path: dict[int, str | None] = {}
        while stack:
            one, ref = next(stack[-1], (None, None))
            if one is None:
                stack.pop()
                done.update([path.popitem()[0]] if path else [])
            elif id(one) in path:
                circle = [*[*path.values()][[*path].index(id(one)) + 1 :], ref]
                return next((name for name in circle if name is not None), None)
            elif id(one) not in done:
                path[id(one)] = ref
                stack.append(_same_value(schema, one))
    return None


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object in a schema."""
    rest = [schema]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            yield one
            rest += one.values()
        elif isinstance(one, list):
            rest += one


def _same_value(schema: Any, one: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    """The schemas that the value of `one` must fit too, each with the `$ref` that leads there."""
    ref = one.get("$ref")
    if isinstance(target := pointed_at(schema, ref), dict):
        yield target, ref
    for keyword in ("allOf", *_CHOICES):
        several = one.get(keyword)
        if isinstance(several, list) and (keyword == "allOf" or len(several) == 1):
            yield from ((each, None) for each in several if isinstance(each, dict))


def pointed_at(schema: Any, ref: Any) -> Any:
    """What a pointer into this schema (RFC 6901, `#/$defs/name`) names; None if that is nothing."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    place = schema
    for step in unquote(ref[1:]).split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict):
            place = place.get(step)
        elif isinstance(place, list) and _INDEX.fullmatch(step) and int(step) < len(place):
            place = place[int(step)]
        else:
            return None
    return place


def levels_of(schema: Any) -> int:
    """The levels on the longest way into a schema whose references are followed. llguidance calls itself
    for each, and a stack that ends takes the whole process with it.

    Schemas that lead back to each other are counted as if a way led through all of them, since it may.
    Each is looked at once.
    """
    return _Levels(schema).deepest()


class _Levels:
    """The schemas that references lead to, as the nodes of a graph."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._own: dict[int, int] = {}  # levels of a node without its references, by id
        self._next: dict[int, list[int]] = {}  # the nodes that it refers to
        rest = [schema]
        while rest:
            node = rest.pop()
            if id(node) not in self._own:
                rest += self._read(node)

    def _read(self, node: Any) -> list[Any]:
        """Note the levels of a node. Returns what it refers to."""
        targets: dict[int, Any] = {}
        level, depth = [node], 0
        while level:
            depth += 1
            inner: list[Any] = []
            for one in level:
                if isinstance(one, dict):
                    target = pointed_at(self._schema, one.get("$ref"))
                    if isinstance(target, dict):
                        targets[id(target)] = target
                    inner += one.values()
                elif isinstance(one, list):
                    inner += one
            level = [one for one in inner if isinstance(one, dict | list)]
        self._own[id(node)] = depth
        self._next[id(node)] = [*targets]
        return [*targets.values()]

    def deepest(self) -> int:
        """Tarjan (1972), with a stack of its own: components come out after all that they lead to."""
        number: dict[int, int] = {}
        low: dict[int, int] = {}
        total: dict[int, int] = {}  # of nodes whose component is known
        open_nodes: list[int] = []
        start = id(self._schema)
        number[start] = low[start] = 0
        open_nodes.append(start)
        calls = [(start, iter(self._next[start]))]
        while calls:
            node, rest = calls[-1]
            inner = next(rest, None)
            if inner is not None:
                if inner not in number:
                    number[inner] = low[inner] = len(number)
                    open_nodes.append(inner)
                    calls.append((inner, iter(self._next[inner])))
                elif inner not in total:
                    low[node] = min(low[node], number[inner])
                continue
            calls.pop()
            if calls:
                low[calls[-1][0]] = min(low[calls[-1][0]], low[node])
            if low[node] == number[node]:
                self._close(node, open_nodes, total)
        return total[start]

    def _close(self, node: int, open_nodes: list[int], total: dict[int, int]) -> None:
        """The component that begins with a node is complete."""
        place = open_nodes.index(node)
        members = open_nodes[place:]
        del open_nodes[place:]
        behind = [total[it] for member in members for it in self._next[member] if it in total]
        own = sum(self._own[member] + 1 for member in members)
        total.update(dict.fromkeys(members, own + max(behind, default=0)))
