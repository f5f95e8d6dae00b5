"""The book's search, in a browser: each term of the glossary finds its chapter first."""

import pytest

from book.tools import search
from book.tools.contents import chapter_pages, sheet_title
from book.tools.glossary import all_terms
from book.tools.search import add_terms, pages_of_terms
from tests.book.reading import reading
from yaie.curriculum.manifest import load_curriculum

FIRST = """terms => {
  const index = elasticlunr.Index.load(window.search.index);
  const { doc_urls: urls, search_options: options } = window.search;
  return terms.map((term) => index.search(term, options).slice(0, 2).map((hit) => urls[hit.ref]));
}"""


def test_each_term_of_the_glossary_finds_its_chapter_first(browser, built):
    names = [term.name for term in all_terms() if not term.is_lab]
    assert len(names) > 200
    with reading(browser, built, "index") as (opened, wrong):
        opened.locator("#mdbook-search-toggle").click()
        opened.wait_for_function("window.search.terms")
        found = dict(zip(names, opened.evaluate(FIRST, names), strict=True))
        others = opened.evaluate(FIRST, ["swapped blocks"])
        assert wrong == []
    pages = pages_of_terms()
    assert {
        name: hits for name, hits in found.items() if hits[0].split("#")[0] != pages[name.lower()]
    } == {}
    assert all(first != second for first, second in found.values())
    assert others != [[]]  # what is no term is found as mdBook ranks it


def test_a_reader_s_keys_show_the_chapter(browser, built):
    with reading(browser, built, "index") as (opened, wrong):
        opened.keyboard.press("s")
        opened.keyboard.type("Speculative decoding")
        first = opened.locator("#mdbook-searchresults li a").first
        first.wait_for()
        assert "speculative.html" in first.get_attribute("href")
        assert wrong == []


def test_articles_and_sheets_are_both_found(browser, built):
    labs = load_curriculum().labs
    with reading(browser, built, "index") as (opened, wrong):
        opened.locator("#mdbook-search-toggle").click()
        opened.wait_for_function("window.search.terms")
        titles = [sheet_title(lab) for lab in labs] + [lab.chapter for lab in labs]
        found = [{hit.split("#")[0] for hit in hits} for hits in opened.evaluate(FIRST, titles)]
        assert wrong == []
    sheets, articles = found[: len(labs)], found[len(labs) :]
    pages = chapter_pages()
    assert [
        lab.key
        for lab, hits in zip(labs, sheets, strict=True)
        if f"labs/{lab.key}.html" not in hits
    ] == []
    assert [
        lab.key
        for lab, hits in zip(labs, articles, strict=True)
        if pages[lab.chapter].replace(".md", ".html") not in hits
    ] == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('gpu = ["GPU"]', "no page for the glossary's"),
        ('gpu = ["GPU"]\nindex = ["GPU"]', "'GPU' is on two pages"),
        ('{}\nindex2 = ["a quark"]', "the glossary has no a quark"),
        ('{}\nnowhere = ["radix tree"]', "there is no page nowhere.html"),
    ],
)  # fmt: skip
def test_a_term_that_fits_nowhere_is_a_fault_of_the_build(tmp_path, monkeypatch, text, complaint):
    whole = (search.ROOT / "book/search.toml").read_text("utf-8")
    (tmp_path / "book").mkdir()
    (tmp_path / "book/search.toml").write_text(text.replace("{}", whole))
    for page in set(pages_of_terms().values()):
        (tmp_path / page).touch()
    monkeypatch.setattr(search, "ROOT", tmp_path)
    assert [fault for fault in add_terms(tmp_path) if complaint in fault]


def test_a_word_that_the_glossary_does_not_have_leads_to_its_page():
    pages = pages_of_terms()
    assert pages["gemm"] == pages["matmul"] == "roofline.html"
    assert all(name == name.lower() for name in pages)
