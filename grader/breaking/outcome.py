"""What an attack came to: plain JSON, which crosses from one process to another and can be kept.

What is returned is a number, a text, bytes, None, a tensor, or lists, tuples, sets and dicts of these.
A list and a tuple are the same. Floats are equal within the rounding of their dtype: another right
design may add in another order.
"""

import json
import math
import sys
from collections.abc import Iterable
from enum import Enum
from typing import Any

MOST_NUMBERS = 20_000
"""Values in one outcome; a script that tells two versions apart needs few."""
MOST_SHOWN = 200
"""Characters of a value in a report."""
ROUNDING = {
    "bfloat16": (1.6e-2, 1e-3),
    "float16": (2e-3, 1e-4),
    "float32": (1e-4, 1e-5),
    "float64": (1e-4, 1e-5),
}
"""By dtype: relative and absolute. A Python float may come out of a float32 tensor."""
Outcome = dict[str, Any]
"""{"value": ...}, {"raised": name of the class, "says": message}, {"died": a sentence}, or
{"cannot": a sentence} for a value that has no plain form."""


class CannotCompareError(Exception):
    """A value that has no plain form. The message is a sentence."""


def returned(value: Any) -> Outcome:
    try:
        return {"value": _Plain().of(value)}
    except CannotCompareError as error:
        return {"cannot": str(error)}


def raised(error: BaseException) -> Outcome:
    try:
        says = str(error)[:300]
    except Exception:  # noqa: BLE001, the part may have made its own
        says = ""
    return {"raised": type(error).__name__, "says": says}


def died(sentence: str) -> Outcome:
    return {"died": sentence}


class _Plain:
    """Counts as it goes: an endless nest ends."""

    def __init__(self) -> None:
        self._left = MOST_NUMBERS

    def of(self, value: Any) -> Any:
        self._spend(1)
        match value:
            case Enum():
                return {"enum": value.name}
            case None | bool() | int() | str():
                return value
            case float():
                return {"float": "float64", "numbers": [value]}
            case bytes() | bytearray():
                self._spend(len(value))
                return {"bytes": bytes(value).hex()}
            case list() | tuple():
                return {"list": [self.of(item) for item in value]}
            case set() | frozenset():
                return {"set": sorted((self.of(item) for item in value), key=json.dumps)}
            case dict():
                pairs = [[self.of(key), self.of(item)] for key, item in value.items()]
                return {"dict": sorted(pairs, key=lambda pair: json.dumps(pair[0]))}
        return self._numbers(value)

    def _numbers(self, value: Any) -> Any:
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and isinstance(value, torch.Tensor):
            self._spend(value.numel())
            dtype = str(value.dtype).removeprefix("torch.")
            flat = value.detach().cpu().reshape(-1)
            numbers = (flat.double() if flat.is_floating_point() else flat).tolist()
            return {"tensor": dtype, "shape": list(value.shape), "numbers": numbers}
        if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
            self._spend(value.size)
            numbers = numpy.asarray(value).reshape(-1).tolist()
            return {"tensor": str(value.dtype), "shape": list(value.shape), "numbers": numbers}
        raise CannotCompareError(
            f"It returns an object of {type(value).__name__}, which cannot be compared: return numbers, "
            "texts, tensors, or lists and dicts of these."
        )

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise CannotCompareError(
                f"It returns more than {MOST_NUMBERS:,} values: return those that matter."
            )


def same(one: Any, other: Any) -> bool:
    """Whether two outcomes, or two plain values of them, are the same."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if not isinstance(one, dict):
        return bool(one == other)
    if one.keys() != other.keys():
        return False
    if ends := one.keys() & {"raised", "died", "cannot"}:
        return "raised" not in ends or bool(one["raised"] == other["raised"])
    if "numbers" not in one:
        return all(same(one[key], other[key]) for key in one)
    kind = str(one.get("tensor", one.get("float")))
    if any(one[key] != other[key] for key in one if key != "numbers"):
        return False
    relative, absolute = ROUNDING.get(kind, (0.0, 0.0))
    return all(_close(a, b, relative, absolute) for a, b in _pairs(one, other))


def _pairs(one: dict[str, Any], other: dict[str, Any]) -> Iterable[tuple[Any, Any]]:
    return zip(one["numbers"], other["numbers"], strict=True)


def _close(one: Any, other: Any, relative: float, absolute: float) -> bool:
    if one == other or (one != one and other != other):
        return True
    if not isinstance(one, float) or not isinstance(other, float):
        return False
    return math.isclose(one, other, rel_tol=relative, abs_tol=absolute)


def apart(one: Outcome, other: Outcome) -> tuple[str, str, str]:
    """Two outcomes that differ, in a few words: of lists of one length the first items that differ, and
    in which place of the result these are, "" for the whole."""
    place, left, right = "", one.get("value"), other.get("value")
    while isinstance(left, dict) and isinstance(right, dict) and "list" in left and "list" in right:
        pairs = list(zip(left["list"], right["list"], strict=False))
        differing = [index for index, pair in enumerate(pairs) if not same(*pair)]
        if len(left["list"]) != len(right["list"]) or not differing:
            break
        place += f"[{differing[0]}]"
        left, right = pairs[differing[0]]
    if not place:
        return shown(one), shown(other), ""
    return _cut(_text(left), MOST_SHOWN), _cut(_text(right), MOST_SHOWN), f" in place {place}"


def shown(outcome: Outcome, width: int = MOST_SHOWN) -> str:
    """In a few words, for a report."""
    if "died" in outcome:
        return str(outcome["died"])
    if "cannot" in outcome:
        return str(outcome["cannot"])
    if "raised" in outcome:
        says = f": {outcome['says']}" if outcome["says"] else ""
        return _cut(f"{outcome['raised']}{says}", width)
    return _cut(_text(outcome["value"]), width)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _text(value: Any) -> str:
    if not isinstance(value, dict):
        return repr(value)
    if "tensor" in value:
        return f"{value['tensor']}{value['shape']} {_numbers(value['numbers'])}"
    if "float" in value:
        return f"{value['numbers'][0]:g}"
    if "bytes" in value:
        return repr(bytes.fromhex(value["bytes"]))
    if "enum" in value:
        return str(value["enum"])
    if "dict" in value:
        return "{" + ", ".join(f"{_text(k)}: {_text(v)}" for k, v in value["dict"]) + "}"
    if "set" in value:
        return "{" + ", ".join(map(_text, value["set"])) + "}"
    return "[" + ", ".join(map(_text, value["list"])) + "]"


def _numbers(numbers: list[Any]) -> str:
    return (
        "["
        + ", ".join(f"{n:.6g}" if isinstance(n, float) else str(n) for n in numbers[:40])
        + (", …]" if len(numbers) > 40 else "]")
    )
