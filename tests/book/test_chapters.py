"""An article asks first and last and leads to its lab's sheet, which has a word on each task."""

import re

import pytest

from book.tools.contents import sheet_title, slug
from book.tools.minutes import reading_minutes, with_listings
from book.tools.preprocess import title_of
from book.tools.words import ARTICLE, words_of
from tests.book.reading import SOURCE
from yaie.curriculum.manifest import load_curriculum

SUMMARY = (SOURCE / "SUMMARY.md").read_text("utf-8")
# Parts 0 to V: what is read from front to back.
PATH = SUMMARY.partition("# Start here")[2].partition("# Using the engine")[0]
LISTED = re.compile(r"^- \[[^]]+\]\((?P<page>[\w-]+)\.md\)", re.M)
CHAPTERS = LISTED.findall(PATH)
# Pages on what the workbook does not build.
AROUND = LISTED.findall(PATH.partition("# Serving at scale")[2])
LABS = load_curriculum().labs
ASKING = [
    path.stem
    for path in sorted(SOURCE.glob("*.md"))
    if "\n## Explain back\n" in path.read_text("utf-8")
]


def text_of(page: str) -> str:
    return (SOURCE / f"{page}.md").read_text("utf-8")


def tasks_of(text: str) -> dict[str, str]:
    """What a sheet says on each task, by its number."""
    part = text.partition("\n## The tasks\n")[2].partition("\n## ")[0]
    notes = re.split(r"^\*\*(?=\d+\.\d+ )", part, flags=re.M)[1:]
    return {note.split()[0]: note for note in notes}


SHORT = ["map", "goodput", "batch-invariance", *AROUND]


def test_there_are_32_chapters_and_14_short_ones():
    assert (len(CHAPTERS) - len(SHORT), len(SHORT)) == (32, 14)


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_chapter_asks_first_and_last(page):
    text = text_of(page)
    assert "{{#minutes}}" in text
    assert "> [!PREDICT]" in text
    # One table a part, in its last chapter. The whole game is about this engine alone.
    compared = "\n## What other engines do\n" in text or "#what-other-engines-do)" in text
    assert compared or page in ("whole-game", "flash-attention", *SHORT)
    assert "\n## Explain back\n" in text
    assert page in SHORT or text.rstrip().endswith(f"{{{{#quiz {page}}}}}")


@pytest.mark.parametrize("page", ASKING)
def test_each_question_at_the_end_of_a_page_has_an_answer(page):
    part = text_of(page).partition("\n## Explain back\n")[2].partition("\n## ")[0]
    asked, fold, answers = part.partition("<details><summary>One answer</summary>\n\n")
    assert fold
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", asked, re.M)]
    assert numbers == [int(number) for number in re.findall(r"^(\d+)\. ", answers, re.M)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_chapter_reads_in_7_to_20_minutes_and_a_short_one_in_3(page):
    least = 3 if page in SHORT else 7
    assert least <= reading_minutes(with_listings(f"{page}.md")) <= 20
    assert words_of(text_of(page)) <= ARTICLE


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.key)
def test_an_article_leads_to_its_lab_s_sheet_and_holds_none_of_it(lab):
    [page] = [page for page in CHAPTERS if title_of(text_of(page)) == lab.chapter]
    text = text_of(page)
    assert text.count(f"{{{{#sheet {lab.key}}}}}") == 1
    assert not re.search(r"\{\{#(lab|given) |^\*\*\d+\.\d+ |make grade|0 of 100 points", text, re.M)
    assert not re.search(r"core/contracts/(?!layers|batch)[\w.]+:", text.partition("\n## ")[0])


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.key)
def test_a_sheet_has_a_word_on_each_task_and_says_where_it_is_explained(lab):
    text = text_of(f"labs/{lab.key}")
    assert title_of(text) == sheet_title(lab)
    assert f"  - [{sheet_title(lab)}](labs/{lab.key}.md)\n" in SUMMARY
    for part in (
        "{{#minutes}}",
        f"{{{{#lab {lab.key}}}}}",
        "\n## The contract\n",
        f"{{{{#given {lab.key}}}}}",
        f"make grade LAB={lab.key}",
        f"make demo LAB={lab.key}",
        "\n## Stretch\n",
    ):
        assert text.count(part) >= 1, part
    notes = tasks_of(text)
    assert set(notes) == {task.id for task in lab.tasks}
    for task, note in notes.items():
        [(page, section), *_] = re.findall(r"\]\(\.\./([\w-]+)\.md#([\w-]+)\)", note)
        titles = re.findall(r"^#+ (.+)$", text_of(page), re.M)
        assert section in map(slug, titles), task


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.key)
def test_a_sheet_reads_in_4_to_20_minutes(lab):
    assert 4 <= reading_minutes(with_listings(f"labs/{lab.key}.md")) <= 20


def test_a_sheet_stands_below_its_article():
    pages = re.findall(r"\]\(([\w/-]+)\.md\)", SUMMARY)
    for lab in LABS:
        above = pages[pages.index(f"labs/{lab.key}") - 1]
        assert title_of(text_of(above)) == lab.chapter


def test_a_title_in_the_contents_is_the_page_s_own():
    for title, page in re.findall(r"\[([^]]+)\]\(([\w/-]+)\.md\)", SUMMARY):
        heading = next(line for line in text_of(page).splitlines() if line.startswith("# "))
        assert heading == f"# {title}"
