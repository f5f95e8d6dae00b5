"""Yes-or-no questions composed from relations, such as "down | paging | wasted memory".

A relation is a row "family | part | part ..." of `knowledge/relations_*.toml`. Its family says what is
so and which parts there are; `phrasings/relations.toml` has the ways to ask, as pairs (`polar.py`).
The words that decide between yes and no are the family's, so they are the same for every subject: a
model that meets "lower" and "raise" beside three hundred subjects can learn what they mean, which it
cannot from rows that each have words of their own.

    up, down | x | +q    x raises or lowers q; + or - says whether more of it is welcome
    same | x | q         x leaves q as it is
    slower, faster, same_speed | x | y
    need, need_not | x | y
    can, cannot | x | v  v is a verb with its objects, as in "share a block"
    may, may_not | v     what a person may or may not do
    wise, unwise | v
    before | a | b
    more | a | b | v | q     a does v more q than b: "more | a chat | a word | take | memory"
    over | a | b | j | k     a is j and not k compared with b: "over | HBM | RAM | faster | slower"
    is, in | x | j | k       x is j (lies in j) and not k
    who | j | k | v          j does v, and k does not

A part may have alternatives, "a|b"; one that begins with * is plural.
"""

import re
from functools import cache

from book.tutor.glossary import load_phrasings
from book.tutor.polar import Pair, parse_pair

PARTS = {
    "down": "xq", "up": "xq", "same": "xq", "slower": "xy", "faster": "xy", "same_speed": "xy",
    "need": "xy", "need_not": "xy", "can": "xv", "cannot": "xv", "may": "v", "may_not": "v",
    "wise": "v", "unwise": "v", "before": "ab", "more": "abvq", "over": "abjk", "is": "xjk",
    "in": "xjk", "who": "jkv",
}  # fmt: skip
"""The parts of each family, in order."""
_MIRRORED = {"up": "down", "faster": "slower"}
"""Families that are asked as their opposites are, with the sides exchanged."""
_SIDES = re.compile(r"<([^<>]*) // ([^<>]*)>")


def _alternatives(part: str) -> str:
    """In the notation of `templates.py`."""
    return f"[{part}]" if "|" in part else part


def _mirrored(row: str) -> str:
    return _SIDES.sub(lambda match: f"<{match.group(2)} // {match.group(1)}>", row)


def _filled(row: str, parts: dict[str, str], plural: bool) -> str:
    verbs = ("do", "are", "Do", "Are") if plural else ("does", "is", "Does", "Is")
    slots = parts | dict(zip(("does", "is", "Does", "Is"), verbs, strict=True))
    # A side already lists its alternatives by bars, and brackets do not nest.
    row = _SIDES.sub(lambda match: match.group().replace("|", "\0"), row)
    for name, text in slots.items():
        row = row.replace(f"{{{name}}}", text)
    return row


def _rows(family: str, quantity: str) -> list[str]:
    """The rows of the family, and what they are called in `phrasings/relations.toml`."""
    phrasings = load_phrasings("relations")
    asked = _MIRRORED.get(family, family)
    rows = [_mirrored(row) if asked != family else row for row in phrasings[asked]["rows"]]
    if quantity[:1] in "+-" and quantity:
        welcome = quantity[0] == "+"
        judged = phrasings["good"]["rows"] + (phrasings["gain"]["rows"] if welcome else [])
        is_good = welcome == (family == "up")
        rows += [row if is_good else _mirrored(row) for row in judged]
    return rows


@cache
def parse_relation(row: str) -> tuple[Pair, ...]:
    """Every way to ask for the relation; ValueError if the family or its parts are wrong."""
    family, *texts = (part.strip() for part in row.split(" | "))
    if family not in PARTS or len(texts) != len(PARTS[family]):
        raise ValueError(f"{row!r} is no relation: see the families of relations.py")
    quantity = texts[1] if family in ("up", "down") else ""
    if quantity[:1] in "+-" and quantity:
        texts[1] = quantity[1:]
    plural = texts[0].startswith("*")
    choices = [text.lstrip("*").split("|") for text in texts]
    pairs: dict[Pair, None] = {}
    # Alternatives take turns, so that each is met in some of the ways to ask.
    templates = _rows(family, quantity)
    for turn in range(max(map(len, choices))):
        parts = {
            name: options[turn % len(options)]
            for name, options in zip(PARTS[family], choices, strict=True)
        }
        for template in templates:
            pairs[parse_pair(_filled(template, parts, plural).replace("\0", "|"))] = None
    return tuple(pairs)
