"""Words the tutor does not know: real ones from outside the subject, and invented ones."""

import random
from functools import lru_cache

from book.tutor.glossary import load_phrasings

_ONSETS = ("b", "br", "c", "ch", "d", "f", "fl", "g", "gr", "h", "j", "k", "l", "m", "n", "p",
    "pl", "qu", "r", "s", "sk", "st", "str", "sw", "t", "th", "tr", "v", "w", "y", "z", "")  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u", "ea", "oo", "ai", "y")
_CODAS = ("", "", "", "n", "r", "l", "m", "s", "t", "x", "ck", "ng", "nd", "rt", "sh", "p", "b")
_SYLLABLES = (_ONSETS, _VOWELS, _CODAS)


def invented_word(rng: random.Random) -> str:
    """A word that means nothing: the tutor must not explain what it has never heard of."""
    parts = (rng.choice(part) for _ in range(rng.randint(1, 4)) for part in _SYLLABLES)
    word = "".join(parts)
    return word.capitalize() if rng.random() < 0.3 else word


def _words(table: str) -> tuple[str, ...]:
    """The comma-separated words of all lists of a table of `strange.toml`."""
    lists: dict[str, str] = load_phrasings("strange")[table]
    return tuple(word.strip() for text in lists.values() for word in text.split(","))


@lru_cache(maxsize=1)
def things() -> tuple[str, ...]:
    """Nouns that take an article."""
    return _words("things")


def _written(actions: bool) -> tuple[str, ...]:
    """The things of `off_subject.toml`, verb phrases or nouns; its last group is whole prompts."""
    groups = load_phrasings("off_subject")["group"][:-1]
    chosen = (g for g in groups if g["templates"][0].startswith("[How do I|") == actions)
    return tuple(thing for group in chosen for thing in group["things"])


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """Nouns that take none, or have theirs already."""
    return _words("names") + _written(actions=False)


@lru_cache(maxsize=1)
def verbs() -> tuple[str, ...]:
    """Verb phrases that may follow "how do I"."""
    return _words("verbs") + _written(actions=True)


@lru_cache(maxsize=1)
def quoted() -> tuple[str, ...]:
    """Words and sentences one may want translated or spelled."""
    text: str = load_phrasings("strange")["wholes"]["quoted"]
    return tuple(word.strip() for word in text.split(","))


def unknown_noun(rng: random.Random, article: bool = True) -> str:
    """A thing, a name or an invented word; things and inventions often with an article."""
    kind = rng.random()
    if kind < 0.40:
        noun = rng.choice(things())
    elif kind < 0.83:
        return rng.choice(names())
    else:
        noun = invented_word(rng)
        if rng.random() < 0.3:
            noun += f" {rng.choice((invented_word(rng), rng.choice(things())))}"
    first = rng.choices(("", "a", "the", "my"), (45, 37, 13, 5))[0] if article else ""
    if first == "a" and noun[0].lower() in "aeiou":
        first = "an"
    return f"{first} {noun}".strip()
