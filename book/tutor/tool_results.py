"""What tools answer, and how the tutor passes it on: in one sentence, without another call."""

import json
import random
from typing import Any

from book.tutor import strange
from book.tutor.glossary import load_phrasings
from book.tutor.templates import sample
from book.tutor.tool_names import any_word, styled
from book.tutor.tool_schema import Arguments
from book.tutor.tool_values import value_of

_SHAPES = {
    "scalar": 24, "object": 36, "list": 8, "rows": 7, "nested": 6, "sentence": 9, "done": 4,
    "nothing": 2, "error": 7,
}  # fmt: skip
_KEYS = (
    "temperature price status name total time count state city unit score currency title "
    "result amount wind humidity date size email owner message id rate speed distance level "
    "text value ok eta location balance gate delay author year rating duration sky "
    "success updated_at open stock quantity summary from to line available"
).split()  # fmt: skip
_POOLS = (
    "place",
    "person",
    "topic",
    "item",
    "date",
    "time",
    "code",
    "word",
    "file",
    "firm",
    "title",
)


def result_of(
    rng: random.Random, arguments: Arguments, gives: tuple[str, ...] = ()
) -> tuple[str, str]:
    """What a tool answers to a call, and how it is passed on; `gives`: what it is known to hold."""
    if gives and rng.random() < 0.85:
        return _known(rng, arguments, gives)
    match rng.choices(list(_SHAPES), list(_SHAPES.values()))[0]:
        case "scalar":
            value = _scalar(rng)
            text = json.dumps(value, ensure_ascii=False) if rng.random() < 0.4 else _said(value)
            return text, f"The result is {text}."
        case "object":
            fields = _fields(rng, rng.randint(1, 5), arguments)
            return _json(fields, rng), f"The tool says {_listed(fields)}."
        case "list":
            items = [_scalar(rng) for _ in range(rng.randint(1, 5))]
            return _json(items, rng), f"The tool lists {', '.join(map(_said, items))}."
        case "rows":
            keys = list(_fields(rng, rng.randint(1, 3), {}))
            rows = [{key: _scalar(rng) for key in keys} for _ in range(rng.randint(1, 3))]
            return _json(rows, rng), f"The tool lists {'; '.join(map(_listed, rows))}."
        case "nested":
            inner = _fields(rng, rng.randint(1, 3), {})
            outer = _fields(rng, rng.randint(0, 2), arguments)
            whole = {**outer, any_word(rng) + "_data": inner}
            said = ", ".join(filter(None, (_listed(outer), _listed(inner))))
            return _json(whole, rng), f"The tool says {said}."
        case "sentence":
            text = _sentence(rng)
            return text, f"The tool says: {text.rstrip('.')}."
        case "done":
            text = sample("[ok|OK|done|Done|success|true|saved|accepted|sent|created]", rng)
            return text, f"The result is {text}."
        case "nothing":
            return rng.choice(("[]", "{}", "null", "None", '""')), "The tool returns nothing."
    return _error(rng)


def _known(rng: random.Random, arguments: Arguments, gives: tuple[str, ...]) -> tuple[str, str]:
    """The first of what the tool gives, alone or with more of it, often beside what was asked."""
    values = {
        key: value_of(kind, rng) for key, _, kind in (entry.partition("=") for entry in gives)
    }
    first = next(iter(values.values()))
    if rng.random() < 0.3:
        return _said(first), f"The result is {_said(first)}."
    count = rng.randint(1, len(values))
    asked = {
        key: value
        for key, value in arguments.items()
        if key not in values and not isinstance(value, list) and rng.random() < 0.3
    }
    fields = asked | dict(list(values.items())[:count])
    return _json(fields, rng), f"The tool says {_listed(fields)}."


def _error(rng: random.Random) -> tuple[str, str]:
    why = sample(rng.choice(load_phrasings("tool_results")["errors"]), rng)
    why = why.replace("{w}", any_word(rng)).replace("{n}", str(rng.randint(2, 600)))
    given: Any = rng.choice(
        (
            {"error": why},
            {"error": {"message": why}},
            {"status": "error", "message": why},
            {"ok": False, "error": why},
            f"{rng.choice(('Error', 'error', 'ERROR'))}: {why}",
        )
    )
    text = given if isinstance(given, str) else _json(given, rng)
    return text, f"The tool reports an error: {why}."


def _json(value: Any, rng: random.Random) -> str:
    """As servers write it: on one line, without blanks, or indented."""
    kind = rng.random()
    if kind < 0.12:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return json.dumps(value, ensure_ascii=False, indent=2 if kind < 0.2 else None)


def _listed(fields: dict[str, Any]) -> str:
    return ", ".join(f"{key}: {_said(value)}" for key, value in fields.items())


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _fields(rng: random.Random, count: int, arguments: Arguments) -> dict[str, Any]:
    """Keys and values; some results repeat what was asked."""
    fields: dict[str, Any] = {}
    if arguments and rng.random() < 0.3:
        key = rng.choice(list(arguments))
        if not isinstance(arguments[key], list):
            fields[key] = arguments[key]
    fields |= {_key(rng): _scalar(rng) for _ in range(count)}
    return fields


def _key(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(_KEYS)
    if kind < 0.93:
        return styled("_".join(any_word(rng) for _ in range(rng.randint(1, 2))), rng)
    return strange.invented_word(rng).lower()


def _scalar(rng: random.Random) -> str | int | float | bool:
    kind = rng.random()
    if kind < 0.36:
        return rng.randint(-9 if kind < 0.04 else 0, rng.choice((10, 100, 1000, 100_000)))
    if kind < 0.5:
        return round(rng.random() * rng.choice((1, 10, 100, 1000)), rng.randint(1, 3))
    if kind < 0.56:
        return rng.random() < 0.5
    if kind < 0.66:
        return sample(
            f"{rng.randint(1, 999)}[ km| °C|%| EUR| kg| min| mm| points|°| MB| $| hours]", rng
        )
    return str(value_of(rng.choice(_POOLS), rng))


def _sentence(rng: random.Random) -> str:
    """A sentence, as some tools answer."""
    text = sample(rng.choice(load_phrasings("tool_results")["sentences"]), rng)
    for slot in ("place", "person", "date", "time", "code", "item", "title"):
        text = text.replace(f"{{{slot}}}", str(value_of(slot, rng)))
    return text.replace("{n}", str(rng.randint(2, 900))).replace("{w}", any_word(rng))
