"""Made-up terms that look like the field's own, such as "adaptive glyph folding".

A tutor that knows its terms by their look would explain these. None has a known term in it, since a
stray word beside a known one must not change an answer.
"""

import random
from functools import cache

from book.tutor import strange
from book.tutor.glossary import load_knowledge, load_phrasings
from book.tutor.templates import sample

FLAG_WORDS = (
    "limit",
    "mode",
    "ratio",
    "depth",
    "file",
    "level",
    "interval",
    "target",
    "size",
    "policy",
)


@cache
def _parts(name: str) -> tuple[str, ...]:
    """The comma-separated words of that list of `jargon.toml`."""
    text: str = load_phrasings("jargon")["parts"][name]
    return tuple(word.strip() for word in text.split(","))


@cache
def _known() -> tuple[frozenset[str], frozenset[str]]:
    """Every name and alias of a term in lower case, and those that are one word."""
    terms = load_knowledge().terms
    names = frozenset(name.lower() for term in terms for name in (term.name, *term.aliases))
    return names, frozenset(name for name in names if name.isalnum())


def is_free(noun: str) -> bool:
    """Whether no known term is in it."""
    names, words = _known()
    lower = noun.lower()
    said = set(lower.replace("-", " ").split())
    plurals = {word.removesuffix("s") for word in said}
    return not (said | plurals) & words and not any(
        f" {name} " in f" {lower} " for name in names if " " in name
    )


def coined(rng: random.Random) -> str:
    """One such term, without an article."""
    while not is_free(noun := _coin(rng)):
        pass
    return noun


def _coin(rng: random.Random) -> str:
    kind = rng.random()
    quality, thing, act = (rng.choice(_parts(name)) for name in ("qualities", "things", "acts"))
    if kind < 0.24:
        return f"{quality} {thing} {act}"
    if kind < 0.44:
        return f"{quality} {act}"
    if kind < 0.56:
        return (
            f"{thing}-{rng.choice(('aware', 'free', 'wise', 'parallel', 'major', 'guided'))} {act}"
        )
    if kind < 0.68:
        return f"the {thing} {rng.choice(_parts('devices'))}"
    if kind < 0.78:
        name = thing.capitalize() + rng.choice(_parts("endings"))
        return f"{name} {rng.choice(('2', 'v3', 'Lite', 'Turbo'))}" if rng.random() < 0.2 else name
    if kind < 0.86:
        return "".join(rng.choice("BCDFGHJKLMNPQRSTVWXZ") for _ in range(rng.randint(3, 5)))
    if kind < 0.92:
        return f"--{strange.invented_word(rng).lower()}-{rng.choice(FLAG_WORDS)}"
    return f"{strange.invented_word(rng)} {act}"


def ask_jargon(rng: random.Random, template: str) -> str:
    """A question about coined terms: from the template of an on-subject one, or a whole of its own."""
    if rng.random() < 0.45:
        template = rng.choice(load_phrasings("jargon")["wholes"]["templates"])
    text = sample(template, rng)
    for slot in ("{t}", "{a}", "{b}", "{x}", "{y}"):
        text = text.replace(slot, coined(rng))
    return text
