"""`make pdf`: a Chromium is found or asked for; what it prints has pages, text and an outline."""

import re
import zlib

import pytest

from book.tools import pdf
from book.tools.mdbook import ROOT

PAGE = """<!DOCTYPE html><html lang="en"><title>Book</title>
<h1>First chapter</h1><p>Some text.</p><h2>A section</h2>
<h1 style="break-before: page">Second chapter</h1>
<img src="http://example.org/never.png" alt="">"""


def program(folder, name: str, script: str) -> str:
    """A file that can be run."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """No browser anywhere, and a folder that is the whole PATH."""
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setattr(pdf, "MAC", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_without_a_browser_the_status_is_2_and_it_is_said_what_to_install(bare, capsys):
    assert pdf.main() == 2
    assert "apt install chromium" in capsys.readouterr().err


def test_the_first_browser_on_the_path_is_taken_and_the_variable_goes_before(bare, monkeypatch):
    found = program(bare, "google-chrome", "")
    assert pdf.find_chromium() == found
    other = program(bare, "other", "")
    monkeypatch.setenv("CHROMIUM", other)
    assert pdf.find_chromium() == other
    monkeypatch.setenv("CHROMIUM", "gone")
    with pytest.raises(pdf.PdfError, match="CHROMIUM=gone"):
        pdf.find_chromium()


def test_without_a_built_book_the_status_is_2(bare, monkeypatch, capsys):
    program(bare, "chromium", "")
    monkeypatch.setattr(pdf, "PAGE", ROOT / "book/out/gone.html")
    assert pdf.main() == 2
    assert "make docs" in capsys.readouterr().err


def test_a_browser_that_fails_or_prints_nothing_is_told_with_its_words(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    failing = program(tmp_path, "failing", "echo no display >&2; exit 7")
    assert re.search(r"status 7.*\n.*no display", pdf.print_pdf(failing, page, tmp_path / "a.pdf"))
    (tmp_path / "a.pdf").write_text("an old one")
    idle = program(tmp_path, "idle", "exit 0")
    assert "did not print" in pdf.print_pdf(idle, page, tmp_path / "a.pdf")
    assert not (tmp_path / "a.pdf").exists()


def test_a_browser_that_hangs_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(pdf, "SECONDS", 0.2)
    slow = program(tmp_path, "slow", "exec sleep 60")
    assert "after 0.2 s" in pdf.print_pdf(slow, tmp_path / "page.html", tmp_path / "a.pdf")


def test_only_root_does_without_the_sandbox(tmp_path, monkeypatch):
    echo = program(tmp_path, "echo", 'echo "$@" >&2; exit 1')
    for root in (True, False):
        monkeypatch.setattr(pdf, "is_root", lambda root=root: root)
        said = pdf.print_pdf(echo, tmp_path / "page.html", tmp_path / "a.pdf")
        assert ("--no-sandbox" in said) == root


@pytest.mark.slow
def test_what_is_printed_has_pages_and_an_outline(tmp_path):
    try:
        chromium = pdf.find_chromium()
    except pdf.PdfError as error:
        pytest.skip(str(error))
    page, out = tmp_path / "page.html", tmp_path / "book.pdf"
    page.write_text(PAGE)
    assert pdf.print_pdf(chromium, page, out) == ""
    content = out.read_bytes()
    assert content.startswith(b"%PDF-")
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", content, re.S):
        try:
            content += zlib.decompress(stream)
        except zlib.error:
            pass
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", content)) == 2
    assert b"/Outlines" in content
    titles = re.findall(rb"/Title\s*\((.*?)\)", content)
    assert {b"First chapter", b"A section", b"Second chapter"} <= set(titles)
