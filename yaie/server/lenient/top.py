"""Brings the fields at the top of a body to the names that its endpoint knows.

In place, on the plain value of a body, before anything validates it. Where two names mean one field, the
endpoint's own counts, and another value under the other name is refused.
"""

from collections.abc import Collection
from typing import Any

from yaie.core.errors import InvalidRequestError
from yaie.server.lenient.beside import SOFT_BUDGET, checked_budget, take_beside
from yaie.server.lenient.fields import (
    BESIDE,
    FIELDS,
    FORMS,
    Beside,
    Dialect,
    Form,
    Idle,
    Ignored,
    Refused,
    Renamed,
)
from yaie.server.lenient.forms import take_form
from yaie.server.lenient.nearness import nearest
from yaie.server.lenient.notes import ignored, put_beside, refuses

Json = dict[str, Any]

CONVERSING = ("chat", "tokenize")
"""Bodies with variables for a chat template."""
GENERATING = ("chat", "text")
"""Bodies of answers that may have a form."""
THINKING, REASONING = ("think", "enable_thinking", "thinking"), "reasoning"
"""Whether the model is to think, in the words of other servers."""
TOUCHED = frozenset({*BESIDE, *FORMS, *THINKING, REASONING, "response_format"})
"""Fields that are taken out or changed, though an endpoint may know them."""
UNLIMITED = (-1, -2)
"""What llama.cpp and Ollama take for no maximum."""
MOST_NEAR = 8
"""Unknown names that are compared with all known ones; each takes half a millisecond."""


def rewritten(body: Json, dialect: Dialect, known: Collection[str]) -> None:
    """Change a body to what its endpoint knows; known: the names of its fields. What is only ignored is
    left in it for `validated.py`, if the server is strict. Raises InvalidRequestError."""
    for name in [name for name, value in body.items() if value is None]:
        del body[name]
    if "options" not in known and isinstance(body.get("options"), dict):
        _unpack(body, body.pop("options"))
    if not body.keys().isdisjoint(BESIDE):
        take_beside(body, dialect)
    has_form = "response_format" in body or not body.keys().isdisjoint(FORMS)
    if has_form and dialect in GENERATING:
        take_form(body, known)
    if dialect in CONVERSING:
        _switch_thinking(body)
    num_compared = 0
    for name in [name for name in body if name not in known]:
        verdict = FIELDS.get(name)
        if verdict is None:
            num_compared += 1
            if num_compared <= MOST_NEAR and (meant := nearest(name, [*known, *FIELDS])):
                raise _refusal(name, f"This parameter is unknown; did you mean {meant}?")
            _ignore(body, name)
        elif isinstance(verdict, Renamed):
            _rename(body, name, verdict, known)
        elif isinstance(verdict, Form):
            raise _refusal(name, "It belongs to POST /v1/chat/completions and /v1/completions.")
        elif isinstance(verdict, Beside):
            if not _is_one_of(body[name], verdict.neutral):
                raise _refusal(name, "It belongs to endpoints that generate text.")
            del body[name]
        elif isinstance(verdict, Refused):
            if not _is_one_of(body[name], verdict.neutral):
                raise _refusal(name, verdict.why)
            del body[name]
        elif isinstance(verdict, Idle):
            del body[name]
        elif isinstance(verdict, Ignored):
            _ignore(body, name)


def _unpack(body: Json, options: Json) -> None:
    """Ollama's `options` hold what stands at the top here."""
    for name, value in options.items():
        if value is not None:
            _put(body, name, value, f"options.{name}")


def _put(body: Json, name: str, value: Any, source: str) -> None:
    if name in body and body[name] != value:
        raise _refusal(source, f"It says otherwise than {name}; give one of them.")
    body[name] = value


def _rename(body: Json, name: str, verdict: Renamed, known: Collection[str]) -> None:
    ours = next((it for it in verdict.names if it in known), None)
    if ours is None:
        raise _refusal(name, "This parameter is unknown or not supported; leave it out.")
    value = body.pop(name)
    if ours.startswith("max_") and _is_one_of(value, UNLIMITED):
        return
    _put(body, ours, value, name)


def _ignore(body: Json, name: str) -> None:
    if not refuses():
        del body[name]
        ignored(name)


def _is_one_of(value: Any, neutral: tuple[Any, ...]) -> bool:
    """1 is not true here, though Python says that they are equal; 1.0 is 1."""
    return any(value == it and isinstance(value, bool) == isinstance(it, bool) for it in neutral)


def _refusal(name: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name}: {why}", param=name)


# --- whether the model is to think, in the words of other servers ---


def _switch_thinking(body: Json) -> None:
    """`think` (Ollama), `enable_thinking` (Qwen's API), `thinking` (Anthropic's, DeepSeek's) and
    `reasoning` (OpenRouter's) set variables of the chat template, as far as those are not given."""
    for name in THINKING:
        if name in body:
            _think(body, name, body.pop(name))
    if REASONING in body:
        _reason(body, body.pop(REASONING))


def _think(body: Json, name: str, value: Any) -> None:
    if isinstance(value, dict):
        if (budget := value.get("budget_tokens")) is not None:
            put_beside(SOFT_BUDGET, checked_budget(f"{name}.budget_tokens", budget))
        value = {"enabled": True, "disabled": False, "adaptive": None}.get(
            str(value.get("type")), value
        )
    if isinstance(value, bool):
        _set_variables(body, name, value)
    elif name == "think" and isinstance(value, str):
        _put(body, "reasoning_effort", value, name)
    elif value is not None:
        raise _refusal(name, "It must be true or false.")


def _reason(body: Json, value: Any) -> None:
    if not isinstance(value, dict):
        raise _refusal("reasoning", 'It must be an object such as {"effort": "low"}.')
    for name, inner in value.items():
        if inner is None:
            continue
        if name == "effort":
            _put(body, "reasoning_effort", inner, "reasoning.effort")
        elif name == "enabled" and isinstance(inner, bool):
            _set_variables(body, "reasoning.enabled", inner)
        elif name == "exclude" and isinstance(inner, bool):
            _put(body, "include_reasoning", not inner, "reasoning.exclude")
        elif name == "max_tokens":
            put_beside(SOFT_BUDGET, checked_budget("reasoning.max_tokens", inner))
        elif name in ("summary", "generate_summary") and not refuses():
            ignored(f"reasoning.{name}")
        else:
            why = "Only effort, max_tokens, enabled and exclude are supported."
            raise _refusal(f"reasoning.{name}", why)


def _set_variables(body: Json, source: str, value: bool) -> None:
    """Templates call it by one of two names, and ignore the other."""
    variables = body.setdefault("chat_template_kwargs", {})
    if isinstance(variables, dict):  # else it is refused as it is
        for name in ("enable_thinking", "thinking"):
            _put(variables, name, value, source)
