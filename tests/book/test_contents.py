"""Numbers of chapters, explorations out of the contents, terms that lead to the glossary."""

import re

import pytest

from book.tools.contents import arrange, lab_numbers, lab_of, slug, with_number
from book.tools.terms import link_terms, masked
from tests.book.reading import PHONE, reading
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import load_curriculum


def chapter(name: str, path: str, *below: dict) -> dict:
    return {"Chapter": {"name": name, "path": path, "number": [7], "sub_items": list(below)}}


def test_a_lab_s_chapter_has_its_number_and_others_have_none():
    items = [
        chapter("The radix tree", "radix-tree.md"),
        chapter("PagedAttention: memory in pages", "paging.md"),
    ]
    arrange(items)
    assert [item["Chapter"]["number"] for item in items] == [[4], None]


def test_explorations_move_behind_all_other_chapters():
    below = chapter("Exploration: the tree itself", "explore/radix_tree.md")
    items = [chapter("The radix tree", "radix-tree.md", below), chapter("Review", "review.md")]
    arrange(items)
    paths = [item["Chapter"]["path"] for item in items]
    assert paths == ["radix-tree.md", "review.md", "explore/radix_tree.md"]
    assert items[0]["Chapter"]["sub_items"] == []


def test_a_title_says_its_lab_and_keeps_its_id():
    made = with_number("# The radix tree\n\nText.", "The radix tree")
    assert made.startswith(
        '# <span class="lab-number">Lab 4</span> The radix tree {#the-radix-tree}\n'
    )
    assert with_number("# Glossary\n", "Glossary") == "# Glossary\n"


def test_labs_are_named_in_runs():
    assert lab_numbers("cuda-on-cpu") == "13 to 16"
    assert lab_numbers("triton-interpreter") == "9 to 12 and 19"
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
    """One visit: the sidebar's numbers, no exploration in it, the button, a term."""
    with reading(browser, built, "radix-tree") as (opened, wrong):
        sidebar = opened.locator("#mdbook-sidebar")
        lab = sidebar.locator('a[href="radix-tree.html"]')
        assert lab.inner_text().split(maxsplit=1) == ["4.", "The radix tree"]
        assert (
            sidebar.locator('a[href="paging.html"]').inner_text().strip()
            == "PagedAttention: memory in pages"
        )
        assert sidebar.locator('a[href*="explore/"]:visible').count() == 0
        assert opened.locator("main h1").inner_text().split("\n") == ["Lab 4", "The radix tree"]
        term = opened.locator('main a[href^="glossary.html#"]').first
        assert term.get_attribute("title")
        opened.locator(".lab-card a.button").click()
        opened.locator(".exploration a").wait_for()
        opened.locator(".nav-chapters").first.wait_for(state="detached")
        opened.locator(".exploration a").click()
        opened.wait_for_url("**/radix-tree.html#lab-radix_tree")
        assert wrong == []


@pytest.mark.nightly
def test_the_last_page_leads_to_no_exploration(browser, built):
    with reading(browser, built, "review", size=PHONE) as (opened, wrong):
        assert opened.locator('a.next[href*="explore/"]').count() == 0
        assert wrong == []
