"""The notation in which the phrasings are written: "What [is|are] {t}" stands for two questions.

`[a|b|]` is one of the alternatives, the last one here being empty. Brackets do not nest. `{name}`
is left for the caller to replace.
"""

import itertools
import random
import re
from collections.abc import Iterator
from functools import cache

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")


@cache
def parse(template: str) -> tuple[tuple[str, ...], ...]:
    """The template as a row of parts, each a tuple of alternatives; plain text has just one."""
    parts: list[tuple[str, ...]] = []
    end = 0
    for match in _BRACKETS.finditer(template):
        parts.append((template[end : match.start()],))
        parts.append(tuple(match.group(1).split("|")))
        end = match.end()
    parts.append((template[end:],))
    return tuple(parts)


def tidy(text: str) -> str:
    """Remove the doubled and dangling blanks that empty alternatives leave behind."""
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r" ([,.:;?!])", r"\1", text)


def sample(template: str, rng: random.Random) -> str:
    """One expansion of the template, every alternative being equally likely."""
    return tidy("".join(rng.choice(alternatives) for alternatives in parse(template)))


def expand(template: str) -> Iterator[str]:
    """All expansions of the template."""
    for choice in itertools.product(*parse(template)):
        yield tidy("".join(choice))


def normalise(question: str) -> str:
    """Lower case without punctuation: two questions with one normal form count as the same."""
    kept = re.sub(r"[^a-z0-9{} ]", " ", question.lower())
    return " ".join(kept.split())
