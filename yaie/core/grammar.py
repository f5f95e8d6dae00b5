"""Grammars over bytes: what an output kept to a schema may look like. Without recursion, so each is a
regular language. Read bottom up: one byte, parts in a row, one of several, the same again and again."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


# ANCHOR: grammar
@dataclass(frozen=True, slots=True, eq=False)
class OneOf:
    """One byte of a set, which is not empty."""

    values: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class Concat:
    """Its parts in a row. Without parts it is the empty text."""

    parts: tuple["Grammar", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Any one of its options, of which there is at least one."""

    options: tuple["Grammar", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """`item` at least `least` and at most `most` times in a row; None: as often as one likes."""

    item: "Grammar"
    least: int
    most: int | None


Grammar: TypeAlias = OneOf | Concat | Choice | Repeat
"""Nodes are compared by identity, and one node may stand in several places of a grammar."""
# ANCHOR_END: grammar


def text(data: bytes) -> Concat:
    """These bytes and no others."""
    return Concat(tuple(OneOf(frozenset((byte,))) for byte in data))


def between(first: int, last: int) -> OneOf:
    """One byte from `first` to `last`, both included."""
    return OneOf(frozenset(range(first, last + 1)))


def any_of(characters: bytes) -> OneOf:
    """One of these bytes."""
    return OneOf(frozenset(characters))


def concat(*parts: Grammar) -> Concat:
    """The parts in a row."""
    return Concat(parts)


def choice(options: Iterable[Grammar]) -> Grammar:
    """One of these; a single one stands for itself."""
    found = tuple(options)
    return found[0] if len(found) == 1 else Choice(found)


def optional(item: Grammar) -> Repeat:
    """The item or nothing."""
    return Repeat(item, 0, 1)
