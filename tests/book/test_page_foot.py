"""Every page says when and how it was checked, and leads to a new issue that names it."""

from urllib.parse import parse_qs, urlparse

import pytest

from book.tools import page_foot, repository
from book.tools.links import links_in, load_links
from book.tools.preprocess import expand_chapter, title_of
from tests.book.reading import PAGES, SOURCE
from yaie.bench.evidence import EVIDENCE


@pytest.fixture
def on_github(monkeypatch):
    monkeypatch.setenv(repository.URL, "https://github.com/someone/yaie")
    monkeypatch.setenv(repository.BOOK_URL, "https://someone.github.io/yaie/")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_leads_to_an_issue_with_its_title_and_address(on_github, page):
    text = (SOURCE / f"{page}.md").read_text("utf-8")
    address = page_foot.report_address(f"{page}.md", title_of(text))
    assert address.startswith("https://github.com/someone/yaie/issues/new?")
    asked = parse_qs(urlparse(address).query)
    assert title_of(text) in asked["title"][0]
    assert f"https://someone.github.io/yaie/{page}.html\n" in asked["body"][0]


def test_the_foot_is_the_last_thing_on_a_page(on_github):
    chapter = {"path": "a.md", "content": "# A title\n\nText.\n"}
    assert list(expand_chapter(chapter)) == []
    assert chapter["content"].rstrip().endswith("Report an error on this page</a></p></footer>")


def test_without_a_book_s_address_the_issue_names_the_file(monkeypatch):
    monkeypatch.setenv(repository.URL, "https://gitlab.com/someone/yaie")
    monkeypatch.delenv(repository.BOOK_URL, raising=False)
    address = page_foot.report_address("labs/sampler.md", "Lab 1: Sampler")
    assert address.startswith("https://gitlab.com/someone/yaie/-/issues/new?issue[title]=")
    assert "book/src/labs/sampler.md" in parse_qs(urlparse(address).query)["issue[description]"][0]


@pytest.mark.parametrize("url", ["", "https://git.example.org/yaie"])
def test_without_a_host_that_takes_issues_there_is_no_link(monkeypatch, url):
    monkeypatch.setattr(page_foot, "repository_url", lambda: url)
    assert page_foot.report_address("a.md", "A") == ""
    assert page_foot.page_foot("a.md", "A", "Text.") == ""


def test_the_days_are_those_of_the_page_s_links_and_figures(monkeypatch):
    monkeypatch.setattr(page_foot, "repository_url", lambda: "")
    text = (SOURCE / "kv-cache.md").read_text("utf-8")
    days = {load_links()[url].looked for url in links_in(text)}
    foot = page_foot.page_foot("kv-cache.md", "The KV cache", text)
    assert "Sources looked at" in foot
    assert "Measured" in foot
    assert all(f'<time datetime="{day}">' in foot for day in (min(days), max(days)))


@pytest.mark.parametrize(
    ("block", "run"),
    [("```console\n$ ls\n```", True), ("```console,server\n$ ls\n```", True),
     ("```console,unrun=gpu\n$ ls\n```", False), ("```text\nx\n```", False)],
)  # fmt: skip
def test_commands_that_a_test_runs_are_named_as_such(block, run):
    assert ("Commands run by tests" in page_foot.page_foot("a.md", "A", block)) == run


def test_each_file_of_evidence_says_its_day():
    for path in EVIDENCE.glob("*.json"):
        assert page_foot.measured_days(f"{{{{#value {path.stem}:x}}}}"), path.name
