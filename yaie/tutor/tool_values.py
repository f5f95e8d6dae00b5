"""Random values of tools' arguments: the tutor must copy what a person typed, whatever it is."""

import random
import string

from yaie.tutor import strange
from yaie.tutor.off_subject import HELD_OUT_NUMBERS
from yaie.tutor.templates import sample

_CURRENCIES = (
    "GBP JPY CHF CAD AUD SEK NOK DKK PLN CZK INR CNY BRL MXN EUR USD TRY ZAR KRW THB"
).split()  # fmt: skip
_LANGUAGES = (
    "German Spanish Italian Dutch Polish Greek Turkish Russian Japanese Korean Zulu Welsh "
    "Hindi Arabic Finnish French Danish Czech Latin Hebrew Thai Urdu Basque"
).split()  # fmt: skip
_ROOMS = (
    "kitchen,bathroom,hall,office,garage,attic,cellar,garden,living room,nursery,library,studio,"
    "lobby,guest room,front,back,workshop,dining room,bedroom,corridor,balcony,pantry"
).split(",")  # fmt: skip
_UNITS = (
    "metres feet inches miles kilometres grams pounds ounces litres gallons yards acres celsius "
    "kelvin cups stones hours seconds"
).split()  # fmt: skip
_FIRST = (
    "Anna Tom Maria Ben Lucy Omar Priya Chen Sofia Lars Ingrid Pablo Yuki Kofi Elena Ravi Nadia "
    "Hugo Mia Jonas Fatima Igor Clara Diego Amir"
).split()  # fmt: skip
_COUNTRIES = (
    "Norway Chile Kenya Japan Canada Greece Vietnam Poland Ghana Iceland Brazil Nepal Ireland "
    "Laos Morocco Austria Jordan Fiji Cuba Estonia Malta Mali Oman Italy Hungary Bolivia Finland"
).split()  # fmt: skip
_PLACES = (
    "Paris Berlin Rome Madrid Boston Chicago Delhi Tokyo Cairo Prague Zurich Munich Hamburg "
    "Leeds Bergen Osaka Lima Quito Dallas Denver Geneva Porto Naples Toronto Sydney Perth Hanoi "
    "Lagos Accra Havana Athens Sofia Riga Tunis Doha Brno Ghent Turin Austin Seattle London "
    "Moscow"
).split()  # fmt: skip
_WORDS = (
    "see you at noon|I will be late|the train has left|happy birthday|where is the station|"
    "thank you very much|the meeting is over|call me back|dinner is ready|all tests pass|"
    "good night|how are you|one coffee please|the door is open|we won the game|bring the keys|"
    "please wait here|it was a nice day|the cat sleeps"
).split("|")  # fmt: skip
_TOPICS = (
    "chunked prefill|FlashAttention|quantization|the radix tree|memory bandwidth|tax law|roses|"
    "solar panels|block tables|speculative decoding|the moon|bank conflicts|electric cars|"
    "scheduler policies|chess|CUDA graphs|wine|football|error codes|installing Triton|holidays|"
    "refunds|data races|vaccines|KV cache size"
).split("|")  # fmt: skip
_COMMANDS = (
    "ls -la|git status|df -h|make grade|pip list|nvidia-smi|select * from users|uptime|whoami|"
    "top|print(1 + 1)|docker ps|cat notes.txt|yaie doctor|make check|echo hello|"
    "select count(*) from orders"
).split("|")  # fmt: skip


def _invented(rng: random.Random) -> str:
    return strange.invented_word(rng).capitalize()


def _number(low: int, high: int, rng: random.Random) -> int:
    """Any but the held-out ones."""
    while (number := rng.randint(low, high)) in HELD_OUT_NUMBERS:
        pass
    return number


def _letters(rng: random.Random, low: int, high: int, alphabet: str) -> str:
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(low, high)))


def _place(rng: random.Random) -> str:
    if rng.random() < 0.55:
        return rng.choice(_PLACES)
    head = rng.choice(("New ", "San ", "Port ", "Upper ")) if rng.random() < 0.15 else ""
    return head + _invented(rng)


def _person(rng: random.Random) -> str:
    first = rng.choice(_FIRST) if rng.random() < 0.7 else _invented(rng)
    return f"{first} {_invented(rng)}" if rng.random() < 0.4 else first


def _title(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.4:
        return " ".join(_invented(rng) for _ in range(rng.randint(1, 3)))
    return str(rng.choice(strange.things())).title() if kind < 0.7 else rng.choice(_TOPICS).title()


def _quote(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return rng.choice(_WORDS)
    return " ".join(rng.choice(strange.things()) for _ in range(rng.randint(1, 3)))


def _topic(rng: random.Random) -> str:
    return rng.choice(_TOPICS) if rng.random() < 0.6 else str(rng.choice(strange.things()))


def _expression(rng: random.Random) -> str:
    top = rng.choice((10, 100, 1000, 10_000))
    parts = [str(_number(1, top, rng))]
    for _ in range(rng.choices((1, 2), (85, 15))[0]):
        parts += [rng.choice("+-*/*+"), str(_number(1, top, rng))]
    return rng.choices((" ", ""), (80, 20))[0].join(parts)


def _path(rng: random.Random, file: bool = False) -> str:
    parts = [
        rng.choice("home usr etc opt srv tmp data src docs lib photos mnt work models".split())
        if rng.random() < 0.6 else strange.invented_word(rng).lower()
        for _ in range(rng.randint(1, 3))
    ]  # fmt: skip
    path = rng.choice(("/", "/", "", "~/", "./")) + "/".join(parts)
    if not file:
        return path
    return f"{path}.{rng.choice('txt md py toml json csv log yaml c'.split())}"


def _code(rng: random.Random) -> str:
    digits = _letters(rng, 3, 8, string.digits)
    head = rng.choice(("", "", "", "A", "ORD-", "#", _letters(rng, 2, 3, string.ascii_uppercase)))
    return head + digits


def _date(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return f"20{rng.randint(23, 32)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    return rng.choice(
        "Monday Tuesday Wednesday Thursday Friday Saturday Sunday tomorrow today".split()
    )


def _time(rng: random.Random) -> str:
    hour, minute = rng.randint(0, 23), rng.choice((0, 15, 30, 45, rng.randint(0, 59)))
    if rng.random() < 0.2:
        return f"{rng.randint(1, 12)} {rng.choice(('am', 'pm'))}"
    return f"{hour:02}:{minute:02}"


def _host(rng: random.Random) -> str:
    head = rng.choice(("gpu", "node", "web", "db", strange.invented_word(rng).lower()))
    return f"{head}-{rng.randint(1, 99)}"


def _domain(rng: random.Random) -> str:
    return f"{strange.invented_word(rng).lower()}.{rng.choice(('com', 'org', 'de', 'io'))}"


def _email(rng: random.Random) -> str:
    return f"{rng.choice(_FIRST).lower()}@{_domain(rng)}"


def _venue(rng: random.Random) -> str:
    name = rng.choice(_FIRST) if rng.random() < 0.5 else _invented(rng)
    return name + rng.choice(("'s", "'s Diner", " Grill", "", " Cafe"))


def _url(rng: random.Random) -> str:
    return f"https://{_domain(rng)}/{rng.choice(('', 'news', 'docs', 'a/b'))}"


_KINDS = {
    "place": _place,
    "person": _person,
    "title": _title,
    "quote": _quote,
    "topic": _topic,
    "expression": _expression,
    "path": _path,
    "file": lambda rng: _path(rng, file=True),
    "code": _code,
    "date": _date,
    "time": _time,
    "host": _host,
    "email": _email,
    "venue": _venue,
    "url": _url,
    "ticker": lambda rng: _letters(rng, 2, 5, string.ascii_uppercase),
    "currency": lambda rng: rng.choice(_CURRENCIES),
    "language": lambda rng: rng.choice(_LANGUAGES),
    "country": lambda rng: rng.choice(_COUNTRIES) if rng.random() < 0.6 else _invented(rng),
    "room": lambda rng: rng.choice(_ROOMS),
    "unit": lambda rng: rng.choice(_UNITS),
    "item": lambda rng: str(rng.choice(strange.things())),
    "word": lambda rng: strange.invented_word(rng).lower(),
    "command": lambda rng: rng.choice(_COMMANDS),
}


def value_of(kind: str, rng: random.Random) -> str | int | bool:
    """A value of the kind: a pool's name, "int:low-high", "bool" or "enum:a|b"."""
    head, _, rest = kind.partition(":")
    if head == "int":
        low, high = (int(bound) for bound in rest.split("-"))
        return _number(low, high, rng)
    if head == "enum":
        return rng.choice(rest.split("|"))
    if head == "bool":
        return rng.random() < 0.5
    return _KINDS[head](rng)


def type_of(kind: str) -> str:
    """The type of the kind as the chat template lists it."""
    head, _, rest = kind.partition(":")
    return {"int": "integer", "bool": "boolean", "enum": rest}.get(head, "string")


def invented_name(rng: random.Random) -> str:
    """A tool's name that means nothing: only its description says what it does."""
    first, second = strange.invented_word(rng).lower(), sample("[fn|do|get|v2|op|x|api|run]", rng)
    return rng.choice((f"{first}_{second}", f"{second}_{first}", first))
