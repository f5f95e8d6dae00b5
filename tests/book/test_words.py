"""How long the chapters are, in words that a reader sees."""

import pytest

from book.tools import words


def test_the_chapters_of_the_first_edition_are_counted(tmp_path):
    for name in ("scheduler.md", "SUMMARY.md", "experts.md"):
        (tmp_path / name).write_text(
            "# One\n\ntwo {{#value three:four ,}} five\n| 6 | - |\n|---|---|\n"
        )
    for name in ("explore/scheduler.md", "labs/scheduler.md", "labs/tensor_parallel.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("six seven")
    assert words.counted(tmp_path) == {"scheduler.md": 5, "labs/scheduler.md": 2}


def test_every_chapter_that_came_later_is_there():
    assert all((words.SOURCES / name).is_file() for name in words.LATER)
    assert len(words.counted()) == 70  # 50 pages, and 20 sheets of labs


@pytest.mark.nightly
def test_they_are_shorter_than_the_first_edition():
    assert sum(words.counted().values()) <= words.SHARE * words.FIRST + words.ASKED


def test_no_article_is_longer_than_one_reads():
    assert words.too_long() == {}


def test_a_section_that_came_later_is_left_out(tmp_path):
    (tmp_path / "speculative.md").write_text(
        "# One\n\n## What a step yields\n\ntwo\n\n### More\n\nfour\n\n## Three\n"
    )
    assert words.counted(tmp_path) == {"speculative.md": 2}


def test_every_section_that_came_later_is_there():
    for name, titles in words.LATER_SECTIONS.items():
        lines = (words.SOURCES / name).read_text().splitlines()
        assert {f"## {title}" for title in titles} <= {line.replace("###", "##") for line in lines}
