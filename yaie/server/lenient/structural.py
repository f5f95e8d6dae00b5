"""Structural tags: free text in which tags may stand, each with a content of its own form.

The two shapes that vLLM and SGLang take, as grammars in Lark. The older one names `triggers` and
`structures`, the newer one is a tree of formats (xgrammar's). A tag begins where its trigger has been
written, whatever text is around it. From there on its begin, its content and its end are forced.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from yaie.core.constraint import Constraint
from yaie.engine.input.grammars.compiler import WHITESPACE
from yaie.engine.input.grammars.gbnf import UNFORCED
from yaie.engine.input.grammars.schema_limits import MOST_CHARS, MOST_CONSTANT

Json = dict[str, Any]

MOST_TAGS = 256
MOST_DEPTH = 16
"""Of formats inside each other."""
_OLD = ("structures", "triggers")
ANY = r"/(.|\n)*/"
_SPACES = {"whitespace_pattern": WHITESPACE}


class NoTagError(ValueError):
    """What is wrong with structural tags, and at which field below them."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(why)
        self.where = where


def lark_of_tags(value: Any, pattern: Callable[[str, Any], str]) -> Constraint:
    """The grammar of structural tags. pattern: makes a regular expression one of Lark's, or raises.
    Raises NoTagError."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise NoTagError("", "It must be an object, or one as JSON.") from None
    if not isinstance(value, dict):
        raise NoTagError("", "It must be an object.")
    rules = _Rules(pattern)
    if "format" in value:
        start = rules.format("format", value["format"], 0)
    elif all(isinstance(value.get(name), list) for name in _OLD):
        tags = [
            {"begin": tag.get("begin"), "content": _content(tag), "end": tag.get("end")}
            if isinstance(tag, dict) else tag
            for tag in value["structures"]
        ]  # fmt: skip
        body = {"type": "triggered_tags", "triggers": value["triggers"], "tags": tags}
        start = rules.format("structures", body, 0)
    else:
        raise NoTagError("", "It must have format, or structures and triggers.")
    lark = "\n".join([f"start: {start}", *rules.lines, f"TEXT: {ANY}", UNFORCED])
    if len(lark) > MOST_CHARS:
        raise NoTagError("", f"It comes to a grammar of more than {MOST_CHARS} characters.")
    return Constraint("lark", lark)


def _content(tag: Json) -> Json:
    return {"type": "json_schema", "json_schema": tag.get("schema", {})}


class _Rules:
    """The rules of a grammar, while it is made."""

    def __init__(self, pattern: Callable[[str, Any], str]) -> None:
        self.lines: list[str] = []
        self._pattern = pattern
        self._num_tags = 0

    def format(self, where: str, value: Any, depth: int) -> str:
        """What stands for a format in a rule."""
        if depth > MOST_DEPTH:
            raise NoTagError(where, f"Formats may be {MOST_DEPTH} levels deep.")
        kind = value.get("type") if isinstance(value, dict) else None
        makers: dict[Any, Callable[[str, Json, int], str]] = {
            "const_string": self._constant,
            "json_schema": self._schema,
            "regex": self._regex,
            "any_text": lambda where, value, depth: "TEXT",
            "sequence": self._sequence,
            "or": self._or,
            "tag": self._tag,
            "triggered_tags": self._triggered,
            "tags_with_separator": self._separated,
        }
        if kind not in makers:
            raise NoTagError(f"{where}.type", f"It must be one of {', '.join(map(str, makers))}.")
        return makers[kind](where, value, depth)

    def _rule(self, body: str, option: str = "") -> str:
        name = f"part_{len(self.lines)}"
        self.lines.append(f"{name}{option}: {body}")
        return name

    def _up_to(self, literal: str) -> str:
        """Any text, which ends where this has been written."""
        return self._rule(f"{ANY} {literal}", "[lazy]")

    def _constant(self, where: str, value: Json, depth: int) -> str:
        return _text(f"{where}.value", value.get("value"))

    def _schema(self, where: str, value: Json, depth: int) -> str:
        schema = value.get("json_schema")
        if schema is True:
            schema = {}
        if not isinstance(schema, dict):
            raise NoTagError(f"{where}.json_schema", "It must be a JSON schema.")
        return self._rule(f"%json {json.dumps({'x-guidance': _SPACES, **schema})}")

    def _regex(self, where: str, value: Json, depth: int) -> str:
        return self._rule(self._pattern(f"{where}.pattern", value.get("pattern")))

    def _sequence(self, where: str, value: Json, depth: int) -> str:
        return self._rule(" ".join(self._elements(where, value, depth)))

    def _or(self, where: str, value: Json, depth: int) -> str:
        return self._rule(" | ".join(self._elements(where, value, depth)))

    def _elements(self, where: str, value: Json, depth: int) -> list[str]:
        elements = _some(f"{where}.elements", value.get("elements"))
        return [
            self.format(f"{where}.elements[{index}]", each, depth + 1)
            for index, each in enumerate(elements)
        ]

    def _tag(self, where: str, value: Json, depth: int) -> str:
        return self._rule(self._behind(where, value, depth, ""))

    def _behind(self, where: str, value: Any, depth: int, trigger: str) -> str:
        """A tag, but for the trigger with which it begins."""
        self._num_tags += 1
        if not isinstance(value, dict) or self._num_tags > MOST_TAGS:
            raise NoTagError(where, f"It must be a tag, of {MOST_TAGS} at most.")
        begin, end, content = value.get("begin"), value.get("end"), value.get("content")
        if not isinstance(begin, str) or not isinstance(end, str):
            raise NoTagError(where, "A tag must have begin and end, both of them strings.")
        before = _text(f"{where}.begin", begin[len(trigger) :], may_be_empty=True)
        if end and isinstance(content, dict) and content.get("type") == "any_text":
            return f"{before} {self._up_to(_text(f'{where}.end', end))}"
        inner = self.format(f"{where}.content", content, depth + 1)
        return f"{before} {inner} {_text(f'{where}.end', end, may_be_empty=True)}"

    def _triggered(self, where: str, value: Json, depth: int) -> str:
        triggers = _some(f"{where}.triggers", value.get("triggers"))
        tags = _some(f"{where}.tags", value.get("tags"))
        made = []
        for index, tag in enumerate(tags):
            begin = tag.get("begin") if isinstance(tag, dict) else None
            started = [
                one for one in triggers
                if isinstance(begin, str) and isinstance(one, str) and one and begin.startswith(one)
            ]  # fmt: skip
            if not started:
                raise NoTagError(f"{where}.tags[{index}]", "Its begin must start with a trigger.")
            made.append(
                (started[0], self._behind(f"{where}.tags[{index}]", tag, depth, started[0]))
            )
        one = self._rule(" | ".join(self._begun(made)))
        if value.get("stop_after_first"):
            return one if value.get("at_least_one") else self._rule(f"TEXT | {one}")
        return self._rule(f"{one}{'+' if value.get('at_least_one') else '*'} TEXT")

    def _begun(self, made: Sequence[tuple[str, str]]) -> list[str]:
        """A rule for each trigger, with what may stand behind it."""
        found = []
        for trigger in dict.fromkeys(trigger for trigger, _ in made):
            text = self._up_to(_text("triggers", trigger))
            behind = " | ".join(self._rule(rest) for own, rest in made if own == trigger)
            found.append(f"{text} ({behind})")
        return found

    def _separated(self, where: str, value: Json, depth: int) -> str:
        tags = _some(f"{where}.tags", value.get("tags"))
        separator = _text(f"{where}.separator", value.get("separator"), may_be_empty=True)
        each = [self._behind(f"{where}.tags[{i}]", tag, depth, "") for i, tag in enumerate(tags)]
        one = self._rule(" | ".join(map(self._rule, each)))
        several = one if value.get("stop_after_first") else f"{one} ({separator} {one})*"
        return self._rule(several if value.get("at_least_one") else f"({several})?")


def _text(where: str, value: Any, *, may_be_empty: bool = False) -> str:
    """A literal."""
    if not isinstance(value, str) or (not value and not may_be_empty) or len(value) > MOST_CONSTANT:
        raise NoTagError(where, f"It must be a string of at most {MOST_CONSTANT} characters.")
    return json.dumps(value, ensure_ascii=False) if value else ""


def _some(where: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_TAGS:
        raise NoTagError(where, f"It must be a list of 1 to {MOST_TAGS}.")
    return value
