"""The map of the labs on the first page: an arrow from each lab to those that build on it.

Two drawings of the manifest, of which style sheets show one: a graph where there is room for it, a list
on a phone. Labs stand in columns, each behind all that it builds on; an arrow that others imply is left
out.
"""

import os
import textwrap
from collections.abc import Iterator
from itertools import pairwise

from book.tools.cards import SERVED
from book.tools.contents import chapter_pages
from book.tools.markup import escape
from book.tools.mdbook import ROOT
from book.tools.minutes import WORDS_A_MINUTE, minutes_of_articles
from yaie.curriculum.manifest import Curriculum, Lab, load_curriculum
from yaie.curriculum.progress import Progress

WIDTH, BOX, HEIGHT, GAP = 800, 148, 44, 12
LINE = 14  # characters of a title that fit into a box
MOST_LINES = 2  # of them in a box; a longer title gives way to what the chapter is about
ROUNDS = 8  # of moving labs towards those that they are joined to; more changes nothing
Node = str | tuple[str, str]
"""A lab's key; a pair is the arrow between two labs, where it passes a column."""


def render_map() -> str:
    """The map as HTML in one line."""
    labs = load_curriculum()
    done = _done(labs)
    return f'<div class="labmap">{_lead(labs)}{_graph(labs, done)}{_list(labs, done)}</div>'


def _lead(labs: Curriculum) -> str:
    """How much there is, and what one may do of it."""
    hours = round(sum(lab.minutes for lab in labs.labs) / 60)
    weekend, engine, triton, cuda = (
        _hours(sum(lab.minutes for lab in labs.labs if lab.number in numbers))
        for numbers in ((1, 3, 6), range(1, 9), range(9, 13), range(13, 17))
    )
    return (
        f"<p>{len(labs.labs)} labs, about {hours} hours in all, and you need not do all of them. Labs "
        f"1, 3 and 6 fill a weekend ({weekend} hours), 1 to 8 make an engine ({engine}), 9 to 12 or 13 "
        f"to 16 its kernels ({triton} and {cuda}). To read the articles takes about "
        f"{_hours(minutes_of_articles())} hours, at {WORDS_A_MINUTE} words a minute and without their "
        "sums and questions. The parts from Reference on are for looking up.</p>"
        "<p>An arrow leads from a lab to one that builds on it, and a colour is a part of the book. You "
        "can skip any lab: the engine then runs the reference's part.</p>"
    )


def _hours(minutes: int) -> str:
    """Hours and halves of them: "9½"."""
    whole, half = divmod(30 * round(minutes / 30), 60)
    return f"{whole or ''}{'½' if half else ''}"


def _done(labs: Curriculum) -> set[str]:
    """Labs that the reader has passed; none in a book that is not served."""
    if not os.environ.get(SERVED):
        return set()
    progress = Progress.load(ROOT)
    return {
        lab.key
        for lab in labs.labs
        if len(progress.passed_tasks(lab, ROOT / "labs" / lab.key)) == len(lab.tasks)
    }


def direct(labs: Curriculum) -> dict[str, tuple[str, ...]]:
    """What each lab builds on, without what follows from the rest of it."""
    return {
        lab.key: tuple(
            one
            for one in lab.after
            if not any(one in _all_before(labs, other) for other in lab.after)
        )
        for lab in labs.labs
    }


def _all_before(labs: Curriculum, key: str) -> set[str]:
    return {before for one in labs[key].after for before in (one, *_all_before(labs, one))}


def columns(labs: Curriculum) -> dict[str, int]:
    """By key, how many labs stand one behind the other before it."""
    found: dict[str, int] = {}
    for lab in sorted(labs.labs, key=lambda lab: len(_all_before(labs, lab.key))):
        found[lab.key] = max((found[one] + 1 for one in lab.after), default=0)
    return found


def _ordered(labs: Curriculum) -> list[list[Node]]:
    """The columns from top to bottom, with a place for each arrow that passes."""
    at, edges = columns(labs), direct(labs)
    rows: list[list[Node]] = [[] for _ in range(max(at.values()) + 1)]
    joined: dict[Node, list[Node]] = {}
    for lab in labs.labs:
        rows[at[lab.key]].append(lab.key)
        for before in edges[lab.key]:
            chain: list[Node] = [before]
            for column in range(at[before] + 1, at[lab.key]):
                rows[column].append((before, lab.key))
                chain.append((before, lab.key))
            chain.append(lab.key)
            for one, other in pairwise(chain):
                joined.setdefault(one, []).append(other)
                joined.setdefault(other, []).append(one)
    for turn in range(ROUNDS):
        for row in rows if turn % 2 == 0 else reversed(rows):
            place = {
                node: i / max(1, len(each) - 1) for each in rows for i, node in enumerate(each)
            }
            row.sort(key=lambda node: _mean([place[o] for o in joined.get(node, [])], place[node]))
    return rows


def _mean(places: list[float], own: float) -> float:
    return sum(places) / len(places) if places else own


def _graph(labs: Curriculum, done: set[str]) -> str:
    rows = _ordered(labs)
    step = (WIDTH - BOX) / (len(rows) - 1)
    tall = [sum(_room(node) for node in row) - GAP for row in rows]
    height = max(tall)
    corner: dict[tuple[Node, int], tuple[float, float]] = {}
    for column, row in enumerate(rows):
        y = (height - tall[column]) / 2
        for node in row:
            corner[node, column] = (column * step, y + (_room(node) - GAP) / 2)
            y += _room(node)
    at = columns(labs)
    arrows = "".join(
        _arrow(
            [corner[node, column] for node, column in _chain(before, lab.key, at)], before, lab.key
        )
        for lab in labs.labs
        for before in direct(labs)[lab.key]
    )
    boxes = "".join(_box(lab, *corner[lab.key, at[lab.key]], lab.key in done) for lab in labs.labs)
    return (
        f'<svg class="graph" viewBox="-2 -2 {WIDTH + 4} {height + 4:.0f}" role="group"'
        ' aria-label="Map of the labs">'
        f'<g class="arrows" aria-hidden="true">{arrows}</g>{boxes}</svg>'
    )


def _room(node: Node) -> float:
    return HEIGHT + GAP if isinstance(node, str) else GAP * 2


def _chain(before: str, after: str, at: dict[str, int]) -> Iterator[tuple[Node, int]]:
    yield before, at[before]
    for column in range(at[before] + 1, at[after]):
        yield (before, after), column
    yield after, at[after]


def _arrow(places: list[tuple[float, float]], before: str, after: str) -> str:
    """A curve from the right edge of one box to the left of another, straight past columns between."""
    x, y = places[0][0] + BOX, places[0][1]
    path = [f"M{x:.0f} {y:.0f}"]
    for left, middle in places[1:]:
        bend = (x + left) / 2
        path.append(f"C{bend:.0f} {y:.0f} {bend:.0f} {middle:.0f} {left:.0f} {middle:.0f}")
        x, y = left, middle
        if (left, middle) != places[-1]:
            x = left + BOX
            path.append(f"H{x:.0f}")
    head = f"M{x - 6:.0f} {y - 4:.0f}L{x:.0f} {y:.0f}L{x - 6:.0f} {y + 4:.0f}"
    return f'<path data-from="{before}" data-to="{after}" d="{" ".join(path)} {head}"/>'


def _box(lab: Lab, x: float, middle: float, done: bool) -> str:
    y = middle - HEIGHT / 2
    lines = textwrap.wrap(lab.title, LINE, break_long_words=False)
    if len(lines) > MOST_LINES:
        lines = textwrap.wrap(lab.subject, LINE, break_long_words=False)
    first = middle + 4 - 8 * (len(lines) - 1)
    title = "".join(
        f'<text x="{x + 42:.0f}" y="{first + 16 * i:.0f}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    mark = "✓ " if done else ""
    return (
        f'<a href="{_page(lab)}" aria-label="{escape(_label(lab, done))}" data-lab="{lab.key}"'
        f' class="{"done" if done else "open"} part-{_part(lab)}">'
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{BOX}" height="{HEIGHT}" rx="5"/>'
        f'<text class="number" x="{x + 8:.0f}" y="{y + 19:.0f}">{mark}{lab.number}</text>'
        f'<text class="time" x="{x + 8:.0f}" y="{y + 35:.0f}">{_time(lab)}</text>{title}</a>'
    )


def _list(labs: Curriculum, done: set[str]) -> str:
    parts: dict[str, list[Lab]] = {}
    for lab in labs.labs:
        parts.setdefault(lab.part, []).append(lab)
    lists = "".join(
        f'<p class="part">{escape(part)}</p><ul>{"".join(_item(one, labs, done) for one in group)}</ul>'
        for part, group in parts.items()
    )
    return f'<div class="list">{lists}</div>'


def _item(lab: Lab, labs: Curriculum, done: set[str]) -> str:
    after = [str(labs[key].number) for key in direct(labs)[lab.key]]
    behind = f", after {' and '.join(after)}" if after else ""
    mark = " ✓" if lab.key in done else ""
    link = f'<a href="{_page(lab)}">{escape(lab.title)}</a>'
    return (
        f'<li><span class="number">{lab.number}</span>'
        f'<span>{link}<span class="time">{_time(lab)}{behind}{mark}</span></span></li>'
    )


def _label(lab: Lab, done: bool) -> str:
    after = " and ".join(str(load_curriculum()[key].number) for key in lab.after)
    behind = f", builds on {after}" if after else ", builds on no other"
    return f"Lab {lab.number}, {lab.title}, {_time(lab)}{behind}{', passed' if done else ''}"


def _time(lab: Lab) -> str:
    """As 2½ h; a lab's time is no more exact than that."""
    return f"{_hours(lab.minutes)} h"


def _part(lab: Lab) -> int:
    names = list(dict.fromkeys(one.part for one in load_curriculum().labs))
    return names.index(lab.part) + 1


def _page(lab: Lab) -> str:
    return chapter_pages()[lab.chapter].replace(".md", ".html")
