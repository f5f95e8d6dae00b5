"""The JSON files of a model's folder: read in one place, with one sentence for each that is no use."""

import json
from pathlib import Path
from typing import Any

from yaie.core.errors import ModelError
from yaie.models.lookalikes import refuse_pointer

DEEPEST = 64
"""Levels of lists and objects. Configurations have about five; what copies them afterwards recurses."""
LONGEST_SHOWN = 40
"""Characters of a bad value that a message shows."""

LONGEST_NUMBER = 1000
"""Digits. Python reads 4,300, and nothing that a model is made of has a hundred."""

Json = dict[str, Any]
_TOO_LONG = object()


def read_json(path: Path) -> Json:
    """The object in a JSON file of a model. Raises ModelError, which names the file, and the field where
    there is one."""
    refuse_pointer(path)
    try:
        values = json.loads(path.read_bytes().decode("utf-8"), parse_int=_whole_number)
    except RecursionError:
        raise _bad(path, "is nested too deeply to be read") from None
    except (OSError, ValueError) as error:  # of JSON and of UTF-8
        raise _bad(path, f"is no JSON in UTF-8 ({error})") from None
    if not isinstance(values, dict):
        raise _bad(path, "is not a JSON object")
    for field, value in values.items():
        _check_value(path, field, value)
    return values


def bad_field(path: Path, field: str, value: Any, wanted: str) -> ModelError:
    """The error for a field that holds something else than what is wanted of it."""
    return ModelError(
        f"{path}: {field} is {shown(value)}, and must be {wanted}. Correct it, or fetch the model again."
    )


def shown(value: Any) -> str:
    """A value as JSON, cut short, in characters that any terminal can print."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):  # of a number with thousands of digits, too
        text = f"a {type(value).__name__}"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _whole_number(digits: str) -> Any:
    return int(digits) if len(digits) <= LONGEST_NUMBER else _TOO_LONG


def _bad(path: Path, what: str) -> ModelError:
    return ModelError(f"{path} {what}. Repair it, or fetch the model again.")


def _check_value(path: Path, field: str, value: Any) -> None:
    """Raise ModelError for what the code behind this cannot walk or print."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ModelError(
                f"{path}: {shown(field)} is nested more than {DEEPEST} levels deep. Repair it, or fetch "
                "the model again."
            )
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += [*one.keys(), *one.values()]
            elif isinstance(one, list):
                inner += one
            elif one is _TOO_LONG:
                most = f"a number of at most {LONGEST_NUMBER} digits"
                raise bad_field(path, field, "a longer number", most)
            elif isinstance(one, str) and not _is_whole(one):
                raise bad_field(path, shown(field).strip('"'), one, "text without half characters")
        level = inner


def _is_whole(text: str) -> bool:
    """Whether it is Unicode, without half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
