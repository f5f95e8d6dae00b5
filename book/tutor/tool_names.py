"""Names of tools and of their arguments, composed so freely that they can only be copied."""

import random
from functools import cache

from book.tutor import strange
from book.tutor.glossary import load_phrasings
from book.tutor.templates import sample


@cache
def words(name: str) -> tuple[str, ...]:
    """A list of words of `tool_parts.toml`."""
    text: str = load_phrasings("tool_parts")["words"][name]
    return tuple(text.split())


@cache
def _single_things() -> tuple[str, ...]:
    return tuple(thing for thing in strange.things() if thing.isalpha() and thing.islower())


def any_word(rng: random.Random) -> str:
    """A word that may be part of a name: of computing, of business, or of anything else."""
    kind = rng.random()
    if kind < 0.6:
        return rng.choice(words("noun"))
    if kind < 0.8:
        return rng.choice(words("adjective"))
    return rng.choice(_single_things())


def styled(name: str, rng: random.Random, camel: float = 0.2) -> str:
    """A name in snake_case as it is, or in another style."""
    kind = rng.random()
    head, *rest = name.split("_")
    if kind < camel:
        return head + "".join(part.capitalize() for part in rest)
    if kind < camel + 0.03:
        return head.capitalize() + "".join(part.capitalize() for part in rest)
    return "".join(name.split("_")) if kind < camel + 0.06 else name


def argument_name(base: str, rng: random.Random, free: bool) -> str:
    """The base as it is, with a word before or behind it, or, if `free`, something else altogether."""
    kind = rng.random()
    name = base
    if kind < 0.13:
        name = f"{any_word(rng)}_{base}"
    elif kind < 0.28:
        name = f"{base}_{rng.choice(words('ending')) if rng.random() < 0.5 else any_word(rng)}"
    elif kind < 0.32:
        name = f"{any_word(rng)}_{base}_{rng.choice(words('ending'))}"
    elif kind < 0.46 and free:
        name = "_".join(any_word(rng) for _ in range(rng.choices((1, 2, 3), (30, 55, 15))[0]))
    elif kind < 0.49 and free:
        name = strange.invented_word(rng).lower()
    elif kind < 0.53 and free and len(base) > 5 and "_" not in base:
        name = base[: rng.randint(3, 4)]
    return styled(name, rng, camel=0.13)


def plain_name(base: str, rng: random.Random) -> str:
    """The base as most people write it: in snake_case, or now and then in another style."""
    return styled(base, rng, camel=0.15) if "_" in base else base


def tool_name(base: str, rng: random.Random) -> str:
    """The base as it is, in another order, style or company."""
    kind = rng.random()
    parts = base.split("_")
    if kind < 0.30 and len(parts) == 2:
        base = f"{parts[1]}_{parts[0]}"
    elif kind < 0.38:
        base = f"{any_word(rng)}_{base}"
    elif kind < 0.46:
        base = f"{base}_{any_word(rng)}"
    elif kind < 0.52:
        base += sample("[_v2|_tool|_api|_fn|2|_now|_service|_by_name|_request|_info|_3]", rng)
    elif kind < 0.56:
        base = f"{strange.invented_word(rng).lower()}_{base}"
    if rng.random() < 0.06:
        return base.replace("_", rng.choice("--."))
    return styled(base, rng)


def invented_name(rng: random.Random) -> str:
    """A tool's name that means nothing: only its description says what it does."""
    first, second = strange.invented_word(rng).lower(), sample("[fn|do|get|v2|op|x|api|run]", rng)
    return rng.choice((f"{first}_{second}", f"{second}_{first}", first))
