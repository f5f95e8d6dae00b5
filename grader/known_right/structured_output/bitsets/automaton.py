"""States are sets of bits in one integer; the closure of a place is kept, and the start is made when it
is first asked for. What leads out of a state is worked out by classes of bytes."""

from functools import cached_property

from yaie.core.contracts.constraining import DEAD
from yaie.core.grammar import Choice, Concat, Grammar, OneOf, Repeat


class ByteAutomaton:
    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._numbers: dict[tuple[int, int], int] = {}
        self._nodes: list[tuple[Grammar | None, int]] = [(None, 0)]
        self._alive: dict[int, Grammar] = {}  # by id, so that an id stays its node's
        self._shorter: dict[int, Repeat] = {}
        self._closures: dict[int, int] = {}
        self._sets: list[int] = []
        self._state_of: dict[int, int] = {0: DEAD}
        self._targets: list[dict[int, int]] = []
        self._rows: list[dict[int, int]] = []

    @cached_property
    def start(self) -> int:
        return self._state(self._closure(self._place(self._grammar, 0)))

    @property
    def num_states(self) -> int:
        return len(self._sets)

    def _place(self, node: Grammar, behind: int) -> int:
        key = (id(node), behind)
        number = self._numbers.get(key)
        if number is None:
            self._alive[id(node)] = node
            number = self._numbers[key] = len(self._nodes)
            self._nodes.append((node, behind))
        return number

    def _closure(self, first: int) -> int:
        """The places that wait for a byte from this one on, as bits."""
        if first in self._closures:
            return self._closures[first]
        found, seen, todo = 0, set[int](), [first]
        while todo:
            place = todo.pop()
            if place in seen:
                continue
            seen.add(place)
            node, behind = self._nodes[place]
            if node is None or isinstance(node, OneOf):
                found |= 1 << place
            elif isinstance(node, Concat):
                for part in node.parts[::-1]:
                    behind = self._place(part, behind)
                todo.append(behind)
            elif isinstance(node, Choice):
                todo.extend(self._place(option, behind) for option in node.options)
            elif isinstance(node, Repeat):
                if not node.least:
                    todo.append(behind)
                if node.most is None or node.most > 0:
                    todo.append(self._place(node.item, self._place(self._less(node), behind)))
        self._closures[first] = found
        return found

    def _less(self, node: Repeat) -> Repeat:
        if node.most is None and node.least == 0:
            return node
        if id(node) not in self._shorter:
            most = node.most if node.most is None else node.most - 1
            self._shorter[id(node)] = Repeat(node.item, max(node.least - 1, 0), most)
        return self._shorter[id(node)]

    def _state(self, places: int) -> int:
        if places not in self._state_of:
            self._state_of[places] = len(self._sets)
            self._sets.append(places)
            self._targets.append({})
            self._rows.append({})
        return self._state_of[places]

    def _waiting(self, state: int) -> list[tuple[frozenset[int], int]]:
        found, rest = [], self._sets[state]
        while rest:
            place = rest.bit_length() - 1
            rest ^= 1 << place
            node, behind = self._nodes[place]
            if isinstance(node, OneOf):
                found.append((node.values, behind))
        return found

    def _row(self, state: int) -> dict[int, int]:
        """By byte, the bits of the places behind it."""
        row = self._rows[state]
        if not row:
            for values, behind in self._waiting(state):
                closure = self._closure(behind)
                for byte in values:
                    row[byte] = row.get(byte, 0) | closure
        return row

    def step(self, state: int, byte: int) -> int:
        if state < 0:
            return DEAD
        targets = self._targets[state]
        if byte not in targets:
            targets[byte] = self._state(self._row(state).get(byte, 0))
        return targets[byte]

    def live_bytes(self, state: int) -> bytes:
        return bytes(sorted(self._row(state))) if state >= 0 else b""

    def is_final(self, state: int) -> bool:
        return state >= 0 and bool(self._sets[state] & 1)
