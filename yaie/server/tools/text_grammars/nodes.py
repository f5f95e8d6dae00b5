"""What a grammar of texts is made of: characters, and what joins them.

`Series`, `Choice` and `Repeat` make up regular expressions as well as rules. The leaves of a regular
expression are `Chars`. Those of a rule are `Terminal` and `Symbol`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Union

from yaie.engine.input.grammars.schema_limits import MOST_CHARS


class UnenforceableError(ValueError):
    """Why a grammar of texts cannot be enforced, in words for its author."""


TOO_LARGE = "It comes to too much; use fewer rules and shorter ones."
MOST_DEPTH = 64
"""Of brackets in a grammar or a regular expression."""
CONTROLS = frozenset(map(chr, range(32)))
PROBED = CONTROLS | {'"', "\\", "<"}
"""Each set of characters tells which of these belong to it: those that JSON escapes, and the one that
begins a tag."""

Node = Union["Chars", "Series", "Choice", "Repeat", "Terminal", "Symbol"]
"""`size` is about the number of its leaves. `is_nullable` tells whether the empty text belongs to it, if
it is of a regular expression."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set.

    source: the set as a class in Rust's syntax of regular expressions. held: those of PROBED that belong
    to it. is_folded: upper and lower case are the same.
    """

    source: str
    held: frozenset[str]
    is_folded: bool = False

    @property
    def size(self) -> int:
        return 1

    @property
    def is_nullable(self) -> bool:
        return False


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One after the other; of none, the empty text."""

    parts: tuple[Node, ...]
    size: int
    is_nullable: bool


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One of two or more."""

    parts: tuple[Node, ...]
    size: int
    is_nullable: bool


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """From `least` to `most` times. most: at least 1; None for any number."""

    inner: Node
    least: int
    most: int | None
    size: int
    is_nullable: bool


@dataclass(frozen=True, slots=True, eq=False)
class Terminal:
    """A text of a regular expression, which the lexer takes for one lexeme."""

    regex: Node
    size: int = 1
    is_nullable: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """A text of the rule or terminal that has this name."""

    name: str
    size: int = 1
    is_nullable: bool = False


EMPTY = Series((), 1, True)


def series(*parts: Node) -> Node:
    """Raises UnenforceableError if it is too large, as `choice` and `repeat` do."""
    flat: list[Node] = []
    for part in parts:
        flat += part.parts if isinstance(part, Series) else (part,)
    if len(flat) == 1:
        return flat[0]
    return Series(tuple(flat), _size(*flat), all(it.is_nullable for it in flat)) if flat else EMPTY


def choice(*parts: Node) -> Node:
    if len(parts) == 1:
        return parts[0]
    return Choice(parts, _size(*parts), any(it.is_nullable for it in parts))


def repeat(inner: Node, least: int, most: int | None) -> Node:
    if most == 0 or inner is EMPTY:
        return EMPTY
    if (least, most) == (1, 1):
        return inner
    return Repeat(inner, least, most, _size(inner), least == 0 or inner.is_nullable)


def terminal(regex: Node) -> Node:
    return EMPTY if regex is EMPTY else Terminal(regex)


def _size(*nodes: Node) -> int:
    # Terminals are put in wherever they are named, so each line of a grammar may double it.
    size = 1 + sum(node.size for node in nodes)
    if size > MOST_CHARS:
        raise UnenforceableError(TOO_LARGE)
    return size


def firsts(regex: Node, is_wanted: Callable[[Chars], bool]) -> Iterator[tuple[Chars, Node]]:
    """The texts of a regular expression by their first character: what it may be, and what follows it.
    is_wanted: picks the sets of first characters that matter."""
    if isinstance(regex, Chars):
        if is_wanted(regex):
            yield regex, EMPTY
    elif isinstance(regex, Choice):
        for part in regex.parts:
            yield from firsts(part, is_wanted)
    elif isinstance(regex, Repeat):
        most = None if regex.most is None else regex.most - 1
        for first, after in firsts(regex.inner, is_wanted):
            yield first, series(after, repeat(regex.inner, max(0, regex.least - 1), most))
    elif isinstance(regex, Series):
        for index, part in enumerate(regex.parts):
            for first, after in firsts(part, is_wanted):
                yield first, series(after, *regex.parts[index + 1 :])
            if not part.is_nullable:
                break


def chars_in(node: Node) -> set[Chars]:
    """All sets of characters in it."""
    found, seen, waiting = set[Chars](), set[int](), [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Chars):
            found.add(one)
        elif id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, Series | Choice):
                waiting += one.parts
            elif isinstance(one, Repeat):
                waiting.append(one.inner)
            elif isinstance(one, Terminal):
                waiting.append(one.regex)
    return found
