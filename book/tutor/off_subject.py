"""Prompts to be refused, in the widest variety: the tutor must know what it does not know.

Half of them wear the clothes of the subject: a training template, or a whole question whose terms
are exchanged for a noun from elsewhere. So no sentence shape is safe, and only a known term is.
"""

import random
import re
from functools import lru_cache

from book.tutor import strange
from book.tutor.glossary import load_knowledge, load_phrasings
from book.tutor.jargon import ask_jargon
from book.tutor.questions import as_typed, slip
from book.tutor.templates import sample

_KINDS = {
    "written": 20,
    "borrowed": 27,
    "wide": 36,
    "exchanged": 5,
    "sum": 8,
    "salad": 4,
    "jargon": 20,
}
_BORROWED = {
    "define": 6, "explain": 3, "short": 1, "why": 5, "how": 4, "define_how": 1, "example": 2,
    "simple": 2, "contrast": 2, "where": 1, "follow_define": 2, "follow_contrast": 1,
}  # fmt: skip
HELD_OUT_NUMBERS = frozenset((87, 144))
"""Numbers of held-out prompts: no refused sum uses them."""


def ask_off_subject(rng: random.Random, kinds: tuple[str, ...] = ()) -> str:
    """A prompt to be refused, of one of the kinds, or of any."""
    weights = {kind: _KINDS[kind] for kind in kinds} or _KINDS
    kind = rng.choices(list(weights), list(weights.values()))[0]
    text = {
        "written": _written,
        "borrowed": _borrowed,
        "wide": _wide,
        "exchanged": _exchanged,
        "sum": _sum,
        "salad": _salad,
        "jargon": _jargon,
    }[kind](rng)
    if kind in ("borrowed", "wide", "jargon") and rng.random() < 0.08:
        text = slip(text, rng)
    return as_typed(text, rng)


def _written(rng: random.Random) -> str:
    group = rng.choice(load_phrasings("off_subject")["group"])
    template = sample(rng.choice(group["templates"]), rng)
    return template.replace("{x}", rng.choice(group["things"]))


def _on_subject(rng: random.Random) -> str:
    """A template for questions on known terms."""
    intent = rng.choices(list(_BORROWED), list(_BORROWED.values()))[0]
    return str(rng.choice(load_phrasings("train")[intent]["templates"]))


def _jargon(rng: random.Random) -> str:
    return ask_jargon(rng, _on_subject(rng))


def _borrowed(rng: random.Random) -> str:
    """An on-subject template around unknown nouns."""
    text = sample(_on_subject(rng), rng)
    for slot in ("{t}", "{a}", "{b}"):
        text = text.replace(slot, strange.unknown_noun(rng))
    return text


def _wide(rng: random.Random) -> str:
    text = sample(rng.choice(load_phrasings("strange")["wholes"]["templates"]), rng)
    text = text.replace("{v}", rng.choice(strange.verbs()))
    quotes = rng.choice(("'{}'", '"{}"', "{}"))
    text = text.replace("{q}", quotes.format(rng.choice(strange.quoted())))
    for slot in ("{x}", "{y}"):
        text = text.replace(slot, strange.unknown_noun(rng))
    return text


@lru_cache(maxsize=1)
def _known() -> re.Pattern[str]:
    """Finds a name or alias of a term, as whole words, the longest first."""
    surfaces = [s for term in load_knowledge().terms for s in (term.name, *term.aliases)]
    ordered = sorted(surfaces, key=len, reverse=True)
    return re.compile(rf"(?<!\w)({'|'.join(map(re.escape, ordered))})(?!\w)", re.IGNORECASE)


def _exchanged(rng: random.Random) -> str:
    """A whole question, all its terms exchanged for one thing from elsewhere."""
    text = ""
    while not _known().search(text):
        text = sample(rng.choice(rng.choice(load_knowledge().faqs).ask), rng)
    noun = strange.unknown_noun(rng, article=False)
    return _known().sub(lambda _: noun, text)


def _number(rng: random.Random) -> str:
    top = rng.choice((10, 20, 100, 1000, 100_000))
    while (number := rng.randint(0, top)) in HELD_OUT_NUMBERS:
        pass
    return f"{number}.{rng.randint(1, 9)}" if rng.random() < 0.06 else str(number)


def _sum(rng: random.Random) -> str:
    """Plain arithmetic: the only sums the tutor does are those about the KV cache."""
    text = sample(rng.choice(load_phrasings("strange")["sums"]["templates"]), rng)
    for slot in ("{a}", "{b}", "{c}"):
        text = text.replace(slot, _number(rng))
    return text


def _salad(rng: random.Random) -> str:
    """A few unknown words in a row, or keys hit at random."""
    if rng.random() < 0.3:
        letters = "asdfghjklqwertyuiopzxcvbnm"
        return "".join(rng.choice(letters) for _ in range(rng.randint(3, 14)))
    pools = (strange.things(), strange.names(), strange.quoted())
    words = [
        strange.invented_word(rng) if rng.random() < 0.4 else rng.choice(rng.choice(pools))
        for _ in range(rng.randint(1, 4))
    ]
    return " ".join(words)
