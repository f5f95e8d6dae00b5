"""What a parsed body may ask for in all, where each part of it is legal: schemas, and JSON in strings.

Checked before the body is validated, whichever part serves the endpoint, because schemas are written and
read again on the event loop, and what a string holds was not counted with the body.
"""

from collections.abc import Iterator
from typing import Any

from yaie.core.errors import InvalidRequestError
from yaie.server.json_limits import too_many

MAX_SCHEMA_VALUES = 1 << 14
"""Names and values in all schemas of a request, of its tools and of its answer. OpenAI allows a schema
5,000 properties."""
MAX_SCHEMA_CHARS = 1 << 20
"""Characters in them and in the tools' descriptions: a quarter of a million tokens."""

SCHEMAS = ("tools", "response_format", "text", "output_config")
"""Fields that hold schemas, in all dialects."""
CALLS = ("messages", "input")
"""Fields that hold calls of tools, whose arguments are JSON in a string."""


def check_work(body: Any) -> None:
    """Raises InvalidRequestError that names the field if a body holds too much."""
    if not isinstance(body, dict):
        return
    _check_schemas(body)
    for field in CALLS:
        _check_arguments(field, body.get(field))


def _check_arguments(field: str, turns: Any) -> None:
    """As many as a body may hold, in all of them together."""
    texts = [(where, text.encode("utf-8", "replace")) for where, text in _arguments(turns)]
    if (found := too_many(text for _, text in texts)) is None:
        return
    for where, text in texts:
        if (alone := too_many([text])) is not None:
            param = f"{field}{where}"
            raise InvalidRequestError(f"{param}: It must not be JSON {alone}.", param=param)
    raise InvalidRequestError(
        f"{field}: The arguments of all its calls together are JSON {found}.", param=field
    )


def _check_schemas(body: dict[str, Any]) -> None:
    num_values = num_chars = 0
    for field in SCHEMAS:
        for value in _values_in(body.get(field)):
            num_values += 1
            num_chars += len(value) if isinstance(value, str) else 0
            if num_values > MAX_SCHEMA_VALUES:
                raise _too_large(field, f"{MAX_SCHEMA_VALUES} names and values")
            if num_chars > MAX_SCHEMA_CHARS:
                raise _too_large(field, f"{MAX_SCHEMA_CHARS} characters")


def _too_large(field: str, bound: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{field}: The schemas and descriptions of one request may hold {bound} at most. Send fewer "
        "tools, or simpler ones.",
        param=field,
    )


def _values_in(value: Any) -> Iterator[Any]:
    """Every name and every value in it, itself included."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, dict):
            yield from value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _arguments(turns: Any) -> Iterator[tuple[str, str]]:
    """Place and text of the arguments of all calls: of the messages of a chat, or the items of a
    response."""
    for index, turn in enumerate(turns if isinstance(turns, list) else ()):
        if not isinstance(turn, dict):
            continue
        if isinstance(text := turn.get("arguments"), str):
            yield f"[{index}].arguments", text
        calls = turn.get("tool_calls")
        for number, call in enumerate(calls if isinstance(calls, list) else ()):
            function = call.get("function") if isinstance(call, dict) else None
            text = function.get("arguments") if isinstance(function, dict) else None
            if isinstance(text, str):
                yield f"[{index}].tool_calls[{number}].function.arguments", text
