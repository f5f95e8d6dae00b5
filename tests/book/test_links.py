"""Every link out of the book is in a list that says what it must show."""

import re

import pytest

from book.tools.links import LIST, LinkError, link_faults, links_in, load_links, main, used_links
from book.tools.mdbook import ROOT

ENTRY = '[[link]]\nurl = "{url}"\nshows = "{shows}"\nlooked = "{looked}"\nby = "{by}"\n'


@pytest.fixture
def small(tmp_path):
    (tmp_path / "book/src").mkdir(parents=True)
    (tmp_path / "book/src/one.md").write_text("# One\n\nSee [it](https://example.org/a).\n")
    return tmp_path


def write(root, url="https://example.org/a", shows="a", looked="2026-11-24", by="copy"):
    (root / LIST).write_text(ENTRY.format(url=url, shows=shows, looked=looked, by=by))


def test_every_link_of_the_book_is_in_the_list():
    assert list(link_faults(ROOT)) == []
    assert len(used_links(ROOT)) > 30


def test_a_new_link_must_be_in_the_list(small):
    [fault] = link_faults(small)
    assert fault.startswith(
        "src/one.md: https://example.org/a is not in book/links.toml: look at it"
    )
    write(small)
    assert list(link_faults(small)) == []
    write(small, url="https://example.org/b")
    assert len(list(link_faults(small))) == 1


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({"shows": " "}, "has url, shows"),
        ({"looked": "yesterday"}, "looked is a day"),
        ({"by": ""}, "by one of"),  # looked at, but how?
        ({"looked": ""}, "by one of"),  # and when?
        ({"by": "hearsay"}, "by one of"),
    ],
)
def test_an_entry_that_proves_nothing_is_a_fault(small, entry, fault):
    write(small, **entry)
    with pytest.raises(LinkError, match=fault):
        load_links(small)
    assert fault in next(link_faults(small))


def test_an_entry_that_was_not_looked_at_is_a_fault(small):
    write(small, looked="", by="")  # as --new prints it, apart from what it shows
    [fault] = link_faults(small)
    assert fault.startswith("book/links.toml: https://example.org/a was not looked at")


def test_an_address_stands_once(small):
    write(small)
    (small / LIST).write_text((small / LIST).read_text() * 2)
    with pytest.raises(LinkError, match="stands twice"):
        load_links(small)


def test_links_are_found_in_prose_and_not_in_code():
    text = (
        '[a](https://a.org/x_(y)) and <https://b.org> and <a href="https://c.org/">c</a>\n'
        "`[no](https://d.org)` [local](http://127.0.0.1:8000) [page](x.md)\n\n"
        '```text\n[no](https://e.org)\n```\n[f](https://f.org "title")'
    )
    assert links_in(text) == [
        "https://a.org/x_(y)",
        "https://b.org",
        "https://c.org/",
        "https://f.org",
    ]


def test_the_command_counts_the_ways_of_looking(capsys):
    assert main([]) == 0
    links, ways = capsys.readouterr().out.splitlines()
    assert ways.startswith("Looked at: ")
    assert int(links.removesuffix(" links.")) == sum(map(int, re.findall(r"(\d+) by", ways)))
