"""The book's check finds each mistake that mdBook lets pass, and nothing in a right book."""

from pathlib import Path

import pytest

from book.tools.check import check_book

CODE = "# ANCHOR: pool\nclass Pool:\n    pass\n# ANCHOR_END: pool\n"


def faults_of(tmp_path: Path, chapter: str = "", page: str = "") -> list[str]:
    """Check a book of one chapter beside code.py, and one page beside other.html."""
    source, output = tmp_path / "src", tmp_path / "out"
    source.mkdir()
    output.mkdir()
    (tmp_path / "code.py").write_text(CODE)
    (source / "one.md").write_text(chapter)
    (output / "one.html").write_text(page)
    (output / "other.html").write_text('<h1 id="top">Other</h1>')
    return check_book(source, output)


@pytest.mark.parametrize(
    ("chapter", "fault"),
    [
        ("{{#include ../gone.py}}", "one.md: includes gone.py, which does not exist"),
        ("{{#include ../code.py:lake}}", "one.md: code.py has 0 times ANCHOR: lake, not once"),
        ("```python\nx = 1\n```\n", "one.md: code that is typed, not included"),
        ("```cpp\nint x;\n```\n", "one.md: code that is typed, not included"),
    ],
)
def test_a_fault_of_a_chapter_is_named(tmp_path, chapter, fault):
    [found] = faults_of(tmp_path, chapter=chapter)
    assert found.startswith(fault)


@pytest.mark.parametrize(
    "chapter",
    [
        "{{#include ../code.py}}",
        "{{#include ../code.py:pool}}",
        "{{#include ../code.py:2:3}}",
        "```python\n{{#include ../code.py:pool}}\n```\n",
        "```python,ignore\npseudo code\n```\n",
        "```console\n$ make serve\n```\n",
        r"\{{#include shown.as_text}}",
    ],
)
def test_a_right_chapter_has_no_fault(tmp_path, chapter):
    assert faults_of(tmp_path, chapter=chapter) == []


def test_an_anchor_that_stands_twice_is_a_fault(tmp_path):
    (tmp_path / "double.py").write_text(CODE + CODE)
    [fault] = faults_of(tmp_path, chapter="{{#include ../double.py:pool}}")
    assert "2 times ANCHOR: pool" in fault


def test_an_anchor_is_not_taken_for_a_longer_one(tmp_path):
    (tmp_path / "near.py").write_text(CODE.replace("pool", "pool_of_blocks"))
    [fault] = faults_of(tmp_path, chapter="{{#include ../near.py:pool}}")
    assert "0 times ANCHOR: pool" in fault


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<a href="gone.html">x</a>', "a dead link: gone.html"),
        ('<a href="other.html#gone">x</a>', "a dead link: other.html#gone"),
        ('<a href="#gone">x</a>', "a dead link: #gone"),
        ('<i id="a"></i><i id="a"></i>', "the id a is used more than once"),
        ('<img src="other.html">', "a picture without a text: other.html"),
        ('<svg role="img"></svg>', "a picture without a text: svg"),
        ("<p>{{#include x.py}}</p>", "a directive left as it was: {{#include x.py}}"),
        (
            '<script src="https://example.org/x.js"></script>',
            "would be fetched from the network: https://example.org/x.js",
        ),
    ],
)
def test_a_fault_of_a_page_is_named(tmp_path, page, fault):
    assert faults_of(tmp_path, page=page) == [f"one.html: {fault}"]


@pytest.mark.parametrize(
    "page",
    [
        '<a href="other.html#top">x</a>',
        '<a href="https://example.org/">followed only by a reader</a>',
        '<img src="other.html" alt="a picture">',
        '<svg role="img" aria-labelledby="t"><title id="t">a drawing</title></svg>',
        "<svg><path/></svg>",
    ],
)
def test_a_right_page_has_no_fault(tmp_path, page):
    assert faults_of(tmp_path, page=page) == []


def test_pages_made_of_other_pages_are_not_checked_again(tmp_path):
    assert faults_of(tmp_path) == []
    (tmp_path / "out/print.html").write_text('<i id="a"></i><i id="a"></i>')
    assert check_book(tmp_path / "src", tmp_path / "out") == []
