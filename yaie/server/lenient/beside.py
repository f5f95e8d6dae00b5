"""Fields that are honoured though OpenAI's API has none of them: taken out of a body, noted beside it.

Most of them are fields of SamplingParams, which the service sets before a request is queued; the others
say how its answer is written.
"""

import re
from collections.abc import Callable
from typing import Any

from yaie.core.errors import InvalidRequestError
from yaie.core.params_lists import MAX_BAD_WORDS, MAX_SALT_CHARS, MAX_STOP_CHARS
from yaie.core.ranges import RANGES
from yaie.server.lenient.fields import BESIDE, Dialect
from yaie.server.lenient.forms import checked_json
from yaie.server.lenient.notes import put_beside

Json = dict[str, Any]

MAX_ID_CHARS = 128
ID_PATTERN = rf"[A-Za-z0-9._:/+=@-]{{1,{MAX_ID_CHARS}}}"
_ID = re.compile(ID_PATTERN)
NO_LIMIT = -1
SOFT_BUDGET = "thinking.budget_tokens"
"""Noted under this name: a limit that means nothing where a model does not think."""


def take_beside(body: Json, dialect: Dialect) -> None:
    """Take them out, and note those that ask for something. Raises InvalidRequestError."""
    for name, checked in CHECKS.items():
        if name in body and dialect in BESIDE[name]:
            value = checked(name, checked_json(name, body.pop(name)))
            if value is not None:
                put_beside(name, value)


def _words(name: str, value: Any) -> Any:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(it, str) and it.strip() for it in value):
        raise _refusal(name, "It must be a list of strings, none of them blank.")
    if len(value) > MAX_BAD_WORDS:
        raise _refusal(name, f"It may list at most {MAX_BAD_WORDS} strings, not {len(value)}.")
    if (longest := max(map(len, value), default=0)) > MAX_STOP_CHARS:
        raise _refusal(name, f"A string may have {MAX_STOP_CHARS} characters; one has {longest}.")
    return tuple(value) or None


def _flag(name: str, value: Any) -> Any:
    if not isinstance(value, bool):
        raise _refusal(name, "It must be true or false.")
    return value


def checked_budget(name: str, value: Any) -> Any:
    """A number of tokens to think, or None for no limit. Raises InvalidRequestError."""
    limits = RANGES["thinking_token_budget"]
    if type(value) is not int or not limits.holds(value):
        raise _refusal(name, f"It {limits.complaint(value)}.")
    return None if value == NO_LIMIT else value


def _salt(name: str, value: Any) -> Any:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_SALT_CHARS:
        raise _refusal(name, f"It must be a string of 1 to {MAX_SALT_CHARS} characters.")
    return value


def _id(name: str, value: Any) -> Any:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise _refusal(
            name,
            f"It must be a string of 1 to {MAX_ID_CHARS} letters, digits and characters of ._:/+=@-.",
        )
    return value


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "bad_words": _words,
    "include_stop_str_in_output": _flag,
    "skip_special_tokens": _flag,
    "thinking_token_budget": checked_budget,
    "return_tokens_as_token_ids": _flag,
    "request_id": _id,
    "cache_salt": _salt,
}
"""The value of each, or None for one that asks for nothing."""


def _refusal(name: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name}: {why}", param=name)
