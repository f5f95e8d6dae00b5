"""What mistakes make of a grammar: as other grammars, and as documents that are taken in place of right
ones."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from grader.kit.misread import Reading, reading_of
from grader.suites.structured_output.language import accepts
from solutions.structured_output import naive
from yaie.core.contracts.constraining import DEAD
from yaie.core.grammar import Choice, Concat, Grammar, Repeat

LEAST = (
    "A Repeat is over once `least` items have come, and not before; with `least` 0 it may be empty."
)
MOST = "A Repeat goes on until `most` items have come, and no further; None is no limit."
OPTION = "Any option of a Choice may be taken."
PARTS = "A Concat is all of its parts, in their order; without parts it is the empty text."
OWN_MEMBER = "Each property has a name and a value of its own, and comes once."
TEXTS = [bytes(data) for length in range(4) for data in product(b"ab", repeat=length)]

Change = Callable[[Grammar], Grammar]


def changed(grammar: Grammar, change: Change) -> Grammar:
    """A grammar in which every node was changed, the inner ones first."""
    if isinstance(grammar, Concat):
        grammar = Concat(tuple(changed(part, change) for part in grammar.parts))
    elif isinstance(grammar, Choice):
        grammar = Choice(tuple(changed(option, change) for option in grammar.options))
    elif isinstance(grammar, Repeat):
        grammar = Repeat(changed(grammar.item, change), grammar.least, grammar.most)
    return change(grammar)


def _repeats(least: Callable[[int], int], most: Callable[[int | None], int | None]) -> Change:
    def change(node: Grammar) -> Grammar:
        if not isinstance(node, Repeat):
            return node
        low, high = least(node.least), most(node.most)
        return Repeat(node.item, low if high is None else min(low, high), high)

    return change


def _options(pick: slice) -> Change:
    return lambda node: Choice(node.options[pick]) if isinstance(node, Choice) else node


def _parts(pick: slice) -> Change:
    return lambda node: Concat(node.parts[pick]) if isinstance(node, Concat) else node


CHANGES: tuple[tuple[str, Change], ...] = (
    (LEAST, _repeats(lambda least: 0, lambda most: most)),
    (LEAST, _repeats(lambda least: max(1, least), lambda most: most)),
    (LEAST, _repeats(lambda least: max(0, least - 1), lambda most: most)),
    (LEAST, _repeats(lambda least: min(least, 1), lambda most: most)),
    (MOST, _repeats(lambda least: least, lambda most: None)),
    (MOST, _repeats(lambda least: least, lambda most: None if most is None else max(0, most - 1))),
    (MOST, _repeats(lambda least: least, lambda most: None if most is None else most + 1)),
    (MOST, _repeats(lambda least: least, lambda most: most or None)),
    (OPTION, _options(slice(1))),
    (OPTION, _options(slice(-1, None))),
    (PARTS, _parts(slice(-1))),
    (PARTS, _parts(slice(1, None))),
    (PARTS, _parts(slice(None, None, -1))),
)


def why_states(part: Any, grammars: Sequence[Grammar]) -> str:
    """The node that an automaton follows wrongly, by its language on short texts of a and b; "" if no
    such mistake explains it."""

    def asked(grammar: Grammar, data: bytes) -> tuple[bool, bool]:
        automaton = part.ByteAutomaton(grammar)
        state = automaton.start
        for byte in data:
            state = automaton.step(state, byte)
        return state != DEAD, bool(automaton.is_final(state))

    def reading(change: Change) -> Callable[..., Any]:
        def answer(grammar: Grammar, data: bytes) -> tuple[bool, bool]:
            other = changed(grammar, change)
            return naive.can_begin(other, data), naive.is_document(other, data)

        return answer

    readings: list[Reading] = [(why, reading(change)) for why, change in CHANGES]
    return reading_of(asked, readings, [(grammar, data) for grammar in grammars for data in TEXTS])


def why_object(grammar: Any, names: str, chosen: str, sentences: dict[str, str]) -> tuple[str, str]:
    """(what the grammar of an object takes in place of a right document, the sentence for it); both may
    be "". names: of the properties, whose values are 0, 1, ... sentences: comma, order, required."""

    def document(members: Sequence[str]) -> str:
        return "{" + ",".join(f'"{name}":{names.index(name)}' for name in members) + "}"

    right = document(chosen)
    for wrong in (right[:-1] + ",}", "{," + right[1:]) if chosen else ():
        if accepts(grammar, wrong):
            return f", and takes {wrong!r}", sentences["comma"]
    all_members = [m for count in range(1, len(names) + 1) for m in product(names, repeat=count)]
    for members in all_members:
        is_order = list(members) == sorted(set(members))
        if not is_order and accepts(grammar, document(members)):
            is_repeated = len(set(members)) < len(members)
            why = OWN_MEMBER if is_repeated else sentences["order"]
            return f", and takes {document(members)!r}", why
    ordered = [members for members in [(), *all_members] if list(members) == sorted(set(members))]
    taken = [document(members) for members in ordered if accepts(grammar, document(members))]
    if taken == [document(names)]:
        return f", and takes {taken[0]!r} alone", sentences["required"]
    return "", ""
