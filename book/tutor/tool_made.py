"""Tools composed of parts: a verb and a thing with some arguments, or the lookup of one fact."""

import random
import re
from functools import lru_cache
from typing import Any

from book.tutor.glossary import load_phrasings
from book.tutor.templates import expand, sample
from book.tutor.tool_names import any_word, argument_name, tool_name
from book.tutor.tool_schema import Argument, Tool
from book.tutor.tool_values import type_of

QUESTIONS = 4
"""Templates of questions that a composed tool gets."""
COMPOSED = "do "
"""How the sort of a tool begins that does something with a thing; the thing's name ends it."""
_ORDERS = (
    "{do}", "{do}", "{do}, please", "Please {do}", "Can you {do}?", "Could you {do}?",
    "I want you to {do}", "I'd like you to {do}", "Would you please {do}?", "I need you to {do}",
    "Let's {do}", "You should {do}", "It's time to {do}", "Will you {do} for me?", "I have to {do}",
    "Help me to {do}", "I'd like to {do}", "Go ahead and {do}", "Be so kind and {do}", "Now {do}",
)  # fmt: skip
_WISHES = (
    "I want {o} {done}", "{o} should be {done}", "{o} has to be {done}", "I'd like to have {o} {done}",
    "{o} must be {done}", "I need {o} {done}", "{o} needs to be {done}", "Can {o} be {done}?",
    "It would be good if {o} was {done}", "We need to have {o} {done}", "Get {o} {done}",
)  # fmt: skip


def _parts() -> dict[str, Any]:
    return load_phrasings("tool_parts")


def plural(noun: str) -> str:
    """The plural as most nouns form it."""
    if re.search(r"(s|x|z|ch|sh)$", noun):
        return noun + "es"
    return noun[:-1] + "ies" if re.search(r"[^aeiou]y$", noun) else noun + "s"


@lru_cache(maxsize=1)
def _things() -> tuple[str, ...]:
    return tuple(word for text in _parts()["things"].values() for word in text.split())


def a_thing(rng: random.Random) -> str:
    """A noun that may be in a name, of one word or two."""
    noun = rng.choice(_things()) if rng.random() < 0.85 else any_word(rng)
    return f"{rng.choice(_things())}_{noun}" if rng.random() < 0.12 else noun


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def _phrase(part: dict[str, Any], index: int, rng: random.Random) -> str:
    """How the argument of that index stands in a question; a boolean's value is only implied."""
    if part["kind"] == "bool":
        yes = rng.random() < 0.5
        said = rng.choice(part["yes" if yes else "no"])
        return f"{said}{{{index}={'true' if yes else 'false'}}}"
    return str(rng.choice(part["said"])).replace("{v}", f"{{{index}}}")


def _question(verb: dict[str, Any], noun: str, parts: list[Any], rng: random.Random) -> str:
    """A template with all required arguments and some of the others, in any order."""
    chosen = [(p, i) for i, (p, optional) in enumerate(parts) if not optional or rng.random() < 0.5]
    rng.shuffle(chosen)
    names = [_phrase(part, index, rng) for part, index in chosen if part.get("self")]
    rest = [_phrase(part, index, rng) for part, index in chosen if not part.get("self")]
    new = verb.get("new", False)
    if names:
        head = rng.choice(("the ", "", "my ", "our ", "")) if not new else f"{_article(noun)} "
    else:
        head = rng.choice(("the ", "my ", "our ", "this ", "")) if not new else f"{_article(noun)} "
    front = ""
    if rest and rng.random() < 0.12 and "=" not in rest[0]:
        front = rest.pop(0)
    behind = " ".join(["", *names, *rest])
    behind = re.sub(r" (and|but|saying) ", r", \1 ", behind) if rng.random() < 0.3 else behind
    thing = f"{head}{noun}{behind}"
    kind = rng.random()
    if kind < 0.55 or (kind < 0.8 and (verb.get("bare") or new)):
        order = f"{sample(verb['do'], rng)} {plural(noun) + behind if verb.get('bare') else thing}"
        text = rng.choice(_ORDERS)
        text = text.replace("{do}", order if text.startswith("{do}") else _low(order))
    elif kind < 0.8:
        text = rng.choice(_WISHES).replace("{done}", sample(verb["done"], rng))
        text = text.replace("{o}", thing)
    elif kind < 0.94:
        said: str = rng.choice(verb["say"])
        text = said.replace("{o}", thing).replace("{p}", behind)
        text = text.replace("{ns}", plural(noun)).replace("{n}", noun)
        text = text if behind in text else text + behind
    else:
        word = sample(verb["done" if rng.random() < 0.2 else "do"], rng).lower().rstrip(":")
        text = rng.choice((f"{noun}{behind}: {word}", f"{word} {noun}{behind}"))
    if not front:
        return text
    return f"{front}{rng.choice((': ', ', ', ' - '))}{text}" if kind < 0.5 else f"{text} {front}"


def _low(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _arguments(noun: str, count: int, rng: random.Random) -> list[tuple[Any, bool]]:
    """So many parts, at most one of which tells things apart, and whether each is optional."""
    table = load_phrasings("tool_arguments")["arg"]
    pool = [p for p in table if p.get("self")] if rng.random() < 0.6 else []
    chosen = [rng.choice(pool)] if pool and count else []
    seen = {part["kind"] for part in chosen}
    while len(chosen) < count:
        part = rng.choice(table)
        if part["kind"] not in seen and not part.get("self"):
            chosen.append(part)
            seen.add(part["kind"])
    rng.shuffle(chosen)
    return [(part, rng.random() < (0.1 if part.get("self") else 0.35)) for part in chosen]


def as_schema_wants(kind: str, rng: random.Random, whole: bool = False) -> str:
    """The kind, one number in six as a string; an enum in any order and, unless `whole`, in part."""
    head, _, rest = kind.partition(":")
    if head in ("int", "number") and rng.random() < 0.16:
        return f"text {kind}"
    if head == "int" and rng.random() < 0.06:
        return f"whole:{rest}"
    if head == "enum":
        entries = rest.split("|")
        count = len(entries) if whole else rng.randint(2, len(entries))
        return "enum:" + "|".join(_written_as(rng.sample(entries, count), rng))
    return kind


def _written_as(entries: list[str], rng: random.Random) -> list[str]:
    """An enum's entries, their values in capitals now and then, though people say them as ever."""
    style = rng.choices((str, str.upper, str.capitalize), (80, 12, 8))[0]
    rows = [entry.partition("=") for entry in entries]
    return [f"{style(value)}={said or value}" for value, _, said in rows]


def composed(rng: random.Random, noun: str = "", avoid: frozenset[str] = frozenset()) -> Tool:
    """A tool for a verb and a thing; `noun`: the thing; `avoid`: sorts that it must not be of."""
    noun = noun or a_thing(rng)
    verbs = _parts()["verb"]
    while (sort := f"{COMPOSED}{(verb := rng.choice(verbs))['name']} {noun}") in avoid:
        pass
    parts = _arguments(noun, rng.choices((0, 1, 2, 3, 4), (24, 30, 25, 14, 7))[0], rng)
    parts = [({**part, "kind": as_schema_wants(part["kind"], rng)}, opt) for part, opt in parts]
    asks = tuple(_question(verb, noun.replace("_", " "), parts, rng) for _ in range(QUESTIONS))
    named = sample(verb["name"], rng)
    plain = plural(noun) if verb.get("bare") or (not parts and rng.random() < 0.3) else noun
    name = f"{plain}_{named}" if rng.random() < 0.35 else f"{named}_{plain}"
    about = sample(verb["do"], rng).rstrip(":")
    words = plain.replace("_", " ")
    if plain == noun:
        words = rng.choice((f"{_article(words)} {words}", f"the {words}", f"one {words}"))
    return Tool(
        tool_name(name, rng) if rng.random() < 0.5 else name,
        f"{about} {words}" + rng.choice(("", "", "", ".", " of the user", " in the system")),
        named_arguments([(p["names"], p["kind"], opt) for p, opt in parts], rng),
        asks,
        sort,
    )


def named_arguments(
    rows: list[tuple[str, str, bool]], rng: random.Random, touched: bool = True
) -> tuple[Argument, ...]:
    """Arguments of (template of names, kind, whether optional), each with a name of its own.

    `touched`: not only the expected names, but such with other words, or in their place.
    """
    types = [type_of(kind) for _, kind, _ in rows]
    arguments: list[Argument] = []
    for names, kind, optional in rows:
        # Only a name that says nothing must leave no doubt about which value is its own.
        free = types.count(type_of(kind)) == 1 and kind != "bool"
        name = argument_name(sample(names, rng), rng, free) if touched else sample(names, rng)
        while name in {argument.name for argument in arguments}:
            name = argument_name(sample(names, rng), rng, free=False)
        arguments.append(Argument(name, kind, optional))
    return tuple(arguments)


def lookup(rng: random.Random) -> Tool:
    """A tool that looks up one fact about one thing."""
    table = load_phrasings("tool_lookups")
    fact, kind, own, sort = rng.choice(table["rows"])
    names = sample(table["kinds"][kind], rng)
    known = next(expand(table["kinds"][kind]))
    asks = tuple(sample(text, rng).replace("{f}", fact) for text in rng.sample(table["ask"], 4))
    about = sample(rng.choice(table["about"]), rng).replace("{f}", fact)
    verb = sample(table["verbs"], rng)
    name = "_".join(filter(None, (verb, fact.lower().replace(" ", "_"))))
    return Tool(
        tool_name(name, rng),
        re.sub(r"\ba (?=[aeiou])", "an ", about.replace("{k}", known.replace("_", " "))),
        named_arguments([(names, kind, False)], rng),
        asks + tuple(own.split("|")),
        sort,
    )
