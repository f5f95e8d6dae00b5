"""Where two values differ: the first place, and the text of each around it.

    where, right, wrong = told_apart(expected, got)
    where == "at ['choices'][0]['delta']", right == "{'content': 'a'}", wrong == "{}"

Short values are shown whole, and `where` is "": everybody sees how 2 differs from 3.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from grader.kit.script import show

SHORT = 48
"""Characters: two values up to this length are told apart at a glance."""
AROUND = 2
"""Neighbours of a differing item that are shown on each side."""
MOST_ENTRIES = 8
"""Differing entries of a mapping that are shown."""
AROUND_TEXT = 16
"""Characters of a string that are shown on each side of the first one that differs."""


def told_apart(expected: Any, got: Any) -> tuple[str, str, str]:
    """(where, expected, got) as texts; the innermost place at which they differ first, with what is
    around it there. where: "" if both are short, or if their kinds differ at the top."""
    if _are_records(expected, got):
        where, right, wrong = _fields_apart(expected, got)
    else:
        where, right, wrong = _told_apart(expected, got)
    if right != wrong and _look_alike(right, wrong):
        right, wrong = _in_code_points(right), _in_code_points(wrong)
    return where, right, wrong


def _look_alike(one: str, other: str) -> bool:
    """Whether a reader may see no difference: an accent that is a character by itself, a wide letter."""
    return unicodedata.normalize("NFKC", one) == unicodedata.normalize("NFKC", other)


def _in_code_points(text: str) -> str:
    """With an escape for each character beyond ASCII."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


def _told_apart(expected: Any, got: Any) -> tuple[str, str, str]:
    right, wrong = show(expected), show(got)
    if len(right) <= SHORT and len(wrong) <= SHORT and right != wrong:
        return "", right, wrong
    path, expected, got = _descend(expected, got)
    right, wrong = _shown(expected, got)
    return f"at {path}" if path else "", right, wrong


def _are_records(expected: Any, got: Any) -> bool:
    """Objects of one dataclass with other fields: their names, as a script has them, tell no
    difference. A request is known by its id."""
    is_object = is_dataclass(expected) and not isinstance(expected, type)
    is_alike = is_object and type(expected) is type(got) and not hasattr(expected, "request_id")
    return is_alike and bool(_differing_fields(expected, got))


def _differing_fields(expected: Any, got: Any) -> list[str]:
    names = [field.name for field in fields(expected)]
    return [name for name in names if _differ(getattr(expected, name), getattr(got, name))]


def _fields_apart(expected: Any, got: Any) -> tuple[str, str, str]:
    """The fields in which two objects of a dataclass differ, each as far as it does."""
    right, wrong = list[str](), list[str]()
    for name in _differing_fields(expected, got):
        where, one, other = _told_apart(getattr(expected, name), getattr(got, name))
        place = f"{name}{where.removeprefix('at ')}"
        right.append(f"{place}={one}")
        wrong.append(f"{place}={other}")
    return "", ", ".join(right), ", ".join(wrong)


def _descend(expected: Any, got: Any, path: str = "") -> tuple[str, Any, Any]:
    """The way to the first difference, and the two values there that differ as a whole: their lengths
    or keys do, or they hold nothing."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        if expected.keys() != got.keys():
            return path, expected, got
        steps = [(key, expected[key], got[key]) for key in expected]
    elif _are_rows(expected, got) and len(expected) == len(got):
        steps = [
            (i, right, wrong) for i, (right, wrong) in enumerate(zip(expected, got, strict=True))
        ]
    else:
        return path, expected, got
    differing = [step for step in steps if _differ(step[1], step[2])]
    if not differing:
        return path, expected, got  # equal in every part, and yet not: the whole is what differs
    if len(differing) > 1 and not any(_is_nested(step[1]) for step in differing):
        return path, expected, got  # several plain items of a row: the row says more
    key, right, wrong = differing[0]
    if not _is_nested(right) and _are_rows(expected, got) and len(expected) > 1:
        return f"{path}[{key!r}]", _Item(expected, key), _Item(got, key)
    return _descend(right, wrong, f"{path}[{key!r}]")


class _Item:
    """An item that is shown with its neighbours."""

    def __init__(self, row: Sequence[Any], index: int) -> None:
        self.row = row
        self.index = index


def _shown(expected: Any, got: Any) -> tuple[str, str]:
    if isinstance(expected, _Item) and isinstance(got, _Item):
        return _around(expected.row, expected.index), _around(got.row, got.index)
    if isinstance(expected, str) and isinstance(got, str):
        both = show(expected), show(got)
        return both if max(map(len, both)) <= SHORT else _text_around(expected, got)
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        return _entries_apart(expected, got)
    if _are_rows(expected, got):
        index = next(
            (i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if _differ(a, b)),
            min(len(expected), len(got)),
        )
        lengths = len(expected) != len(got)
        return _around(expected, index, lengths), _around(got, index, lengths)
    return show(expected), show(got)


def _around(row: Sequence[Any], index: int, tells_length: bool = False) -> str:
    """The item with its neighbours. Its number is said if anything before it is left out."""
    begin, end = max(0, index - AROUND), min(len(row), index + AROUND + 1)
    open_, close = ("(", ")") if isinstance(row, tuple) else ("[", "]")
    items = [show(item) for item in row[begin:end]]
    before, after = ["..."] * (begin > 0), ["..."] * (end < len(row))
    text = open_ + ", ".join([*before, *items, *after]) + close
    if tells_length:
        return f"{text}, {len(row)} items"
    return text if begin == 0 and end == len(row) else f"{text}, {show(row[index])} at [{index}]"


def _text_around(expected: str, got: str) -> tuple[str, str]:
    same = next(
        (i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b),
        min(len(expected), len(got)),
    )
    begin = max(0, same - AROUND_TEXT)

    def piece(text: str) -> str:
        end = same + AROUND_TEXT
        shown = "..." * (begin > 0) + repr(text[begin:end]) + "..." * (end < len(text))
        return f"{shown}, {len(text)} characters" if len(expected) != len(got) else shown

    return piece(expected), piece(got)


def _entries_apart(expected: Mapping[Any, Any], got: Mapping[Any, Any]) -> tuple[str, str]:
    """Of mappings with other keys: the keys that only one of them has. With the same keys: the entries
    that differ."""
    if expected.keys() == got.keys():
        return _values_apart(expected, got)
    missing = {key: expected[key] for key in expected if key not in got}
    extra = {key: got[key] for key in got if key not in expected}
    right = f"... {show(missing)}" if missing else "none of the keys below"
    wrong = f"... {show(extra)}" if extra else "none of the keys above"
    return right, wrong


def _values_apart(expected: Mapping[Any, Any], got: Mapping[Any, Any]) -> tuple[str, str]:
    """Of mappings with the same keys, the entries that differ, at most MOST_ENTRIES of them."""
    differing = [key for key in expected if _differ(expected[key], got[key])]
    if not differing:
        return show(expected), show(got)
    before = "... " if len(differing) < len(expected) else ""
    cut = ", ..." if len(differing) > MOST_ENTRIES else ""
    values = [(show(key), *_shown(expected[key], got[key])) for key in differing[:MOST_ENTRIES]]
    right = ", ".join(f"{key}: {value}" for key, value, _ in values)
    wrong = ", ".join(f"{key}: {value}" for key, _, value in values)
    return f"{before}{{{right}{cut}}}", f"{before}{{{wrong}{cut}}}"


def _are_rows(expected: Any, got: Any) -> bool:
    """Lists or tuples, both."""
    kinds = list | tuple
    return isinstance(expected, kinds) and isinstance(got, kinds) and type(expected) is type(got)


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple)


def _differ(expected: Any, got: Any) -> bool:
    """Of tensors in a list `!=` is a tensor: such values are not looked into."""
    try:
        return bool(expected != got)
    except Exception:  # noqa: BLE001, whatever a learner's object makes of `!=`
        return expected is not got
