"""The order of the book: a lab has an article and, below it, a sheet; explorations leave the contents.

mdBook numbers every chapter; here a number always means a lab, and is shown at its article. Explorations
stay pages, behind all others; style sheet and script keep them out of the sidebar and out of the arrows,
and the lab's card links to them.
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
SHEETS = "labs/"
SUMMARY_LINE = re.compile(r"\[(?P<title>[^]]+)\]\((?P<page>[\w/-]+\.md)\)")
BACK = (
    '<p class="exploration"><a href="../labs/{key}.html#lab-{key}">'
    "Back to lab {number}, {title}</a></p>"
)
TASK = re.compile(r"^\*\*(?P<id>\d+\.\d+) ", re.M)


def every_chapter(items: list[Any]) -> Iterator[dict[str, Any]]:
    """All chapters that have a page, in the order of the contents."""
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            chapter = item["Chapter"]
            if chapter["path"]:
                yield chapter
            yield from every_chapter(chapter["sub_items"])


def arrange(items: list[Any]) -> None:
    """Number the articles of labs, no other page, and move explorations to the end. In place."""
    moved: list[Any] = []
    for chapter in list(every_chapter(items)):
        lab = lab_of(chapter["name"])
        sheet_of = lab_of_sheet(chapter["path"])
        # mdBook folds a page below another by the length of its number, which the style sheet hides.
        below = [sheet_of.number, 1] if sheet_of else None
        chapter["number"] = [lab.number] if lab else below
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


def lab_of_sheet(path: str) -> Lab | None:
    """The lab whose sheet has this path below `book/src`."""
    key = path.removeprefix(SHEETS).removesuffix(".md")
    curriculum = load_curriculum()
    return curriculum[key] if path.startswith(SHEETS) and key in curriculum.keys else None


def sheet_title(lab: Lab) -> str:
    """What a lab's sheet is called, on its page and in the contents."""
    return f"Lab {lab.number}: {lab.title}"


def with_anchors(markdown: str) -> str:
    """A sheet in which `#task-4-1` leads to the note on task 4.1."""

    def anchored(task: re.Match[str]) -> str:
        return f'<span id="task-{task["id"].replace(".", "-")}"></span>{task[0]}'

    return TASK.sub(anchored, markdown)


def link_to_sheet(key: str) -> str:
    """The block of an article that leads to the lab's sheet. Raises ConfigError for another key."""
    lab = load_curriculum()[key]
    return (
        '<aside class="to-sheet" aria-label="The lab">'
        f'<p><strong>Now write it.</strong> <a class="button" href="{SHEETS}{key}.html">'
        f"{escape(sheet_title(lab))}</a></p>"
        f"<p>{len(lab.tasks)} tasks, {duration(lab.minutes)}. The sheet has the contract, what you are "
        "given, a note on each task, and what the grader says.</p></aside>"
    )


def duration(minutes: int) -> str:
    """A lab's time in words: "about 90 minutes", "about 3 hours"."""
    hours, rest = divmod(minutes, 60)
    if rest % 30 or minutes < 120:
        return f"about {minutes} minutes"
    return f"about {hours}{'½' if rest else ''} hours"


def slug(title: str) -> str:
    """The id that mdBook gives to a heading of plain words."""
    kept = "".join(sign for sign in title.lower() if sign.isalnum() or sign in " -_")
    return kept.replace(" ", "-")


def exploration_of(key: str) -> str:
    """A button from a lab's card, on its sheet, to its exploration; nothing for a lab without one."""
    page = ROOT / f"book/src/explore/{key}.md"
    if not page.is_file():
        return ""
    title = next(
        line.removeprefix("# ").removeprefix("Exploration: ")
        for line in page.read_text("utf-8").splitlines()
        if line.startswith("# ")
    )
    return (
        f'<p><a class="button" href="../{EXPLORATIONS}{key}.html">Explore: {escape(title)}</a> '
        "pictures that the lab's notebook draws</p>"
    )


def way_back(path: str) -> str:
    """A link from an exploration to its lab's sheet."""
    key = path.removeprefix(EXPLORATIONS).removesuffix(".md")
    lab = load_curriculum()[key]
    return BACK.format(key=key, number=lab.number, title=escape(lab.title))


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
