"""mdBook's preprocessor of this book: directives, numbers, formulas, listings.

mdBook asks `supports RENDERER`; then it sends [context, book] as JSON and reads the book back. By then
it has expanded its own includes. Every fault of every chapter is reported before the build fails.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from book.tools.cards import render_card
from book.tools.cited import render_cited
from book.tools.contents import (
    EXPLORATIONS,
    SHEETS,
    arrange,
    every_chapter,
    lab_numbers,
    link_to_sheet,
    way_back,
    with_anchors,
)
from book.tools.counts import render_count
from book.tools.evidence import EvidenceError, asked_spread, asked_value
from book.tools.exercises import ExerciseError, render_exercises, render_missed
from book.tools.families import render_families
from book.tools.fences import FENCE, trim_listings
from book.tools.figures import FigureError, render_figure
from book.tools.given import GivenError, render_given
from book.tools.kernels import render_kernels
from book.tools.labmap import render_map
from book.tools.links import LinkError
from book.tools.mathml import MathError, convert_math
from book.tools.minutes import render_minutes
from book.tools.page_foot import page_foot
from book.tools.pairs import render_pairs
from book.tools.predictions import PREDICTION, answering_section, render_prediction
from book.tools.quizzes import QuizError, render_quiz, render_review
from book.tools.reference import render_fields, render_glossary, render_ranges, render_settings
from book.tools.repository import (
    render_author,
    render_copy,
    render_edition,
    render_open,
    render_source,
)
from book.tools.terms import link_terms
from yaie.core.errors import ConfigError
from yaie.system.interrupt import leave_message_to_others

DIRECTIVE = re.compile(r"(?<!\\)\{\{#(?P<name>\w+)(?P<arguments>[^}]*)\}\}")
OPTION = re.compile(r"--(?=\w)")
ASKING = re.compile(r"^\{\{#(?P<kind>quiz|exercises) (?P<name>[\w-]+)\}\}$", re.M)
TITLE = re.compile(r"^# (?P<title>.+)$", re.M)
Faults = (
    ConfigError,
    EvidenceError,
    ExerciseError,
    FigureError,
    GivenError,
    LinkError,
    MathError,
    QuizError,
)
Asking = dict[str, dict[str, tuple[str, str]]]
"""Of "quiz" and of "exercises": by name, the page that holds it, and the page's title."""


def main(arguments: list[str]) -> int:
    """Exit status: 1 with the faults on standard error, if there are any."""
    if arguments[:1] == ["supports"]:
        return 0 if arguments[1:] == ["html"] else 1
    context, book = json.load(sys.stdin)
    if not context["mdbook_version"].startswith("0.5."):
        print(f"this book needs mdBook 0.5, not {context['mdbook_version']}", file=sys.stderr)
        return 1
    chapters = list(every_chapter(book["items"]))
    asking = pages_that_ask(chapters)
    arrange(book["items"])
    faults = [fault for chapter in chapters for fault in expand_chapter(chapter, asking)]
    if faults:
        print("\n".join(f"ERROR {fault}" for fault in faults), file=sys.stderr)
        return 1
    json.dump(book, sys.stdout)
    return 0


def pages_that_ask(chapters: list[dict[str, Any]]) -> Asking:
    """Where each quiz and each set of exercises stands."""
    asking: Asking = {"quiz": {}, "exercises": {}}
    for chapter in chapters:
        page = chapter["path"].replace(".md", ".html")
        for found in ASKING.finditer(chapter["content"]):
            asking[found["kind"]][found["name"]] = (page, title_of(chapter["content"]))
    return asking


def title_of(markdown: str) -> str:
    """A chapter's first heading."""
    found = TITLE.search(markdown)
    return found["title"] if found else ""


def expand_chapter(chapter: dict[str, Any], asking: Asking | None = None) -> Iterator[str]:
    """Expand one chapter in place; yields its faults."""
    asking = asking or {"quiz": {}, "exercises": {}}
    path = PurePosixPath(chapter["path"])
    name = path.name
    text = written = chapter["content"]
    expanders: dict[str, Callable[..., str]] = {
        # Of what is read: below, terms get links, whose definitions are shown only under the pointer.
        "minutes": lambda: render_minutes(written, path.as_posix()),
        "lab": render_card,
        "sheet": link_to_sheet,
        "given": render_given,
        "figure": render_figure,
        "quiz": render_quiz,
        "exercises": render_exercises,
        "value": lambda *words: asked_value(" ".join(words)),
        "spread": lambda *words: asked_spread(" ".join(words)),
        "settings": render_settings,
        "ranges": render_ranges,
        "fields": render_fields,
        "kernels": render_kernels,
        "families": render_families,
        "labmap": render_map,
        "labs": lab_numbers,
        "open": render_open,
        "pairs": render_pairs,
        "source": render_source,
        "author": render_author,
        "copy": render_copy,
        "count": render_count,
        "edition": render_edition,
        "cited": render_cited,
        "glossary": render_glossary,
        "review": lambda: render_review(asking["quiz"], render_missed(asking["exercises"])),
    }
    faults: list[str] = []

    def expand(found: re.Match[str]) -> str:
        expander = expanders.get(found["name"])
        try:
            if expander is None:
                return found[0]
            expanded = expander(*found["arguments"].split())
            in_code = found.string[: found.start()].endswith("`")
            return expanded if found["name"] != "value" or in_code else plain_options(expanded)
        except Faults as error:
            faults.append(f"{name}: {error}")
        except TypeError as error:
            faults.append(f"{name}: {found[0]}: {error}")
        return found[0]

    try:
        foot = page_foot(path.as_posix(), title_of(text), text)
        if path.as_posix().startswith(SHEETS):
            text = with_anchors(text)
        text = link_terms(text, path.as_posix())
        section = answering_section(written)
        text = outside_fences(text, PREDICTION, lambda found: render_prediction(found, section))
        # Formulas first: what directives bring has its own, and is HTML already.
        chapter["content"] = outside_fences(convert_math(text), DIRECTIVE, expand)
        chapter["content"] += f"\n\n{foot}\n" if foot else ""
    except MathError as error:
        faults.append(f"{name}: {error}")
    chapter["content"] = trim_listings(chapter["content"])
    if chapter["path"].startswith(EXPLORATIONS):
        chapter["content"] += f"\n\n{way_back(chapter['path'])}\n"
    yield from faults


def plain_options(text: str) -> str:
    """Text whose options (--mine) keep their two dashes, of which Markdown would make one long dash."""
    return OPTION.sub(r"\\-\\-", text)


def outside_fences(
    text: str, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str]
) -> str:
    """Substitute in prose; what stands in a fence is shown as it is."""
    parts, position = [], 0
    for fence in FENCE.finditer(text):
        parts += [pattern.sub(replace, text[position : fence.start()]), fence[0]]
        position = fence.end()
    return "".join([*parts, pattern.sub(replace, text[position:])])


if __name__ == "__main__":
    leave_message_to_others()  # to what has started mdBook
    sys.exit(main(sys.argv[1:]))
