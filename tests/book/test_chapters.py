"""A chapter asks first and last, has its lab's card and a word on each task, and is not too long."""

import re

import pytest

from book.tools.preprocess import reading_time, title_of
from tests.book.reading import SOURCE
from yaie.curriculum.manifest import load_curriculum

SUMMARY = (SOURCE / "SUMMARY.md").read_text("utf-8")
# Parts 0 to V: what is read from front to back.
PATH = SUMMARY.partition("# Start here")[2].partition("# Reference")[0]
CHAPTERS = re.findall(r"^- \[[^]]+\]\((?P<page>[\w-]+)\.md\)", PATH, re.M)
# Short pages on what the workbook does not build.
AROUND = re.findall(
    r"^- \[[^]]+\]\((?P<page>[\w-]+)\.md\)", PATH.partition("# A look around")[2], re.M
)
LABS = load_curriculum().labs
INCLUDE = re.compile(r"\{\{#include (?P<file>[^:}]+)(?::(?P<anchor>[\w-]+))?\}\}")


def text_of(page: str) -> str:
    return (SOURCE / f"{page}.md").read_text("utf-8")


def with_listings(page: str) -> str:
    """As the preprocessor gets it: mdBook has expanded the includes by then."""

    def listing(found: re.Match[str]) -> str:
        text = (SOURCE / found["file"]).read_text("utf-8")
        if found["anchor"]:
            text = text.partition(f"ANCHOR: {found['anchor']}\n")[2]
            text = text.partition(f"ANCHOR_END: {found['anchor']}")[0]
        return text

    return INCLUDE.sub(listing, text_of(page))


def test_there_are_31_chapters_and_7_short_ones():
    assert (len(CHAPTERS) - len(AROUND), len(AROUND)) == (31, 7)


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_chapter_asks_first_and_last(page):
    text = text_of(page)
    assert "{{#minutes}}" in text
    assert "> [!PREDICT]" in text
    # One table a part, in its last chapter. The whole game is about this engine alone.
    compared = "\n## What other engines do\n" in text or "#what-other-engines-do)" in text
    assert compared or page in ("whole-game", "flash-attention", *AROUND)
    assert "\n## Explain back\n" in text
    assert page in AROUND or text.rstrip().endswith(f"{{{{#quiz {page}}}}}")


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_chapter_reads_in_8_to_25_minutes_and_a_short_one_in_3(page):
    [minutes] = re.findall(r"\d+", reading_time(with_listings(page)))
    named = re.search(r"\{\{#lab (\w+)\}\}", text_of(page))
    has_many_tasks = named is not None and len(load_curriculum()[named[1]].tasks) > 7
    least = 3 if page in AROUND else 8
    assert least <= int(minutes) <= (32 if has_many_tasks else 25)


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.key)
def test_a_lab_has_its_chapter_with_a_word_on_each_task(lab):
    [page] = [page for page in CHAPTERS if title_of(text_of(page)) == lab.chapter]
    text = text_of(page)
    assert f"{{{{#lab {lab.key}}}}}" in text
    assert [task.id for task in lab.tasks if f"**{task.id} " not in text] == []
    assert f"make grade LAB={lab.key}" in text


def test_a_title_in_the_contents_is_the_page_s_own():
    for title, page in re.findall(r"\[([^]]+)\]\(([\w/-]+)\.md\)", SUMMARY):
        heading = next(line for line in text_of(page).splitlines() if line.startswith("# "))
        assert heading == f"# {title}"
