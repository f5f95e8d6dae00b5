r"""A grammar of texts as one of the same texts inside a JSON string.

A character is written as `json.dumps(text, ensure_ascii=False)` writes it, so each text has one form.

That alone is not enough. The lexer ends a lexeme at the first byte that cannot continue it, and never
goes back:

    the grammar    /.*/ "\n"                              a line, and the newline after it
    in JSON        /([^"\\]|\\["\\])*/ "\\n"
    a text         say \"hi\"\n

Two of these backslashes continue the first lexeme, and the third one begins the second lexeme. Only the
byte after a backslash tells them apart. So each lexeme has variants. Some also take the beginning of the
next character, others leave out what the lexeme before them has taken of their own first one. Here /.*/
may end with a backslash, and "\n" may be an `n`. The lexer takes the longest, and rules join the
variants that fit.

The part of the next character that a lexeme has taken is called a seam here: nothing, a backslash, or
more of an escape.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from yaie.engine.input.grammars.schema_limits import MOST_CHARS
from yaie.server.tools.text_grammars.nodes import (
    CONTROLS,
    EMPTY,
    TOO_LARGE,
    Chars,
    Choice,
    Node,
    Repeat,
    Series,
    Symbol,
    Terminal,
    UnenforceableError,
    chars_in,
    firsts,
    repeat,
    series,
)
from yaie.server.tools.text_grammars.regexes import escaped
from yaie.server.tools.text_grammars.written import (
    check_levels,
    joined,
    plain_chars,
    regex_text,
)

ESCAPES = {char: json.dumps(char)[1:-1] for char in CONTROLS | {'"', "\\"}}
PLAIN = r'[^"\\\x00-\x1f]'
_BRANCHES = ("\\", "\\u00", "\\u000", "\\u001")
"""Beginnings of escapes that continue in more than one way."""
MOST_VARIANTS = 1 << 14

Parts = tuple[str, ...]
"""An alternative of a rule: names of rules and terminals."""


def json_rules(rules: Mapping[str, Node], start: str, name: str) -> str:
    """Lark with a rule of that name, for what stands between the quotation marks.

    rules: of the texts, by name; `start` is the first. Raises UnenforceableError if that is too large,
    or no text belongs to it.
    """
    variants = _Variants(rules, name)
    variants.make(Symbol(start))
    return joined(variants.lines())


@lru_cache(1024)
def json_chars(chars: Chars) -> str:
    """A set of characters, each as it is written in JSON."""
    written = {ESCAPES[char] for char in chars.held & ESCAPES.keys()}
    if not written:
        return plain_chars(chars)
    if len(written) == 1 and chars.source in map(escaped, chars.held):
        return f"(?:{_one_of(written)})"
    plain = f"[{chars.source}&&{PLAIN}]"
    return f"(?:{f'(?i:{plain})' if chars.is_folded else plain}|{_one_of(written)})"


def _one_of(texts: Iterable[str]) -> str:
    """A regular expression for some texts, none of which is the beginning of another."""
    behind: dict[str, list[str]] = {}
    for text in sorted(texts):
        behind.setdefault(text[0], []).append(text[1:])
    alone = "".join(escaped(first) for first, rests in behind.items() if rests == [""])
    found = [f"[{alone}]"] if alone else []
    found += (escaped(it) + _one_of(rests) for it, rests in behind.items() if rests != [""])
    return found[0] if len(found) == 1 else f"(?:{'|'.join(found)})"


def _seams(nodes: Iterable[Node]) -> list[str]:
    """The seams that a grammar needs: "", and each beginning of escapes of which some set of characters
    holds some but not all. At others the lexer stops before the escape, or passes all of it."""
    sets = {chars for node in nodes for chars in chars_in(node)}
    seams = [""]
    for seam in _BRANCHES:
        begun = {char for char, written in ESCAPES.items() if written.startswith(seam)}
        if any(begun & chars.held and begun - chars.held for chars in sets):
            seams.append(seam)
    return seams


class _Variants:
    """The variants of rules: each for a seam before and a seam behind it."""

    def __init__(self, rules: Mapping[str, Node], name: str) -> None:
        self._rules = rules
        self._seams = _seams(rules.values())
        self._start = name
        self._names: dict[tuple[int, str, str], str] = {}
        self._terminals: dict[str, str] = {}  # names, by regular expression
        self._num_chars = 0  # of the terminals
        self._made: dict[str, list[Parts]] = {}  # alternatives of rules, by name
        self._waiting: list[tuple[str, Node, str, str]] = []
        self._halves: dict[int, tuple[Node, Node]] = {}
        self._repeats: dict[tuple[int, int, int | None], Node] = {}

    def make(self, start: Node) -> None:
        """All variants that a whole text of `start` may need."""
        self._made[self._start] = [(self._name(start, "", ""),)]
        while self._waiting:
            name, node, before, behind = self._waiting.pop()
            self._made[name] = list(self._alternatives(node, before, behind))

    def lines(self) -> Iterator[str]:
        """Lark of those variants that some text belongs to."""
        fruitful = self._fruitful()
        if self._start not in fruitful:
            raise UnenforceableError("No text belongs to it.")
        kept = {
            name: [parts for parts in alternatives if fruitful.issuperset(parts)]
            for name, alternatives in self._made.items()
            if name in fruitful
        }
        kept = {name: [_renamed(parts, kept) for parts in kept[name]] for name in kept}
        named = {name: [(it, 0) for parts in kept[name] for it in parts] for name in kept}
        check_levels(self._start, named)
        terminals = {name: text for text, name in self._terminals.items()}
        waiting, seen = [self._start], {self._start}
        while waiting:
            name = waiting.pop()
            if name in terminals:
                yield f"{name}: /{terminals[name]}/"
                continue
            alternatives = [" ".join(parts) or '""' for parts in kept[name]]
            yield f"{name}: {' | '.join(alternatives)}"
            new = dict.fromkeys(it for it, _ in named[name] if it not in seen)
            seen.update(new)
            waiting += new

    def _name(self, node: Node, before: str, behind: str) -> str:
        """Of a node's variant."""
        key = id(node), before, behind
        if key not in self._names:
            if len(self._names) >= MOST_VARIANTS:
                raise UnenforceableError(TOO_LARGE)
            name = self._names[key] = f"{self._start}_{len(self._names)}"
            self._waiting.append((name, node, before, behind))
        return self._names[key]

    def _alternatives(self, node: Node, before: str, behind: str) -> Iterator[Parts]:
        if isinstance(node, Terminal):
            yield from self._lexeme(node.regex, before, behind)
        elif isinstance(node, Symbol):
            yield (self._name(self._rules[node.name], before, behind),)
        elif isinstance(node, Choice):
            for part in node.parts:
                yield (self._name(part, before, behind),)
        elif isinstance(node, Repeat) and not node.least and node.most in (1, None):
            if before == behind:
                yield ()
            if node.most:
                yield (self._name(node.inner, before, behind),)
            else:
                yield from self._pairs(node, node.inner, before, behind)
        elif node is not EMPTY:
            yield from self._pairs(*self._split(node), before, behind)
        elif before == behind:
            yield ()

    def _pairs(self, first: Node, second: Node, before: str, behind: str) -> Iterator[Parts]:
        for seam in self._seams:
            yield self._name(first, before, seam), self._name(second, seam, behind)

    def _split(self, node: Node) -> tuple[Node, Node]:
        """Two nodes in a row for the same texts, each about half of it. Cut one part at a time, a long
        row would become as many rules, one inside the other."""
        if id(node) in self._halves:
            return self._halves[id(node)]
        if isinstance(node, Series):
            half = len(node.parts) // 2
            halves = series(*node.parts[:half]), series(*node.parts[half:])
        else:
            assert isinstance(node, Repeat)
            halves = self._repeat_halves(node.inner, node.least, node.most)
        self._halves[id(node)] = halves
        return halves

    def _repeat_halves(self, inner: Node, least: int, most: int | None) -> tuple[Node, Node]:
        if least and most != least:
            must, may = (least, least), (0, most and most - least)
        else:
            assert most is not None
            must, may = (least // 2, most // 2), (least - least // 2, most - most // 2)
        return self._repeat(inner, *must), self._repeat(inner, *may)

    def _repeat(self, inner: Node, least: int, most: int | None) -> Node:
        """The same node for the same counts. Otherwise each half would have halves of its own."""
        key = id(inner), least, most
        if key not in self._repeats:
            self._repeats[key] = repeat(inner, least, most)
        return self._repeats[key]

    def _lexeme(self, regex: Node, before: str, behind: str) -> Iterator[Parts]:
        if before:
            text = "|".join(_behind_seam(regex, before))
            if regex.is_nullable and before == behind:
                yield ()
        else:
            text = regex_text(regex, json_chars)
        if not text:
            return
        if behind:
            text = f"(?:{text}){''.join(map(escaped, behind))}"
        if text not in self._terminals:
            self._terminals[text] = f"{self._start}_{len(self._terminals)}".upper()
            self._num_chars += len(text)
            if self._num_chars > MOST_CHARS:
                raise UnenforceableError(TOO_LARGE)
        yield (self._terminals[text],)

    def _fruitful(self) -> set[str]:
        """The names of the variants and terminals that some text belongs to."""
        users: dict[str, list[tuple[str, int]]] = {}
        missing: dict[tuple[str, int], int] = {}
        found, waiting = set[str](), [*self._terminals.values()]
        for name, alternatives in self._made.items():
            for index, parts in enumerate(alternatives):
                missing[name, index] = len(parts)
                for part in parts:
                    users.setdefault(part, []).append((name, index))
                if not parts:
                    waiting.append(name)
        while waiting:
            if (name := waiting.pop()) in found:
                continue
            found.add(name)
            for user in users.get(name, ()):
                missing[user] -= 1
                if not missing[user]:
                    waiting.append(user[0])
        return found


def _renamed(parts: Parts, kept: Mapping[str, list[Parts]]) -> Parts:
    """The parts of an alternative, without those that are the empty text. A part that is another name
    for a rule gets the name of that."""
    found: list[str] = []
    for part in parts:
        while len(alternatives := kept.get(part, [])) == 1 and len(alternatives[0]) == 1:
            part = alternatives[0][0]
        if alternatives != [()]:
            found.append(part)
    return tuple(found)


def _behind_seam(regex: Node, seam: str) -> Iterator[str]:
    """Regular expressions for the texts whose first character begins with a seam, but without it."""

    def ends(chars: Chars) -> list[str]:
        written = (ESCAPES[char] for char in chars.held & ESCAPES.keys())
        return [it.removeprefix(seam) for it in written if it.startswith(seam)]

    num_chars = 0
    for first, rest in firsts(regex, lambda chars: bool(ends(chars))):
        text = f"{_one_of(ends(first))}(?:{regex_text(rest, json_chars)})"
        num_chars += len(text)
        if num_chars > MOST_CHARS:
            raise UnenforceableError(TOO_LARGE)
        yield text
