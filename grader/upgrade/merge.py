"""Three files make one: the stub of then, what a learner made of it, and the stub of now.

    then --what the learner wrote--> mine
    then --what has changed-------> now        carry_over(then, mine, now): mine, on today's stub

What stands in a place is carried over as it is, wherever the place stands today. A line of given code
that the learner has changed or added is carried over where its neighbours are still there; where they
are not, today's line stays and the learner's is reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from grader.upgrade.places import TODO, Item, Place, text_of


@dataclass(frozen=True, slots=True)
class Left:
    """Lines of the learner's that have no place in the new file. line: of the first in theirs,
    1-based."""

    line: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """lines: the new file. left: what of the learner's is not in it. open: places that are a stub in it
    though the learner had left none, with their line in the new file, 1-based."""

    lines: list[str]
    left: tuple[Left, ...]
    open: tuple[tuple[Place, int], ...]


@dataclass(frozen=True, slots=True)
class _Edit:
    """The learner put `mine` where `then[begin:end]` stood. line: of `mine` in their file, 1-based."""

    begin: int
    end: int
    mine: list[str]
    line: int


def carry_over(then: Sequence[Item], mine: Sequence[Item], now: Sequence[Item]) -> Carried:
    """The stub of now with the learner's work in it. All three as `read_items` gives them."""
    return _Merge(then, now).run(_edits(then, mine), mine)


def _edits(then: Sequence[Item], mine: Sequence[Item]) -> list[_Edit]:
    """What the learner changed, one place at most in each."""
    edits = []
    for tag, begin, end, first, last in SequenceMatcher(None, then, mine, False).get_opcodes():
        if tag != "equal":
            line = len(text_of(mine[:first])) + 1
            edits.append(_Edit(begin, end, text_of(mine[first:last]), line))
    return edits


class _Merge:
    def __init__(self, then: Sequence[Item], now: Sequence[Item]) -> None:
        self._then = then
        self._now = now
        self._kept = _pairs(then, now)
        """Where lines and places of then stand now, by their numbers."""
        self._instead: dict[int, list[str]] = {}
        self._before: dict[int, list[str]] = {}
        self._left: list[Left] = []

    def run(self, edits: Sequence[_Edit], mine: Sequence[Item]) -> Carried:
        was_open = {item for item in mine if isinstance(item, Place)}
        for edit in edits:
            places = [at for at in range(edit.begin, edit.end) if isinstance(self._then[at], Place)]
            if not places:
                self._change_given(edit)
            elif len(places) == 1:
                self._fill(places[0], edit)
            else:
                self._leave(edit)
        return self._result(was_open)

    def _fill(self, place: int, edit: _Edit) -> None:
        """What the learner wrote goes where the place is now. Given lines next to it which they wrote
        over go away there, if they are what they were."""
        at = self._kept.get(place)
        if at is None:
            self._leave(edit)
            return
        then, now = self._then[place], self._now[at]
        assert isinstance(then, Place)
        assert isinstance(now, Place)
        written = [line for line in edit.mine if not TODO.match(line)]
        self._instead[at] = _indented(written, then.indent, now.indent)
        for other in range(edit.begin, edit.end):
            if other != place and self._kept.get(other) == at + other - place:
                self._instead[at + other - place] = []

    def _change_given(self, edit: _Edit) -> None:
        if not any(line.strip() for line in edit.mine) and edit.begin == edit.end:
            return  # blank lines
        at = [self._kept.get(number) for number in range(edit.begin, edit.end)]
        if edit.begin == edit.end:
            self._insert(edit)
        elif at[0] is not None and at == list(range(at[0], at[0] + len(at))):
            self._instead[at[0]] = edit.mine
            for number in range(at[0] + 1, at[0] + len(at)):
                self._instead[number] = []
        else:
            self._leave(edit)

    def _insert(self, edit: _Edit) -> None:
        above = self._kept.get(edit.begin - 1, -1) if edit.begin else -1
        below = self._kept.get(edit.begin)
        if above >= 0 or edit.begin == 0:
            self._before.setdefault(above + 1, []).extend(edit.mine)
        elif below is not None:
            self._before.setdefault(below, []).extend(edit.mine)
        else:
            self._leave(edit)

    def _leave(self, edit: _Edit) -> None:
        """Report an edit, unless it took lines away alone, or today's stub says the same."""
        known = set(text_of(self._now))
        lost = [line for line in edit.mine if line.strip() and line not in known]
        if lost:
            self._left.append(Left(edit.line, tuple(edit.mine)))

    def _result(self, was_open: set[Place]) -> Carried:
        lines: list[str] = []
        opened: list[tuple[Place, int]] = []
        for number, item in enumerate(self._now):
            lines += self._before.get(number, [])
            if number in self._instead:
                lines += self._instead[number]
                continue
            if isinstance(item, Place) and item.task and item not in was_open:
                opened.append((item, len(lines) + 1))
            lines += text_of([item])
        lines += self._before.get(len(self._now), [])
        return Carried(lines, tuple(self._left), tuple(opened))


def _pairs(then: Sequence[Item], now: Sequence[Item]) -> dict[int, int]:
    """Numbers of equal lines, then -> now. A place is where it is, even if it moved past others."""
    pairs = {}
    for block in SequenceMatcher(None, then, now, False).get_matching_blocks():
        pairs.update({block.a + step: block.b + step for step in range(block.size)})
    places = {item: number for number, item in enumerate(now) if isinstance(item, Place)}
    for number, item in enumerate(then):
        if isinstance(item, Place) and item in places:
            pairs[number] = places[item]
    return pairs


def _indented(lines: Sequence[str], then: str, now: str) -> list[str]:
    """Lines of a place whose indentation has changed."""
    if then == now:
        return list(lines)
    return [
        now + line[len(then) :] if line.startswith(then) and line.strip() else line
        for line in lines
    ]
