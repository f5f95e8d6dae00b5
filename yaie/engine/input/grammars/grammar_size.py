"""How much work a grammar of lab 21 is, before an automaton is made of it.

A schema of a few lines may mean a billion states, or thousands of ways that are open at once. Each node
is looked at once, so this takes no longer than reading the schema did.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from yaie.core.grammar import Choice, Concat, Grammar, OneOf, Repeat

MOST_NODES = 1 << 17
"""That are looked at. What comes of one schema of 16 kB has a fifth of that."""
MOST_HEAD = 64
"""Bytes by which options are told apart."""
HUGE = 1 << 40


@dataclass(frozen=True, slots=True)
class GrammarSize:
    """places: ways through the grammar that are open at once, at most about. run: bytes in a row that
    are certain. states: places in the whole of it, each repetition counted."""

    places: int
    run: int
    states: int


TOO_LARGE = GrammarSize(HUGE, HUGE, HUGE)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is known of a node.

    first: ways that are open before its first byte. ways: the most that are open anywhere in it.
    may_be_empty: whether it takes no byte. stays_open: whether it may be over and go on as well.
    head: the bytes that it begins with for certain, MOST_HEAD at most. before, longest, behind: certain
    bytes at its beginning, anywhere, and at its end. is_certain: whether it is nothing else.
    """

    first: int
    ways: int
    may_be_empty: bool
    stays_open: bool
    head: bytes
    before: int
    longest: int
    behind: int
    is_certain: bool


def size_of(grammar: Grammar) -> GrammarSize:
    """The size of a grammar; TOO_LARGE for one with more nodes than are looked at."""
    facts: dict[Grammar, _Facts] = {}
    order: list[Grammar] = []
    stack: list[tuple[Grammar, Iterator[Grammar]]] = [(grammar, iter(_within(grammar)))]
    begun = {grammar}
    while stack:  # children first
        node, rest = stack[-1]
        inner = next(rest, None)
        if inner is None:
            stack.pop()
            order.append(node)
            facts[node] = _facts(node, facts)
        elif inner not in begun:
            begun.add(inner)
            stack.append((inner, iter(_within(inner))))
            if len(begun) > MOST_NODES:
                return TOO_LARGE
    whole = facts[grammar]
    return GrammarSize(whole.ways, whole.longest, _states(grammar, order))


def _within(node: Grammar) -> tuple[Grammar, ...]:
    if isinstance(node, Concat):
        return node.parts
    if isinstance(node, Choice):
        return node.options
    return (node.item,) if isinstance(node, Repeat) else ()


def _facts(node: Grammar, facts: dict[Grammar, _Facts]) -> _Facts:
    """Of a node, by those of the nodes within it."""
    if isinstance(node, OneOf):
        if len(node.values) == 1:
            return _Facts(1, 1, False, False, bytes(node.values), 1, 1, 1, True)
        return _Facts(1, 1, False, False, b"", 0, 0, 0, False)
    if isinstance(node, Concat):
        return _of_parts([facts[part] for part in node.parts])
    if isinstance(node, Choice):
        return _of_options([facts[option] for option in _flat(node)])
    item, is_fixed = facts[node.item], node.least == node.most
    times = node.least if is_fixed and item.is_certain else 1
    return _Facts(
        first=item.first,
        ways=item.ways + item.first * item.stays_open,
        may_be_empty=node.least == 0 or item.may_be_empty,
        stays_open=not is_fixed or item.stays_open,
        head=item.head if node.least else b"",
        before=item.before * times if is_fixed else 0,
        longest=item.longest * times,
        behind=item.behind * times if is_fixed else 0,
        is_certain=is_fixed and item.is_certain,
    )


def _of_parts(parts: list[_Facts]) -> _Facts:
    """Of several in a row."""
    first = ways = before = longest = behind = open_now = 0
    may_be_empty = is_certain = True
    stays_open = False
    head: list[bytes] = []
    for part in parts:
        if may_be_empty:
            first += part.first
        open_now += part.first
        ways = max(ways, open_now, part.ways + open_now - part.first)
        if not part.may_be_empty:
            open_now = part.first if part.stays_open else 0
            stays_open = False
        stays_open |= part.stays_open or part.may_be_empty
        may_be_empty &= part.may_be_empty
        if is_certain:
            before += part.before
            head.append(part.head if len(head) < MOST_HEAD else b"")
        longest = max(longest, part.longest, behind + part.before)
        behind = behind + part.behind if part.is_certain else part.behind
        is_certain &= part.is_certain
    text = b"".join(head)[:MOST_HEAD]
    return _Facts(
        first, ways, may_be_empty, stays_open and bool(parts), text, before, longest, behind,
        is_certain,
    )  # fmt: skip


def _of_options(options: list[_Facts]) -> _Facts:
    """Of a choice: options whose certain beginnings differ are open together up to there alone."""
    first = sum(option.first for option in options)
    ways, together, head = first, 0, b""
    for option in sorted(options, key=lambda option: option.head):
        if not option.head.startswith(head):
            together = 0
        if not together:
            head = option.head
        together += option.ways
        ways = max(ways, together)
    return _Facts(
        first=first,
        ways=min(ways, HUGE),
        may_be_empty=any(option.may_be_empty for option in options),
        stays_open=any(option.stays_open or option.may_be_empty for option in options),
        head=options[0].head if len(options) == 1 else b"",
        before=0,
        longest=max(option.longest for option in options),
        behind=0,
        is_certain=False,
    )


def _flat(node: Choice) -> Iterator[Grammar]:
    """The options of a choice, and of choices among them in their place. Each once."""
    rest, seen = [*dict.fromkeys(node.options)], {*node.options}
    while rest:
        option = rest.pop()
        if isinstance(option, Choice):
            rest += [inner for inner in dict.fromkeys(option.options) if inner not in seen]
            seen.update(option.options)
        else:
            yield option


def _states(grammar: Grammar, order: list[Grammar]) -> int:
    """The places of a grammar. A node is counted once for all ways to it that go on alike behind it: at
    the end of options, and of parts in a row."""
    parts = [part for node in order if isinstance(node, Concat) for part in node.parts[:-1]]
    apart = {grammar, *parts, *(node.item for node in order if isinstance(node, Repeat))}
    counted: dict[Grammar, int] = {}
    left = 8 * MOST_NODES
    for start in order:  # children first
        if start not in apart:
            continue
        total, rest, seen = 0, [start], {start}
        while rest:
            node = rest.pop()
            if isinstance(node, OneOf):
                total += 1
            elif isinstance(node, Repeat):
                most = node.least + 1 if node.most is None else node.most
                total += counted[node.item] * max(most, 1)
            elif isinstance(node, Concat):
                total += sum(counted[part] for part in node.parts[:-1])
                left -= len(node.parts)
            ends = node.parts[-1:] if isinstance(node, Concat) else ()
            ends = node.options if isinstance(node, Choice) else ends
            rest += [end for end in dict.fromkeys(ends) if end not in seen]
            seen.update(ends)
            left -= 1 + len(ends)
            if left < 0:
                return HUGE
        counted[start] = min(total, HUGE)
    return counted[grammar]
