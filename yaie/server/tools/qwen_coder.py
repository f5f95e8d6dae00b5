"""Qwen3-Coder's form of calls: tags instead of JSON, and text without quotes between them.

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Bonn
    </parameter>
    </function>
    </tool_call>

A value ends at the first `</parameter>`; the newline before that and the one before the value are not
part of it. What the value is, a string or JSON, is told by the schema. Strings are passed on while they
are written, other values once they are complete.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from yaie.core.errors import InvalidRequestError
from yaie.engine.input.grammars.schema_limits import (
    MOST_CHARS,
    MOST_CONSTANT,
    is_long_constant,
    pointed_at,
)
from yaie.server.tools.formats import NAME, HermesFormat, Json, json_rule
from yaie.server.tools.json_scanner import Malformed
from yaie.server.tools.parser import CallParser, Reading
from yaie.server.tools.text_grammars import TextGrammar
from yaie.server.tools.xml_values import Kinds, as_json, property_of, quoted

FUNCTION, PARAMETER = "<function=", "<parameter="
END: Final = "</parameter>"
LONGEST_KEY = 1024
STRING = frozenset(["string"])

_PLAIN = re.compile(r"[^<\n]+")
_KEY = re.compile(r"[^<>\n]+")
_ESCAPE = re.compile(r"\\.|/|\n", re.DOTALL)
_ESCAPED = {"/": r"\/", "\n": r"\n"}
"""What ends a regular expression in Lark, and how it is written inside of one."""
_UNENFORCEABLE = (
    "anyOf", "oneOf", "allOf", "not", "if", "patternProperties", "propertyNames", "minProperties",
    "maxProperties", "dependentRequired", "dependentSchemas", "dependencies",
)  # fmt: skip


class QwenCoderParser(CallParser):
    markers = ("<tool_call>", FUNCTION)  # some answers leave the outer tag out

    _is_in_call = False
    _is_in_text = False
    """Whether a string has begun, all of which has been passed on."""

    def __init__(
        self, functions: Mapping[str, Json], kinds: dict[str, Kinds] | None = None
    ) -> None:
        """kinds: of the functions' schemas, shared by the answers of one request; filled in here."""
        super().__init__(functions)
        self._kinds = {} if kinds is None else kinds

    def _calls(self, marker: str) -> Reading[None]:
        tag = marker
        while tag != "</tool_call>":
            if tag != FUNCTION:
                yield from self._one_of(FUNCTION)
            self._is_in_call = True
            try:
                yield from self._function()
            finally:
                self._is_in_call = False
            tag = yield from self._one_of("</tool_call>", *self.markers)
        self._held = ""

    def end(self, *, is_cut: bool = False) -> Any:
        """The rest. Of a call that was cut off, the tag or value that is not complete is left out."""
        if self._is_in_call and self._num_begun > self._num_ended:
            self._held = ""
        return super().end(is_cut=is_cut)

    def _function(self) -> Reading[None]:
        name, character = "", (yield from self._next())
        while NAME.match(character):
            name += character
            character = yield from self._next()
        if character != ">":
            raise Malformed
        schema = self._functions[self._known(name)]
        kinds = self._kinds.setdefault(name, Kinds(schema))
        separator = "{"
        self._begin(name)
        while (yield from self._one_of(PARAMETER, "</function>")) == PARAMETER:
            key = yield from self._parameter_name()
            self._pass_on(f"{separator}{quoted(key)}: ")
            separator = ", "
            yield from self._parameter(kinds.of(property_of(schema, key)))
        self._pass_on("{}" if separator == "{" else "}")
        self._num_ended += 1

    def _parameter_name(self) -> Reading[str]:
        key = yield from self._next()
        while not key.endswith(">"):
            if key[-1] in "<\n" or len(key) > LONGEST_KEY:
                raise Malformed
            key += yield from self._next()
        return key[:-1]

    def _parameter(self, kinds: frozenset[str]) -> Reading[None]:
        if kinds == STRING:
            yield from self._text()
            return
        pieces, last = list[str](), ""
        while last != END:
            character = yield from self._next()
            pieces.append(character)
            last = (last + character)[-len(END) :]
        text = "".join(pieces).removesuffix(END).removesuffix("\n").removeprefix("\n")
        self._pass_on(as_json(text, kinds))

    def _text(self) -> Reading[None]:
        """A string, passed on but for what may be its end."""
        self._pass_on('"')
        if (yield from self._next()) == "\n":
            self._held = ""
        else:
            self._give_back()
        while self._held not in (f"\n{END}", END):
            self._is_in_text = not self._held and self._again is None
            character = yield from self._next()
            self._is_in_text = False
            held = self._held
            if not (END.startswith(held) or f"\n{END}".startswith(held)):
                kept = character if character in "\n<" else ""
                self._pass_on(quoted(held.removesuffix(kept))[1:-1])
                self._held = kept
        self._pass_on('"')

    def _pass_over_value(self, text: str, place: int) -> str:
        if not self._is_in_text:
            return ""
        found = _PLAIN.match(text, place)
        if found is None:
            return ""
        self._pass_on(quoted(found[0])[1:-1])
        return found[0]


class QwenCoderFormat(HermesFormat):
    """Each parameter once, in the order of the schema."""

    parser: ClassVar[type[CallParser]] = QwenCoderParser
    _opening = json.dumps(FUNCTION)

    def _function(self, name: str, arguments: str) -> str:
        return f'{json.dumps(f"{name}>")} "\\n" {arguments} "</function>"'

    def _free_text(self) -> str:
        """Some answers leave the outer tag out, which the parser allows."""
        head = f"{self._head('head', '<tool_call>')}\n{self._head('inner_head', FUNCTION)}"
        return f"start: TEXT | head more_calls | inner_head rest_of_call other_calls\n{head}"

    def parsers(self, functions: Mapping[str, Json], count: int) -> list[CallParser]:
        """See ToolFormat."""
        kinds: dict[str, Kinds] = {}
        return [QwenCoderParser(functions, kinds) for _ in range(count)]

    def _text(self, rule: str, text: TextGrammar) -> str:
        tag = json.dumps(f"{PARAMETER}{text.argument}>\n")
        return f'{rule}: {tag} {rule}_text "\\n"\n{text.in_tags(f"{rule}_text", f"{chr(10)}{END}")}'

    def _arguments(self, rule: str, name: str, schema: Json) -> str:
        properties, required = _parameters(name, schema)
        if not properties and not required and schema.get("additionalProperties") is not False:
            key = f'({json.dumps(PARAMETER)} /[^<>\\n]+/ ">\\n" {rule}_any "\\n")*'
            return f"{rule}: {key}\n{_text_rule(f'{rule}_any', '')}"
        places: list[str] = []
        rules: list[str] = []
        values = _Values(schema)
        for index, key in enumerate(dict.fromkeys([*properties, *required])):
            if not _KEY.fullmatch(key):
                raise _cannot(name, f"have the name {key[:40]!r}, which cannot stand in a tag")
            inner = properties.get(key, True)
            if inner is False and key in required:
                raise _cannot(name, f"require {key[:40]!r} and allow no value of it")
            if inner is False:
                continue
            value = f"{rule}_{index}"
            tag = json.dumps(f"{PARAMETER}{key}>\n")
            places.append(f'({tag} {value} "\\n"){"" if key in required else "?"}')
            rules.append(values.rule(value, inner))
        return "\n".join([f"{rule}: {' '.join(places) or _NOTHING}", *rules])


_NOTHING = '""'


def _parameters(name: str, schema: Json) -> tuple[Json, list[str]]:
    """Properties, and the names of those that must be there."""
    for key in _UNENFORCEABLE:
        if key in schema:
            raise _cannot(name, f"have {key!r} beside their properties")
    if "$ref" in schema:
        schema = pointed_at(schema, schema["$ref"])
    properties = schema.get("properties", {}) if isinstance(schema, dict) else None
    required = schema.get("required", []) if isinstance(schema, dict) else None
    if (
        not isinstance(properties, dict)
        or not isinstance(required, list)
        or not all(isinstance(key, str) for key in required)
    ):
        raise _cannot(name, "are not described by properties and required")
    return properties, required


class _Values:
    """The rules for values of one function."""

    def __init__(self, root: Json) -> None:
        """root: the schema of its arguments."""
        self._root = root
        self._kinds = Kinds(root)
        self._shared: Json = {key: root[key] for key in ("$defs", "definitions") if key in root}
        self._num_shared = len(json.dumps(self._shared))
        self._left = MOST_CHARS

    def rule(self, rule: str, inner: Any) -> str:
        """The rule for a value of the schema `inner` and the tag after it."""
        inner = inner if isinstance(inner, dict) else {}
        steps = 8
        while "$ref" in inner and steps:
            found = pointed_at(self._root, inner["$ref"])
            inner, steps = found if isinstance(found, dict) else {}, steps - 1
        choices = [inner["const"]] if "const" in inner else inner.get("enum")
        if isinstance(choices, list):
            if any(map(is_long_constant, choices)):
                raise InvalidRequestError(
                    f"tools: a constant has more than {MOST_CONSTANT} characters. Let the arguments "
                    "refer to it by something shorter.",
                    param="tools",
                )
            texts = [it if isinstance(it, str) else json.dumps(it) for it in choices]
            return f"{rule}: ({' | '.join(map(json.dumps, texts))}) {json.dumps(chr(10) + END)}"
        kinds = self._kinds.of(inner)
        if kinds == STRING:
            return _text_rule(rule, _limits(inner))
        if "string" in kinds or not kinds:
            return _text_rule(rule, "")
        described = self._described(inner)
        return f"{rule}: {rule}_json {json.dumps(chr(10) + END)}\n{rule}_json: {described}"

    def _described(self, inner: Json) -> str:
        """Values in JSON. What references may lead to is written again for each property: not for longer
        than the engine would take the whole."""
        self._left -= self._num_shared
        if self._left >= 0:
            described = json_rule({**self._shared, **inner})
            self._left -= len(described) - self._num_shared
        if self._left < 0:
            raise InvalidRequestError(
                f"tools: a function's parameters need a grammar of more than {MOST_CHARS} characters, "
                "since each property that is no string has a copy of $defs. Send fewer or shorter ones.",
                param="tools",
            )
        return described


def _text_rule(rule: str, limits: str) -> str:
    """Text up to the first end tag."""
    text = f"(({limits}) & ~/(.|\\n)*<\\/parameter>(.|\\n)*/)" if limits else "/(.|\\n)*/"
    end = json.dumps(f"\n{END}" if limits else END)
    return f"{rule}[lazy]: {text} {end}"


def _limits(schema: Json) -> str:
    """What a string must look like besides, as terminals of Lark; "" if it may be any."""
    limits = []
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        before = "" if pattern.startswith("^") else "(.|\\n)*"
        after = "" if pattern.endswith("$") and not pattern.endswith("\\$") else "(.|\\n)*"
        pattern = pattern.removeprefix("^")
        pattern = pattern if after else pattern.removesuffix("$")
        pattern = _ESCAPE.sub(lambda found: _ESCAPED.get(found[0], found[0]), pattern)
        limits.append(f"/{before}({pattern}){after}/")
    least, most = schema.get("minLength", 0), schema.get("maxLength", "")
    if type(least) is int and (most == "" or type(most) is int) and (least, most) != (0, ""):
        limits.append(f"/(.|\\n){{{least},{most}}}/")
    return " & ".join(limits)


def _cannot(name: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"tools: the parameters of {name[:40]!r} {what}. This model writes each argument between "
        "tags of its own, where that cannot be enforced. Describe them by properties and required.",
        param="tools",
    )
