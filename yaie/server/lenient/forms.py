"""The form that an answer must have, in the words of other servers: `structured_outputs` and its like.

Taken out of a body and noted beside it (`Notes.form`), since the part that speaks OpenAI's API has no
field for them: the engine is given a constraint in the place of that of a `response_format`.
"""

import json
import re
from collections.abc import Callable, Collection
from typing import Any

from pydantic_core import PydanticCustomError

from yaie.core.constraint import Constraint
from yaie.core.errors import InvalidRequestError
from yaie.core.fields import plain
from yaie.engine.input.grammars.gbnf import MOST_LEVELS, MOST_RULES, RULE, UNFORCED, num_levels
from yaie.engine.input.grammars.schema_limits import MOST_CHARS, MOST_CONSTANT
from yaie.server.lenient.notes import ask
from yaie.server.lenient.structural import NoTagError, lark_of_tags

Json = dict[str, Any]

MOST_CHOICES = 1024
MOST_DEPTH = 64
"""Of brackets in a grammar or pattern. What compiles them calls itself for each."""
OTHERS = ("tools", "response_format")
"""Fields that say of the form of an answer, too."""
_START = re.compile(r"^[ \t]*[?!]?start[ \t]*:", re.MULTILINE)
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')


def take_form(body: Json, known: Collection[str]) -> None:
    """Take such fields out of a body, and note the constraint that they ask for. Raises
    InvalidRequestError for one that is none, and for two."""
    found: list[tuple[str, Constraint]] = []
    for name in FORMS:
        if name in body and name not in known:
            value = body.pop(name)
            if (constraint := FORMS[name](name, checked_json(name, value))) is not None:
                found.append((name, constraint))
    if (constraint := _by_response_format(body)) is not None:
        found.append(("response_format", constraint))
        del body["response_format"]
    if not found:
        return
    name, constraint = found[0]
    others = [other for other, _ in found[1:]] + [other for other in OTHERS if body.get(other)]
    if others:
        raise _refusal(name, f"It and {others[0]} both say what the answer must look like.")
    ask(name, constraint)


def _by_response_format(body: Json) -> Constraint | None:
    """What one of a further type asks for: the part that speaks OpenAI's API knows only JSON."""
    form: Any = body.get("response_format")
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "structural_tag":
        return _of_tags("response_format", checked_json("response_format", form))
    if not isinstance(form, dict) or not isinstance(kind, str):
        return None
    for key in FURTHER.get(kind, ()):
        if form.get(key) is not None:
            value = checked_json("response_format", form[key])
            return KINDS[kind](f"response_format.{key}", value)
    return None


def _structured(name: str, value: Any) -> Constraint | None:
    """vLLM's object, of which one field is given."""
    if not isinstance(value, dict):
        raise _refusal(name, f"It must be an object with one of {', '.join(KINDS)}.")
    given = {key: inner for key, inner in value.items() if inner is not None and inner is not False}
    for key in given.keys() - KINDS.keys():
        raise _refusal(f"{name}.{key}", f"Only {', '.join(KINDS)} are supported.")
    if len(given) != 1:
        raise _refusal(name, f"It must have one of {', '.join(KINDS)}.")
    key, inner = next(iter(given.items()))
    return KINDS[key](f"{name}.{key}", inner)


def _of_schema(name: str, value: Any) -> Constraint | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise _refusal(name, "It must be a JSON schema.") from None
    if not isinstance(value, dict):
        raise _refusal(name, "It must be a JSON schema.")
    return Constraint("json_schema", json.dumps(value))


def _of_object(name: str, value: Any) -> Constraint | None:
    if value is False:
        return None
    if value is not True:
        raise _refusal(name, "It must be true or false.")
    return Constraint("json_object")


def _of_tags(name: str, value: Any) -> Constraint | None:
    try:
        return lark_of_tags(value, lambda where, given: _pattern(f"{name}.{where}", given))
    except NoTagError as error:
        where = f"{name}.{error.where}" if error.where else name
        raise _refusal(where, str(error)) from None


def _of_pattern(name: str, value: Any) -> Constraint | None:
    return Constraint("lark", f"start: {_pattern(name, value)}")


def _pattern(name: str, value: Any) -> str:
    """A regular expression as Lark has it."""
    if not isinstance(value, str) or not value:
        raise _refusal(name, "It must be a regular expression.")
    _check_depth(name, re.sub(r"\\.", "", value))
    escaped = re.sub(
        r"\\.|/|\n|\r", lambda found: _ESCAPES.get(found[0], found[0]), value, flags=re.S
    )
    return f"/{escaped}/"


def _of_choices(name: str, value: Any) -> Constraint | None:
    are_texts = isinstance(value, list) and all(isinstance(it, str) and it for it in value)
    if not are_texts or not 1 <= len(value) <= MOST_CHOICES:
        raise _refusal(name, f"It must be a list of 1 to {MOST_CHOICES} texts, none of them empty.")
    if (longest := max(map(len, value))) > MOST_CONSTANT:
        raise _refusal(name, f"A text may have {MOST_CONSTANT} characters; one has {longest}.")
    return Constraint("lark", f"start: {' | '.join(_literal(it) for it in value)}")


def _of_grammar(name: str, value: Any) -> Constraint | None:
    if not isinstance(value, str):
        raise _refusal(name, "It must be a grammar in Lark or GBNF, as a text.")
    if not value:
        return None
    if len(value) > MOST_CHARS:
        raise _refusal(name, f"It may have at most {MOST_CHARS} characters.")
    _check_depth(name, _STRING.sub('""', value))
    if any(len(text) > MOST_CONSTANT for text in _STRING.findall(value)):
        raise _refusal(name, f"A text in it may have {MOST_CONSTANT} characters.")
    if "::=" in value:
        return Constraint("gbnf", value)
    if len(RULE.findall(value)) > MOST_RULES:
        raise _refusal(name, f"It may have at most {MOST_RULES} rules.")
    if num_levels(_STRING.sub('""', value)) > MOST_LEVELS:
        raise _refusal(name, f"It may have {MOST_LEVELS} rules and brackets in them, all together.")
    if "%llguidance" in _STRING.sub('""', value):
        raise _refusal(name, "Options of llguidance (%llguidance) cannot be set here.")
    if len(_START.findall(value)) != 1:
        raise _refusal(name, "A grammar in Lark must have one rule that is called start.")
    return Constraint("lark", f"{_START.sub(chr(10) + 'start:', value)}\n{UNFORCED}")


def _of_format(name: str, value: Any) -> Constraint | None:
    """Ollama's: a schema, or that it be JSON."""
    if value in ("", "json"):
        return Constraint("json_object") if value else None
    return _of_schema(name, value)


KINDS: dict[str, Callable[[str, Any], Constraint | None]] = {
    "json": _of_schema,
    "json_object": _of_object,
    "regex": _of_pattern,
    "choice": _of_choices,
    "grammar": _of_grammar,
    "structural_tag": _of_tags,
}
FORMS: dict[str, Callable[[str, Any], Constraint | None]] = {
    "structured_outputs": _structured,
    "guided_json": _of_schema,
    "guided_json_object": _of_object,
    "guided_regex": _of_pattern,
    "guided_choice": _of_choices,
    "guided_grammar": _of_grammar,
    "grammar": _of_grammar,
    "json_schema": _of_schema,
    "format": _of_format,
}
"""By the field's name: vLLM's newer and older ones, llama.cpp's and Ollama's."""
FURTHER = {
    "regex": ("pattern", "regex", "value"),
    "grammar": ("grammar", "value"),
    "choice": ("choice", "choices"),
}
"""Types of a `response_format` beyond OpenAI's, and where each has its value: as SGLang, Fireworks or
text-generation-inference call it."""
_ESCAPES = {"/": r"\/", "\n": r"\n", "\r": r"\r", "\\\n": r"\n", "\\\r": r"\r"}


def checked_json(name: str, value: Any) -> Any:
    """A value that can be written as JSON again. Raises InvalidRequestError for another."""
    try:
        plain({"": value})
    except PydanticCustomError as error:
        raise _refusal(name, error.message()) from None
    return value


def _check_depth(name: str, text: str) -> None:
    depth = 0
    for char in text:
        if char in "([{":
            depth += 1
            if depth > MOST_DEPTH:
                raise _refusal(name, f"It must not be nested more than {MOST_DEPTH} levels deep.")
        elif char in ")]}" and depth:
            depth -= 1


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _refusal(name: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name}: {why}", param=name)
