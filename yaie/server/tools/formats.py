"""How families of models write calls, as parsers and as grammars: those who write them in JSON.

Hermes, Qwen    <tool_call>{"name": "f", "arguments": {}}</tool_call>, one after the other
Llama 3         {"name": "f", "parameters": {}} and nothing before it, or behind <|python_tag|>; between
                calls a semicolon
Mistral         [TOOL_CALLS] [{"name": "f", "arguments": {}}, ...], or from 2025 on, for each call,
                [TOOL_CALLS]f[ARGS]{}
"""

import json
import re
import secrets
import string
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from yaie.engine.input.grammars.gbnf import UNFORCED
from yaie.server.tools.json_scanner import Malformed
from yaie.server.tools.parser import CallParser, Reading
from yaie.server.tools.text_grammars import TextGrammar

NAME = re.compile(r"[a-zA-Z0-9_.:/-]")

TEXT = "TEXT: /(.|\\n)*/"
END_OF_TEXT = '"}'

Json = dict[str, Any]
SpecialId = Callable[[str], int | None]
"""The id of the special token that is written so, if there is one."""


class HermesParser(CallParser):
    markers = ("<tool_call>",)

    def _calls(self, marker: str) -> Reading[None]:
        if (yield from self._solid()) != "{":
            raise Malformed
        yield from self._object()
        yield from self._literal("</tool_call>")


class Llama3Parser(CallParser):
    markers = ("<|python_tag|>",)

    def _content(self) -> Reading[str]:
        """Without a marker, a call stands at the beginning of the text alone."""
        if not self._has_begun:
            self._has_begun = True
            first = yield from self._solid()
            self._give_back()
            if first == "{":
                return ""
        return (yield from super()._content())

    _has_begun = False

    def _calls(self, marker: str) -> Reading[None]:
        if (yield from self._solid()) != "{":
            raise Malformed
        yield from self._object()
        while (yield from self._solid()) == ";":
            if (yield from self._solid()) != "{":
                raise Malformed
            yield from self._object()
        self._give_back()


class MistralParser(CallParser):
    markers = ("[TOOL_CALLS]",)

    def _calls(self, marker: str) -> Reading[None]:
        character = yield from self._solid()
        if character == "[":
            yield from self._list()
        else:
            yield from self._named(character)

    def _list(self) -> Reading[None]:
        character = ","
        while character == ",":
            if (yield from self._solid()) != "{":
                raise Malformed
            yield from self._object()
            character = yield from self._solid()
        if character != "]":
            raise Malformed
        self._held = ""

    def _named(self, character: str) -> Reading[None]:
        name = ""
        while NAME.match(character):
            name += character
            character = yield from self._next()
        self._known(name)
        while character == "[":  # [CALL_ID]...[ARGS], the first of which may be missing
            tag = ""
            while character != "]":
                character = yield from self._next()
                tag += character
                if len(tag) > len("CALL_ID]"):
                    raise Malformed
            if tag not in ("CALL_ID]", "ARGS]"):
                raise Malformed
            character = yield from self._solid()
            while tag == "CALL_ID]" and character.isalnum():
                character = yield from self._next()
        if character != "{":
            raise Malformed
        yield from self._arguments(name)


class ToolFormat(ABC):
    """How one family of models writes calls."""

    parser: ClassVar[type[CallParser]]
    arguments_key = "arguments"

    def __init__(self, special_id: SpecialId, template: str = "") -> None:
        """template: the chat template."""
        self._special_id = special_id
        self._template = template

    def new_id(self) -> str:
        """A name for a call, by which a tool's answer will refer to it."""
        return f"call_{uuid.uuid4().hex}"

    def parsers(self, functions: Mapping[str, Json], count: int) -> list[CallParser]:
        """One for each answer of a request.

        functions: that may be called, each with the schema of its arguments.
        """
        return [self.parser(functions) for _ in range(count)]

    def conversation(self, messages: list[Json], tools: list[Json] | None) -> list[Json]:
        """The messages as the template must be given them."""
        return messages

    def grammar(self, demand: dict[str, Any]) -> str:
        """What an answer may look like, in llguidance's dialect of Lark. Raises InvalidRequestError if a
        schema cannot be followed in this form.

        demand: "functions" (name -> schema of its arguments), "is_required" (nothing but calls),
            "may_be_several" (calls), "answer" (a schema for an answer without calls, or None for text).
            "texts" (name -> `TextGrammar`) may be left out; it goes before the schema of a function.
        """
        rules = [self._calls_rule(demand["may_be_several"])]
        texts: Mapping[str, TextGrammar] = demand.get("texts", {})
        for index, (name, schema) in enumerate(demand["functions"].items()):
            rule = f"arguments_{index}"
            rules.append(f"function_{index}: {self._function(name, rule)}")
            if name in texts:
                rules.append(self._text(rule, texts[name]))
            else:
                rules.append(self._arguments(rule, name, schema))
        if texts:
            rules.append(UNFORCED)
        alternatives = [f"function_{index}" for index in range(len(demand["functions"]))]
        rules.append(f"function: {' | '.join(alternatives)}")
        if demand["is_required"]:
            rules.insert(0, "start: calls")
        elif demand["answer"] is not None:
            rules.insert(0, f"start: calls | answer\nanswer: {json_rule(demand['answer'])}")
        else:
            rules.insert(0, f"{self._free_text()}\n{TEXT}")
        return "\n".join(rules) + "\n"

    @abstractmethod
    def _calls_rule(self, may_be_several: bool) -> str:
        """The rule `calls`, made of the rule `function`."""

    @abstractmethod
    def _free_text(self) -> str:
        """The rule `start` for text, TEXT for short, in which calls may follow, at its end."""

    def _function(self, name: str, arguments: str) -> str:
        # In the same pieces as those of a schema: where an answer may be any JSON, the lexer has to
        # decide on each piece without looking ahead.
        key, name = json.dumps(self.arguments_key), json.dumps(name)
        pieces = ["{", '"name"', ": ", name, ", ", key, ": "]
        return f"{' '.join(map(json.dumps, pieces))} {arguments} {json.dumps('}')}"

    def _arguments(self, rule: str, name: str, schema: Json) -> str:
        """The rule of that name, and those it needs, for the arguments of the function `name`."""
        return f"{rule}: {json_rule(schema)}"

    def _text(self, rule: str, text: TextGrammar) -> str:
        """The rule of that name, and those it needs, for the one argument of a function, a text."""
        head = json.dumps(f'{{{json.dumps(text.argument)}: "')
        return (
            f"{rule}: {head} {rule}_text {json.dumps(END_OF_TEXT)}\n{text.in_json(f'{rule}_text')}"
        )

    def _head(self, rule: str, marker: str) -> str:
        """A rule for text up to the first marker. It ends there, whatever else it could go on with.
        A model may also spell a marker that is a special token, which parsers take for the same."""
        spelled, written = f"{rule}_spelled", self._marker(marker)
        begun = f"TEXT {written} | {spelled}" if written.startswith("<[") else spelled
        return f"{rule}: {begun}\n{spelled}[lazy]: TEXT {json.dumps(marker)}"

    def _marker(self, text: str) -> str:
        """A special token, which no text can stand for, or the text itself."""
        token_id = self._special_id(text)
        return json.dumps(text) if token_id is None else f"<[{token_id}]>"


class HermesFormat(ToolFormat):
    parser: ClassVar[type[CallParser]] = HermesParser
    _opening = ""
    """What stands before a function."""

    def _calls_rule(self, may_be_several: bool) -> str:
        begin, end = self._marker("<tool_call>"), self._marker("</tool_call>")
        more = f'("\\n" {begin} one_call)*' if may_be_several else '""'
        return (
            f"calls: {begin} more_calls\nmore_calls: one_call other_calls\nother_calls: {more}\n"
            f'one_call: "\\n" {self._opening} rest_of_call\nrest_of_call: function "\\n" {end}'
        )

    def _free_text(self) -> str:
        head = self._head("head", "<tool_call>")
        return f"start: TEXT | head more_calls\n{head}"


class Llama3Format(ToolFormat):
    parser = Llama3Parser
    arguments_key = "parameters"

    def grammar(self, demand: dict[str, Any]) -> str:
        """See ToolFormat."""
        if demand["answer"] is not None and not demand["is_required"]:
            for text in demand.get("texts", {}).values():
                raise text.refusal(
                    "This model writes calls as JSON without a mark, so an answer in JSON may look like "
                    "one. Require a call, or leave out the form of the answer."
                )
        return super().grammar(demand)

    def _calls_rule(self, may_be_several: bool) -> str:
        """One in any case: the templates of Llama 3 refuse a turn with several when it comes back."""
        return "calls: function"

    def _free_text(self) -> str:
        """Not one that begins with a brace, before which a parser skips what Python takes for spaces."""
        spaces = r"[\s\x1c-\x1f]"
        other = rf"({spaces}*[^{{\s\x1c-\x1f](.|\n)*)?"
        tag = self._marker("<|python_tag|>")
        begun = f"OTHER {tag} calls | " if tag.startswith("<[") else ""
        return (
            f"start: OTHER | calls | {begun}tagged calls\nOTHER: /{other}/\n"
            f"tagged[lazy]: /({other}|{spaces}*)<\\|python_tag\\|>/"
        )


class MistralFormat(ToolFormat):
    """A list of calls. Their names must have nine letters or digits: the templates insist."""

    parser = MistralParser

    def new_id(self) -> str:
        """See ToolFormat."""
        return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))

    def _calls_rule(self, may_be_several: bool) -> str:
        more = ' (", " function)*' if may_be_several else ""
        return f'calls: {self._marker("[TOOL_CALLS]")} list\nlist: (" ")? "[" function{more} "]"'

    def _free_text(self) -> str:
        return f"start: TEXT | head list\n{self._head('head', '[TOOL_CALLS]')}"


class MistralNamedFormat(MistralFormat):
    """Each call behind a marker of its own, its name in front of its arguments."""

    def _calls_rule(self, may_be_several: bool) -> str:
        begin = self._marker("[TOOL_CALLS]")
        more = f" ({begin} function)*" if may_be_several else ""
        return f"calls: {begin} list\nlist: function{more}"

    def _function(self, name: str, arguments: str) -> str:
        return f"{json.dumps(name)} {self._marker('[ARGS]')} {arguments}"


def json_rule(schema: Json) -> str:
    """Values of a schema, with the spaces that `json.dumps` writes and no others: a model that may go
    on with spaces for ever sometimes does."""
    spaces = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    return f"%json {json.dumps({'x-guidance': spaces, **schema})}"
