"""Articles have numbers and sheets below them, explorations leave the contents, terms are links."""

import re

import pytest
from playwright.sync_api import expect

from book.tools.contents import (
    arrange,
    duration,
    lab_numbers,
    lab_of,
    lab_of_sheet,
    sheet_title,
    slug,
    with_anchors,
)
from book.tools.terms import link_terms, masked
from tests.book.reading import PHONE, reading
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import load_curriculum


def chapter(name: str, path: str, *below: dict) -> dict:
    return {"Chapter": {"name": name, "path": path, "number": [7], "sub_items": list(below)}}


def test_a_lab_s_article_has_its_number_and_others_have_none():
    sheet = chapter("Lab 4: Radix tree", "labs/radix_tree.md")
    items = [
        chapter("The radix tree", "radix-tree.md", sheet),
        chapter("PagedAttention: memory in pages", "paging.md"),
    ]
    arrange(items)
    assert [item["Chapter"]["number"] for item in items] == [[4], None]
    assert sheet["Chapter"]["number"] == [4, 1]


def test_explorations_move_behind_all_other_chapters_and_sheets_stay():
    sheet = chapter("Lab 4: Radix tree", "labs/radix_tree.md")
    below = chapter("Exploration: the tree itself", "explore/radix_tree.md")
    items = [
        chapter("The radix tree", "radix-tree.md", sheet, below),
        chapter("Review", "review.md"),
    ]
    arrange(items)
    paths = [item["Chapter"]["path"] for item in items]
    assert paths == ["radix-tree.md", "review.md", "explore/radix_tree.md"]
    assert items[0]["Chapter"]["sub_items"] == [sheet]


def test_a_sheet_is_known_by_its_path_and_named_by_number_and_title():
    lab = lab_of_sheet("labs/radix_tree.md")
    assert lab is not None
    assert sheet_title(lab) == "Lab 4: Radix tree"
    assert lab_of_sheet("radix-tree.md") is lab_of_sheet("labs/none.md") is None


def test_each_note_on_a_task_has_an_address():
    made = with_anchors("**4.1 Find.** Text of 4.2.\n\n**4.2 Insert.**\n\nSee **4.3 Split**.\n")
    assert re.findall(r'id="([\w-]+)"></span>\*\*(\S+)', made) == [
        ("task-4-1", "4.1"),
        ("task-4-2", "4.2"),
    ]


def test_a_lab_s_time_is_told_in_hours_from_two_on():
    says = ["about 90 minutes", "about 2 hours", "about 2½ hours", "about 125 minutes"]
    assert [duration(minutes) for minutes in (90, 120, 150, 125)] == says


def test_labs_are_named_in_runs():
    assert lab_numbers("cuda-on-cpu") == "13 to 16"
    assert lab_numbers("triton-interpreter") == "9 to 12, 19 and 22"
    with pytest.raises(ConfigError, match="graded by"):
        lab_numbers("abacus")


PROSE = "A scheduler plans. Its token budget is 512, and the token budget holds."


def test_the_first_use_of_a_term_is_a_link_with_its_definition():
    made = link_terms(PROSE, "one.md")
    [link] = re.findall(r'\[token budget\]\((glossary\.md#token-budget) "([^"]+)"\)', made)
    assert len(link[1]) > 20
    assert "[scheduler](glossary.md#scheduler" in made


def test_a_plural_and_the_end_of_a_line_are_the_same_term():
    made = link_terms("Two block\ntables and a KV\ncache.", "one.md")
    assert "[block\ntables](glossary.md#block-table" in made
    assert "[KV\ncache](glossary.md#kv-cache" in made


@pytest.mark.parametrize(
    "text",
    [
        "# One\n\n## The token budget",
        "`token budget` and $token budget$",
        "```text\ntoken budget\n```",
        "[the token budget](x.md)",
        "| token budget | 5 |",
        "<figure>\n<text>token budget</text>\n</figure>",
        "<p>A token budget.</p>",
        "Token budget\n: How much a step computes.",
        "{{#value a:token budget}}",
        "# The token budget\n\nIts token budget.",  # what the page is about
        "my-token-budget.toml",
    ],
)
def test_no_term_is_linked_in(text):
    assert link_terms(text, "one.md") == text


def test_a_sheet_links_to_the_glossary_above_it_and_an_exploration_to_none():
    assert "](../glossary.md#token-budget" in link_terms(PROSE, "labs/scheduler.md")
    assert link_terms(PROSE, "explore/scheduler.md") == PROSE
    assert "glossary" not in link_terms("Free a block.", "labs/cuda_ops.md")


def test_the_text_itself_stays_as_it_is():
    made = link_terms(PROSE, "one.md")
    assert re.sub(r'\[([^]]+)\]\(glossary[^)]*"\)', r"\1", made) == PROSE
    assert len(masked(PROSE + " `code`")) == len(PROSE) + 7


def test_a_block_is_another_thing_in_a_kernel_s_chapter():
    assert "glossary" in link_terms("Free a block.", "paging.md")
    assert "glossary" not in link_terms("Free a block.", "cuda-ops.md")


def test_every_lab_has_its_chapter_found_by_its_title():
    for lab in load_curriculum().labs:
        assert lab_of(lab.chapter) == lab
        assert slug(lab.chapter).strip("-")


def test_a_chapter_in_the_browser(browser, built):
    """One visit: the sidebar's numbers, no exploration in it, a term, the way to the sheet and back."""
    with reading(browser, built, "radix-tree") as (opened, wrong):
        sidebar = opened.locator("#mdbook-sidebar")
        lab = sidebar.locator('a[href="radix-tree.html"]')
        assert lab.inner_text().split(maxsplit=1) == ["4.", "The radix tree"]
        assert (
            sidebar.locator('a[href="paging.html"]').inner_text().strip()
            == "PagedAttention: memory in pages"
        )
        assert sidebar.locator('a[href*="explore/"]:visible').count() == 0
        assert opened.locator("main h1").inner_text() == "The radix tree"
        assert sidebar.locator('a[href="labs/radix_tree.html"]').inner_text() == "Lab 4: Radix tree"
        assert sidebar.locator('a[href^="labs/"]:visible').count() == 1
        term = opened.locator('main a[href^="glossary.html#"]').first
        assert term.get_attribute("title")
        assert opened.locator("a.next").first.get_attribute("href") == "labs/radix_tree.html"
        opened.locator(".to-sheet a.button").click()
        opened.wait_for_url("**/labs/radix_tree.html")
        assert opened.locator("main h1").inner_text() == "Lab 4: Radix tree"
        assert opened.locator("a.previous").first.get_attribute("href") == "../radix-tree.html"
        assert opened.locator("a.next").first.get_attribute("href") == "../radix-attention.html"
        assert (
            opened.locator("#task-4-3 ~ a")
            .first.get_attribute("href")
            .startswith("../radix-tree.html#")
        )
        opened.locator(".lab-card a.button").click()
        opened.locator(".exploration a").wait_for()
        opened.locator(".nav-chapters").first.wait_for(state="detached")
        opened.locator(".exploration a").click()
        opened.wait_for_url("**/labs/radix_tree.html#lab-radix_tree")
        assert wrong == []


def test_the_manual_is_folded_in_the_sidebar_but_for_the_page_s_part(browser, built):
    with reading(browser, built, "cli") as (opened, wrong):
        sidebar = opened.locator("#mdbook-sidebar")
        page = sidebar.locator('a[href="configuration.html"]')
        other = sidebar.locator('a[href="xray.html"]')
        expect(page).to_be_visible()
        expect(other).to_be_hidden()
        expect(sidebar.locator('a[href="review.html"]')).to_be_visible()
        sidebar.get_by_role("button", name="Using the engine").press("Enter")
        expect(other).to_be_visible()
        folds = sidebar.locator(".part-fold").all_inner_texts()
        assert folds == ["Using the engine", "Reference", "Evidence"]
        assert wrong == []


@pytest.mark.nightly
def test_the_last_page_leads_to_no_exploration(browser, built):
    with reading(browser, built, "review", size=PHONE) as (opened, wrong):
        assert opened.locator('a.next[href*="explore/"]').count() == 0
        assert wrong == []
