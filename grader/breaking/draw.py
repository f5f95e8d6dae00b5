"""Which ten known mistakes of a lab a round asks about: the same ones for every learner."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grader.selfcheck.variants import KnownWrong, VariantError, known_wrong
from yaie.core.compat import tomllib
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import Lab

POOLS = Path(__file__).with_name("versions.toml")
LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True, slots=True)
class Version:
    """A wrong version of the reference. letter: what it is called until it is caught."""

    letter: str
    wrong: KnownWrong


def draw(lab: Lab, number: int) -> tuple[Version, ...]:
    """The ten of a round, counted from 1. No mistake is in two rounds. Raises ConfigError for a round
    that the lab does not have."""
    pool, rounds = usable(lab), num_rounds(lab)
    if not 1 <= number <= rounds:
        raise ConfigError(
            f"lab {lab.key} has {rounds} rounds of {len(LETTERS)} versions; there is no round {number}",
            param="round",
        )
    order = list(pool)
    random.Random(lab.key).shuffle(order)
    taken = order[(number - 1) * len(LETTERS) :]
    return tuple(Version(letter, wrong) for letter, wrong in zip(LETTERS, taken, strict=False))


def num_rounds(lab: Lab) -> int:
    return len(usable(lab)) // len(LETTERS)


@cache
def usable(lab: Lab) -> tuple[KnownWrong, ...]:
    """The known mistakes that can be told by what calls return, in the order of their names.

    Raises VariantError if one of them is not there any more.
    """
    return tuple(_named(lab, tomllib.loads(POOLS.read_text("utf-8")).get(lab.key, ())))


def _named(lab: Lab, names: list[str]) -> Iterator[KnownWrong]:
    known = {wrong.name: wrong for wrong in known_wrong(lab)}
    for name in sorted(names):
        if name not in known:
            raise VariantError(
                f"breaking/versions.toml: known_wrong/{lab.key} holds no {name}.toml"
            )
        yield known[name]
