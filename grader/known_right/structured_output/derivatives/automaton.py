"""The automaton by derivatives (Brzozowski 1964): a state is the grammar of what may still come."""

from functools import reduce
from typing import Any, TypeAlias

from yaie.core.contracts.constraining import DEAD
from yaie.core.grammar import Choice, Concat, Grammar, OneOf

Term: TypeAlias = tuple[Any, ...]
"""("byte", values), ("row", first, rest), ("any", options), ("again", item, least, most); first, rest,
item and the options are numbers of terms."""

NOTHING, EMPTY = 0, 1


class ByteAutomaton:
    """Terms are numbered, and the same term has the same number; so has a state."""

    def __init__(self, grammar: Grammar) -> None:
        self._terms: list[Term] = [("nothing",), ("empty",)]
        self._number = {term: number for number, term in enumerate(self._terms)}
        self._of_node: dict[Grammar, int] = {}
        self._nullable: dict[int, bool] = {NOTHING: False, EMPTY: True}
        self._behind: dict[tuple[int, int], int] = {}
        self._state_of: dict[int, int] = {NOTHING: DEAD}
        self._term_of: list[int] = []
        self._next: dict[tuple[int, int], int] = {}
        self.start = self._state(self._term(grammar))

    @property
    def num_states(self) -> int:
        return len(self._term_of)

    def step(self, state: int, byte: int) -> int:
        if state == DEAD:
            return DEAD
        key = (state, byte)
        if key not in self._next:
            self._next[key] = self._state(self._derivative(self._term_of[state], byte))
        return self._next[key]

    def live_bytes(self, state: int) -> bytes:
        return bytes(byte for byte in range(256) if self.can_begin(state, byte))

    def can_begin(self, state: int, byte: int) -> bool:
        """Without making the state behind it."""
        return state != DEAD and self._derivative(self._term_of[state], byte) != NOTHING

    def is_final(self, state: int) -> bool:
        return state != DEAD and self._is_nullable(self._term_of[state])

    def _state(self, term: int) -> int:
        if term not in self._state_of:
            self._state_of[term] = len(self._term_of)
            self._term_of.append(term)
        return self._state_of[term]

    def _make(self, *term: Any) -> int:
        number = self._number.setdefault(term, len(self._terms))
        if number == len(self._terms):
            self._terms.append(term)
        return number

    def _row(self, first: int, rest: int) -> int:
        if NOTHING in (first, rest):
            return NOTHING
        if first == EMPTY or rest == EMPTY:
            return first if rest == EMPTY else rest
        kind, *inner = self._terms[first]
        if kind == "row":  # always leans to the right
            return self._row(inner[0], self._row(inner[1], rest))
        return self._make("row", first, rest)

    def _any(self, options: list[int]) -> int:
        found: set[int] = set()
        for option in options:
            kind, *inner = self._terms[option]
            found |= inner[0] if kind == "any" else {option}
        found.discard(NOTHING)
        if len(found) < 2:
            return found.pop() if found else NOTHING
        return self._make("any", frozenset(found))

    def _again(self, item: int, least: int, most: int | None) -> int:
        if most == 0 or item == EMPTY:
            return EMPTY
        return self._make("again", item, least, most)

    def _term(self, node: Grammar) -> int:
        if node not in self._of_node:
            if isinstance(node, OneOf):
                found = self._make("byte", node.values)
            elif isinstance(node, Concat):
                parts = [self._term(part) for part in node.parts]
                found = reduce(lambda rest, part: self._row(part, rest), reversed(parts), EMPTY)
            elif isinstance(node, Choice):
                found = self._any([self._term(option) for option in node.options])
            else:
                found = self._again(self._term(node.item), node.least, node.most)
            self._of_node[node] = found
        return self._of_node[node]

    def _is_nullable(self, term: int) -> bool:
        if term not in self._nullable:
            kind, *inner = self._terms[term]
            if kind == "row":
                known = all(self._is_nullable(part) for part in inner)
            elif kind == "any":
                known = any(self._is_nullable(option) for option in inner[0])
            elif kind == "again":
                known = inner[1] == 0 or self._is_nullable(inner[0])
            else:
                known = False
            self._nullable[term] = known
        return self._nullable[term]

    def _derivative(self, term: int, byte: int) -> int:
        """What may come behind this byte; NOTHING if it may not come."""
        key = (term, byte)
        if key not in self._behind:
            self._behind[key] = self._derived(self._terms[term], byte)
        return self._behind[key]

    def _derived(self, term: Term, byte: int) -> int:
        kind, *inner = term
        if kind == "byte":
            return EMPTY if byte in inner[0] else NOTHING
        if kind == "row":
            first, rest = inner
            through = self._row(self._derivative(first, byte), rest)
            if not self._is_nullable(first):
                return through
            return self._any([through, self._derivative(rest, byte)])
        if kind == "any":
            return self._any([self._derivative(option, byte) for option in inner[0]])
        if kind == "again":
            item, least, most = inner
            fewer = self._again(item, max(0, least - 1), None if most is None else most - 1)
            return self._row(self._derivative(item, byte), fewer)
        return NOTHING
