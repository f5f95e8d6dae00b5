"""Where the book says it comes from, and how to cite it."""

import re

import pytest

from book.tools import repository


@pytest.fixture
def nowhere(monkeypatch):
    """A copy without a public address."""
    monkeypatch.delenv(repository.BOOK_URL, raising=False)
    monkeypatch.setattr(repository, "repository_url", lambda: "")


def test_a_book_that_is_published_without_its_repository_is_told_so(nowhere, monkeypatch):
    assert repository.without_a_way_back() == ""
    monkeypatch.setenv(repository.BOOK_URL, "https://someone.github.io/yaie/")
    assert "https://someone.github.io/yaie/" in repository.without_a_way_back()
    monkeypatch.setattr(repository, "repository_url", lambda: "https://github.com/someone/yaie")
    assert repository.without_a_way_back() == ""


def test_the_edition_has_a_version_and_can_be_cited(nowhere, monkeypatch):
    made = repository.render_edition()
    assert "\n\n" not in made  # Markdown would end the block there
    assert re.search(
        r"<summary>Version \d+\.\d+\.\d+(, \d+ \w+ \d{4})?\. Cite this book</summary>", made
    )
    assert "author = {{The YAIE authors}}" in made
    assert "url" not in made
    monkeypatch.setenv(repository.BOOK_URL, "https://someone.github.io/yaie/")
    assert "url = {https://someone.github.io/yaie/}" in repository.render_edition()


def test_a_copy_that_is_no_repository_has_a_version_without_a_day(nowhere, monkeypatch):
    monkeypatch.setattr(repository, "_last_change", lambda root: None)
    made = repository.render_edition()
    assert made.startswith(f"<details><summary>Version {repository.__version__}. Cite")
    assert "year" not in made
