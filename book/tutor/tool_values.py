"""Random values of tools' arguments: the tutor must copy what a person typed, whatever it is."""

import random
import string
from collections.abc import Callable
from functools import cache

from book.tutor import strange
from book.tutor.glossary import load_phrasings
from book.tutor.off_subject import HELD_OUT_NUMBERS
from book.tutor.templates import sample

Scalar = str | int | float | bool
Value = Scalar | list[Scalar]

NUMBER_WORDS = "one two three four five six seven eight nine ten eleven twelve".split()
AS_WORD = 0.07
"""Share of small integers that a person writes as a word."""


@cache
def pool(name: str) -> tuple[str, ...]:
    """A list of `tool_pools.toml` or `tool_pools_plain.toml`."""
    pools = load_phrasings("tool_pools")["pools"] | load_phrasings("tool_pools_plain")["pools"]
    text: str = pools[name]
    return tuple(text.split("|"))


def _invented(rng: random.Random) -> str:
    return strange.invented_word(rng).capitalize()


def _thing(rng: random.Random) -> str:
    return str(rng.choice(strange.things()))


def _number(low: int, high: int, rng: random.Random) -> int:
    """Any but the held-out ones; small ones are as likely as large ones."""
    digits = rng.randint(len(str(low)), len(str(high)))
    low, high = max(low, 10 ** (digits - 1) if digits > 1 else 0), min(high, 10**digits - 1)
    while (number := rng.randint(low, high)) in HELD_OUT_NUMBERS:
        pass
    return number


def _decimal(low: int, high: int, rng: random.Random) -> int | float:
    """A number with up to four decimals; one in four is whole."""
    if rng.random() < 0.25:
        return rng.randint(low, high)
    number = round(rng.uniform(low, high), rng.choice((1, 1, 2, 2, 2, 3, 4)))
    return number if number != int(number) else int(number)


def _letters(rng: random.Random, low: int, high: int, alphabet: str) -> str:
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(low, high)))


def _digits(rng: random.Random, low: int = 3, high: int = 12) -> str:
    """Digits of which some begin with zero: only a string holds them."""
    return _letters(rng, low, high, string.digits)


def _place(rng: random.Random) -> str:
    if rng.random() < 0.55:
        return rng.choice(pool("place"))
    head = "New |San |Port |Upper |Saint |Lake |North |Bad ".split("|")
    tail = rng.choice(("", "", "", "", "ville", "burg", " Beach", "ton", " Falls"))
    return (rng.choice(head) if rng.random() < 0.15 else "") + _invented(rng) + tail


def _person(rng: random.Random) -> str:
    first = rng.choice(pool("first")) if rng.random() < 0.7 else _invented(rng)
    kind = rng.random()
    if kind < 0.45:
        return first
    last = rng.choice(pool("last")) if rng.random() < 0.5 else _invented(rng)
    head = rng.choice(("Dr. ", "Mrs. ", "Mr. ", "Dr ")) if kind > 0.94 else ""
    return f"{head}{last}" if head else f"{first} {last}"


def _title(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.3:
        return " ".join(_invented(rng) for _ in range(rng.randint(1, 3)))
    if kind < 0.45:
        return (
            rng.choice(("Team", "Project", "Lunch with", "Call with", "The")) + " " + _person(rng)
        )
    words = _thing(rng) if kind < 0.75 else rng.choice(pool("topic"))
    return words.title()


def _quote(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(pool("quote"))
    if kind < 0.7:
        return rng.choice(strange.quoted())
    return " ".join(_thing(rng) for _ in range(rng.randint(1, 3)))


def _topic(rng: random.Random) -> str:
    return rng.choice(pool("topic")) if rng.random() < 0.5 else _thing(rng)


def _expression(rng: random.Random) -> str:
    top = rng.choice((10, 100, 1000, 10_000))
    parts = [str(_number(1, top, rng))]
    for _ in range(rng.choices((1, 2, 3), (75, 18, 7))[0]):
        parts += [rng.choice("+-*/*+"), str(_number(1, top, rng))]
    if len(parts) == 5 and rng.random() < 0.4:
        parts[0], parts[2] = f"({parts[0]}", f"{parts[2]})"
    text = rng.choices((" ", ""), (75, 25))[0].join(parts)
    return (
        text if rng.random() < 0.85 else sample(f"[sqrt|log|sin|abs]({parts[0].strip('(')})", rng)
    )


def _sum(rng: random.Random) -> str:
    """A sum as people say it: 17 * 23, 12% of 80, 4 plus 9, the square root of 81."""
    kind = rng.random()
    if kind < 0.4:
        return _expression(rng)
    first, second = (_number(1, rng.choice((20, 100, 100, 1000)), rng) for _ in range(2))
    if kind < 0.6:
        return sample(f"{first}[% of | percent of |% of ]{second}", rng)
    if kind < 0.7:
        return sample(f"[sqrt({first})|the square root of {first}|{first} squared|{first}^2]", rng)
    return sample(
        f"{first} [plus|minus|times|divided by|x|/|*|+|-|over|multiplied by] {second}", rng
    )


def _path(rng: random.Random, file: bool = False) -> str:
    parts = [
        rng.choice("home usr etc opt srv tmp data src docs lib photos mnt work models".split())
        if rng.random() < 0.6 else strange.invented_word(rng).lower()
        for _ in range(rng.randint(1, 3))
    ]  # fmt: skip
    path = rng.choice(("/", "/", "", "~/", "./")) + "/".join(parts)
    if not file:
        return path
    return f"{path}.{rng.choice('txt md py toml json csv log yaml c png pdf mp3 sh'.split())}"


def _code(rng: random.Random) -> str:
    """What orders, seats and spare parts are called: AB-1234, 7F3K, #998, ORD_2024_17."""
    capitals = string.ascii_uppercase
    kind = rng.random()
    if kind < 0.55:
        head = rng.choice(("", "A", "ORD-", "#", "PO-", "INV_", _letters(rng, 1, 3, capitals)))
        return head + _digits(rng, 3, 8)
    if kind < 0.8:
        return f"{_letters(rng, 2, 4, capitals)}-{_digits(rng, 2, 5)}"
    if kind < 0.9:
        return _letters(rng, 4, 8, capitals + string.digits)
    return "-".join(_digits(rng, 2, 4) for _ in range(rng.randint(2, 3)))


def _date(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.4:
        return f"20{rng.randint(23, 32)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    day, month = rng.randint(1, 28), rng.choice(pool("month"))
    if kind < 0.6:
        return rng.choice((f"{day} {month}", f"{month} {day}", f"{day}.{rng.randint(1, 12)}.2026"))
    weekday = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday tomorrow today".split()
    head = rng.choice(("", "", "", "next "))
    chosen = rng.choice(weekday)
    return head + chosen if chosen[0].isupper() else chosen


def _time(rng: random.Random) -> str:
    hour, minute = rng.randint(0, 23), rng.choice((0, 15, 30, 45, rng.randint(0, 59)))
    kind = rng.random()
    if kind < 0.25:
        return f"{rng.randint(1, 12)}{rng.choice((' ', ''))}{rng.choice(('am', 'pm'))}"
    if kind < 0.32:
        return rng.choice(("noon", "midnight", "6 o'clock", "half past nine"))
    return f"{hour:02}:{minute:02}" if kind < 0.85 else f"{hour}:{minute:02}"


def _host(rng: random.Random) -> str:
    head = rng.choice(("gpu", "node", "web", "db", strange.invented_word(rng).lower()))
    return f"{head}-{rng.randint(1, 99)}"


def _domain(rng: random.Random) -> str:
    return (
        f"{strange.invented_word(rng).lower()}.{rng.choice('com org de io net co.uk ai'.split())}"
    )


def _email(rng: random.Random) -> str:
    tail = rng.choice(("", "", str(rng.randint(1, 99)), "." + strange.invented_word(rng).lower()))
    return f"{rng.choice(pool('first')).lower()}{tail}@{_domain(rng)}"


def _phone(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return f"+{rng.randint(1, 99)} {_digits(rng, 2, 3)} {_digits(rng, 5, 7)}"
    return rng.choice((f"555-{_digits(rng, 4, 4)}", f"0{_digits(rng, 8, 10)}"))


def _venue(rng: random.Random) -> str:
    name = rng.choice(pool("first")) if rng.random() < 0.5 else _invented(rng)
    return name + rng.choice(("'s", "'s Diner", " Grill", "", " Cafe", " Palace"))


def _firm(rng: random.Random) -> str:
    if rng.random() < 0.4:
        return rng.choice(pool("firm"))
    return _invented(rng) + rng.choice(("", " Ltd", " Inc", " & Sons", " Labs", " GmbH"))


def _url(rng: random.Random) -> str:
    return f"https://{_domain(rng)}/{rng.choice(('', 'news', 'docs', 'a/b', 'index.html'))}"


def _address(rng: random.Random) -> str:
    street = rng.choice(pool("street")) if rng.random() < 0.6 else f"{_invented(rng)} Street"
    return f"{rng.randint(1, 250)} {street}"


def _or(plain: str, kind: str, share: float) -> Callable[[random.Random], str]:
    """Draws from the pool of that name, or, in the given share, any value of the kind."""
    return lambda rng: _KINDS[kind](rng) if rng.random() < share else rng.choice(pool(plain))


_KINDS: dict[str, Callable[[random.Random], str]] = {
    "city": _or("city", "place", 0.3),
    "zone": lambda rng: rng.choice(pool("city" if rng.random() < 0.6 else "zone")),
    "subject": _or("subject", "topic", 0.3),
    "newsy": _or("newsy", "topic", 0.25),
    "occasion": _or("occasion", "title", 0.2),
    "phrase": _or("phrase", "quote", 0.3),
    "share": _or("share", "ticker", 0.35),
    "clock": _or("clock", "time", 0.35),
    "document": _or("document", "file", 0.4),
    "sum": _sum,
    "place": _place,
    "person": _person,
    "title": _title,
    "quote": _quote,
    "topic": _topic,
    "expression": _expression,
    "path": _path,
    "file": lambda rng: _path(rng, file=True),
    "code": _code,
    "digits": _digits,
    "zip": lambda rng: _digits(rng, 4, 5),
    "date": _date,
    "time": _time,
    "host": _host,
    "domain": _domain,
    "ip": lambda rng: ".".join(str(rng.randint(1, 254)) for _ in range(4)),
    "email": _email,
    "phone": _phone,
    "venue": _venue,
    "firm": _firm,
    "url": _url,
    "address": _address,
    "hash": lambda rng: _letters(rng, 7, 10, "0123456789abcdef"),
    "ticker": lambda rng: _letters(rng, 2, 5, string.ascii_uppercase),
    "airport": lambda rng: _letters(rng, 3, 3, string.ascii_uppercase),
    "flight": lambda rng: (
        _letters(rng, 2, 2, string.ascii_uppercase) + rng.choice(("", " ")) + _digits(rng, 2, 4)
    ),
    "country": lambda rng: rng.choice(pool("country")) if rng.random() < 0.6 else _invented(rng),
    "item": _thing,
    "word": lambda rng: strange.invented_word(rng).lower() if rng.random() < 0.6 else _thing(rng),
    "version": lambda rng: ".".join(str(rng.randint(0, 20)) for _ in range(rng.randint(2, 3))),
}  # fmt: skip


def spoken_values(kind: str) -> dict[str, tuple[str, ...]]:
    """An enum's values, and how people say each: "enum:small=little,tiny|large"; "large" as it is."""
    values: dict[str, tuple[str, ...]] = {}
    for entry in kind.partition(":")[2].split("|"):
        value, _, said = entry.partition("=")
        values[value] = tuple(said.split(",")) if said else (value,)
    return values


def value_of(kind: str, rng: random.Random) -> Value:
    """A value of the kind: a pool's name, "int:low-high", "number:low-high",
    "whole:low-high" (a number without decimals), "bool", "enum:a|b", "list:kind".

    A kind with "text " before it is a number that the schema wants as a string.
    """
    head, _, rest = kind.partition(":")
    if kind.startswith("text "):
        return str(value_of(kind[5:], rng))
    if head in ("int", "whole", "number"):
        low, high = (int(bound) for bound in rest.split("-"))
        return (_decimal if head == "number" else _number)(low, high, rng)
    if head == "enum":
        return rng.choice(list(spoken_values(kind)))
    if head == "bool":
        return rng.random() < 0.5
    if head == "list":
        count = rng.choices((1, 2, 3, 4), (8, 42, 36, 14))[0]
        values = [value_of(rest, rng) for _ in range(count)]
        return [value for value in values if not isinstance(value, list)]
    return _KINDS[head](rng) if head in _KINDS else rng.choice(pool(head))


def said_as(value: Value, kind: str, rng: random.Random) -> str:
    """How a person writes the value in a question."""
    if isinstance(value, list):
        words = [str(item) for item in value]
        last = rng.choice((" and ", " and ", ", "))
        return last.join(filter(None, (", ".join(words[:-1]), words[-1])))
    if kind.startswith("enum:") and isinstance(value, str):
        return rng.choice(spoken_values(kind)[value])
    if kind.startswith("int:") and isinstance(value, int) and rng.random() < AS_WORD:
        return NUMBER_WORDS[value - 1] if 2 <= value <= 12 else str(value)
    return str(value)


def type_of(kind: str) -> str:
    """The type of the kind as the chat template lists it."""
    head, _, rest = kind.partition(":")
    if head == "enum":
        return "|".join(spoken_values(kind))
    if head == "list":
        return f"{type_of(rest)}[]"
    return {"int": "integer", "number": "number", "whole": "number", "bool": "boolean"}.get(
        head, "string"
    )
