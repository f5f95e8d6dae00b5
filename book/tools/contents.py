"""The order of the book: a lab's chapter has the lab's number, and explorations leave the contents.

mdBook numbers every chapter; here a number always means a lab. Explorations stay pages, which the search
finds, behind all others; style sheet and script keep them out of the sidebar and out of the arrows, and
the lab's card links to them.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from book.tools.markup import escape
from book.tools.mdbook import ROOT
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import VERIFIERS, Lab, load_curriculum

EXPLORATIONS = "explore/"
SUMMARY_LINE = re.compile(r"\[(?P<title>[^]]+)\]\((?P<page>[\w/-]+\.md)\)")
BACK = '<p class="exploration"><a href="../{page}.html#lab-{key}">Back to lab {number}, {title}</a></p>'


def every_chapter(items: list[Any]) -> Iterator[dict[str, Any]]:
    """All chapters that have a page, in the order of the contents."""
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            chapter = item["Chapter"]
            if chapter["path"]:
                yield chapter
            yield from every_chapter(chapter["sub_items"])


def arrange(items: list[Any]) -> None:
    """Number the chapters of labs, no others, and move explorations to the end. In place."""
    moved: list[Any] = []
    for chapter in list(every_chapter(items)):
        lab = lab_of(chapter["name"])
        chapter["number"] = [lab.number] if lab else None
        apart = [one for one in chapter["sub_items"] if _is_exploration(one)]
        chapter["sub_items"] = [one for one in chapter["sub_items"] if one not in apart]
        moved += apart
    items += moved


def _is_exploration(item: Any) -> bool:
    return "Chapter" in item and (item["Chapter"]["path"] or "").startswith(EXPLORATIONS)


@cache
def _labs() -> dict[str, Lab]:
    return {lab.chapter: lab for lab in load_curriculum().labs}


def lab_of(title: str) -> Lab | None:
    """The lab that a chapter of this title is about."""
    return _labs().get(title)


def with_number(markdown: str, title: str) -> str:
    """A lab's chapter with "Lab 4" above its title, whose id stays what it was."""
    lab = lab_of(title)
    if lab is None:
        return markdown
    heading = f"# {title}"
    numbered = f'# <span class="lab-number">Lab {lab.number}</span> {title} {{#{slug(title)}}}'
    return markdown.replace(heading, numbered, 1)


def slug(title: str) -> str:
    """The id that mdBook gives to a heading of plain words."""
    kept = "".join(sign for sign in title.lower() if sign.isalnum() or sign in " -_")
    return kept.replace(" ", "-")


def exploration_of(key: str) -> str:
    """A button from a lab's card to its exploration; nothing for a lab without one."""
    page = ROOT / f"book/src/explore/{key}.md"
    if not page.is_file():
        return ""
    title = next(
        line.removeprefix("# ").removeprefix("Exploration: ")
        for line in page.read_text("utf-8").splitlines()
        if line.startswith("# ")
    )
    return (
        f'<p><a class="button" href="{EXPLORATIONS}{key}.html">Explore: {escape(title)}</a> '
        "pictures that the lab's notebook draws</p>"
    )


def way_back(path: str) -> str:
    """A link from an exploration to its chapter."""
    key = path.removeprefix(EXPLORATIONS).removesuffix(".md")
    lab = load_curriculum()[key]
    page = chapter_pages()[lab.chapter].removesuffix(".md")
    return BACK.format(page=page, key=key, number=lab.number, title=escape(lab.chapter))


def chapter_pages() -> dict[str, str]:
    """The page of each chapter, by title, from the book's contents."""
    summary = (ROOT / "book/src/SUMMARY.md").read_text("utf-8")
    return {
        found["title"]: PurePosixPath(found["page"]).as_posix()
        for found in SUMMARY_LINE.finditer(summary)
    }


def lab_numbers(verifier: str) -> str:
    """The labs that can be graded so, as "1 to 8, 17 and 21". Raises ConfigError for another word."""
    if verifier not in VERIFIERS:
        raise ConfigError(f"labs are graded by {', '.join(VERIFIERS)}, not by {verifier!r}")
    runs: list[list[int]] = []
    every = {lab.number for lab in load_curriculum().labs}
    for number in sorted(lab.number for lab in load_curriculum().labs if verifier in lab.verify):
        between = range(runs[-1][-1] + 1, number) if runs else ()
        if runs and not every.intersection(between):
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = [_run(run) for run in runs]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]])) if shown else "none"


def _run(numbers: list[int]) -> str:
    if len(numbers) < 3:
        return " and ".join(map(str, numbers))
    return f"{numbers[0]} to {numbers[-1]}"
