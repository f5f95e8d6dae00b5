"""Previews of links, the link to the source, and where they get their addresses."""

import re
import shutil
import struct

import pytest

from book.tools import mdbook, repository
from book.tools.mdbook import ROOT
from book.tools.previews import FRONT, LONGEST, PICTURE, SIZE, add_previews

PAGES = ("index.html", "radix-tree.html", "labs/radix_tree.html", "explore/radix_tree.html")


@pytest.fixture
def some_pages(built, tmp_path):
    for name in (*PAGES, "print.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(built / name, tmp_path / name)
    return tmp_path


def tags(page) -> dict[str, str]:
    return dict(
        re.findall(
            r'<meta (?:property|name)="([\w:]+)" content="([^"]*)">', page.read_text("utf-8")
        )
    )


def test_a_page_says_its_own_title_and_first_sentences(some_pages):
    assert add_previews(some_pages, "https://example.org/yaie/") == len(PAGES)
    said = tags(some_pages / "radix-tree.html")
    assert said["og:title"] == "The radix tree"
    assert said["og:url"] == "https://example.org/yaie/radix-tree.html"
    assert said["og:image"] == f"https://example.org/yaie/{PICTURE}" == said["twitter:image"]
    assert said["twitter:card"] == "summary_large_image"
    assert 40 < len(said["description"]) <= LONGEST + 20  # entities
    assert said["description"] == said["og:description"]
    assert tags(some_pages / "labs/radix_tree.html")["og:title"] == "Lab 4: Radix tree"
    front = some_pages / "index.html"
    assert tags(front)["og:url"] == "https://example.org/yaie/"
    assert tags(front)["og:title"] == FRONT
    assert front.read_text("utf-8").count(f"<title>{FRONT}</title>") == 1
    assert "og:title" not in tags(some_pages / "print.html")


def test_without_an_address_the_picture_is_beside_the_page(some_pages):
    add_previews(some_pages, "")
    said = tags(some_pages / "explore/radix_tree.html")
    assert said["og:image"] == f"../{PICTURE}"
    assert "og:url" not in said


def test_the_picture_has_the_size_that_the_tags_give():
    head = (ROOT / "book/src" / PICTURE).read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", head[16:24]) == SIZE


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/someone/yaie.git", "https://github.com/someone/yaie"),
        ("git@github.com:someone/yaie.git", "https://github.com/someone/yaie"),
        ("ssh://git@codeberg.org/someone/yaie", "https://codeberg.org/someone/yaie"),
        (
            "https://someone:secret@gitlab.com/group/sub/yaie.git",
            "https://gitlab.com/group/sub/yaie",
        ),
        ("https://git.example.com/someone/yaie", ""),  # perhaps not for everyone
        ("/srv/copies/yaie", ""),
        ("../yaie", ""),
        ("", ""),
    ],
)
def test_only_a_public_host_is_shown_and_never_a_password(remote, address):
    assert repository.public_address(remote) == address


def test_a_named_address_wins_and_none_shows_no_link(tmp_path, monkeypatch):
    monkeypatch.delenv(repository.URL, raising=False)
    table = '[output.html]\ngit-repository-url = "{}"\n'
    (tmp_path / "book.toml").write_text(table.format("https://example.org/ours/"))
    assert repository.repository_url(tmp_path) == "https://example.org/ours"
    assert (
        repository.settings(tmp_path)[repository.EDIT]
        == "https://example.org/ours/edit/main/{path}"
    )
    (tmp_path / "book.toml").write_text(table.format(""))
    assert repository.repository_url(tmp_path) == ""
    assert repository.settings(tmp_path) == {}


def test_where_the_book_is_published_decides_the_path_of_its_404_page(monkeypatch):
    monkeypatch.setenv(repository.BOOK_URL, "https://someone.github.io/yaie")
    assert mdbook.environment()["MDBOOK_OUTPUT__HTML__SITE_URL"] == "/yaie/"


def test_buttons_for_services_appear_where_the_repository_is_on_github(monkeypatch):
    monkeypatch.setenv(repository.URL, "https://github.com/someone/yaie")
    assert "codespaces.new/someone/yaie" in repository.render_open("codespace")
    assert "github/someone/yaie/blob/main/notebooks/" in repository.render_open("colab")
    assert 'href="https://github.com/someone/yaie"' in repository.render_source()
    assert "git clone https://github.com/someone/yaie<" in repository.render_copy()
    monkeypatch.setenv(repository.URL, "https://codeberg.org/someone/yaie")
    assert repository.render_open("codespace") == repository.render_open("colab") == ""
    monkeypatch.setattr(repository, "repository_url", str)
    assert repository.render_source() == ""
    assert "git clone" not in repository.render_copy()


def test_every_page_links_to_the_source_where_there_is_one(tmp_path, monkeypatch):
    """mdBook itself, on two pages, with an address and without."""
    import subprocess

    (tmp_path / "src").mkdir()
    (tmp_path / "src/SUMMARY.md").write_text("[One](one.md)\n")
    (tmp_path / "src/one.md").write_text("# One\n")
    (tmp_path / "book.toml").write_text(
        '[book]\ntitle = "T"\n[output.html]\ngit-repository-url = ""\n'
    )
    for url, count in (("https://github.com/someone/yaie", 1), ("", 0)):
        monkeypatch.setenv(repository.URL, url)
        environment = mdbook.environment()
        if not url:
            environment.pop(repository.URL, None)
            environment.pop(repository.EDIT, None)
        subprocess.run(
            [mdbook.find_mdbook(), "build"],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
        )
        page = (tmp_path / "book/one.html").read_text("utf-8")
        assert (
            page.count('title="Git repository"') == page.count('title="Suggest an edit"') == count
        )
        assert ("https://github.com/someone/yaie/edit/main/src/one.md" in page) == bool(url)
