"""Building, choosing a port, finding mdBook."""

import socket

import pytest

from book.tools import build, mdbook, serve


@pytest.mark.nightly
def test_the_book_builds_without_a_fault(capsys):
    assert build.main() == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "chapter", "fault"),
    [
        ("no-such-option = true", "", "output.html"),
        ("", "{{#include gone.py}}", "includes gone.py, which does not exist"),
        ("", "```python\n{{#include ../../code.py:lake}}\n```", "0 times ANCHOR: lake"),
        ("", "[away](gone.md)", "a dead link: gone.html"),
    ],
)
def test_what_mdbook_lets_pass_fails_the_build(
    tmp_path, monkeypatch, capsys, settings, chapter, fault
):
    source = tmp_path / "book/src"
    source.mkdir(parents=True)
    (tmp_path / "code.py").write_text("# ANCHOR: pond\n# ANCHOR_END: pond\n")
    (source / "SUMMARY.md").write_text("[One](one.md)\n")
    (source / "one.md").write_text(f"# One\n\n{chapter}\n")
    (tmp_path / "book.toml").write_text(
        '[book]\ntitle = "T"\nsrc = "book/src"\n[build]\nbuild-dir = "book/out"\n'
        f"[output.html]\n{settings}\n"
    )
    monkeypatch.setattr(build, "ROOT", tmp_path)
    assert build.main() == 1
    assert fault in capsys.readouterr().err


def test_errors_and_warnings_in_the_log_are_complaints():
    log = " INFO Book building has started\n ERROR unknown field `x`\n WARN no such file\n"
    assert build.complaints(log) == ["ERROR unknown field `x`", "WARN no such file"]


def test_a_taken_port_is_passed_over():
    with socket.socket() as taken, socket.socket() as other:
        taken.bind((serve.HOST, 0))
        taken.listen()
        other.bind((serve.HOST, 0))
        free = other.getsockname()[1]
        other.close()
        assert serve.find_port([taken.getsockname()[1], free]) == free


def test_no_free_port_is_an_error_that_says_what_to_do():
    with socket.socket() as taken:
        taken.bind((serve.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"no free port among {port}.*--port"):
            serve.find_port([port])


def test_a_missing_mdbook_is_an_error_that_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(mdbook, "environment", lambda: {"PATH": str(tmp_path)})
    with pytest.raises(mdbook.MdBookError, match="make setup"):
        mdbook.find_mdbook()


def test_an_mdbook_of_another_series_is_refused(monkeypatch, tmp_path):
    other = tmp_path / "mdbook"
    other.write_text("#!/bin/sh\necho mdbook v0.4.40\n")
    other.chmod(0o755)
    monkeypatch.setattr(mdbook, "environment", lambda: {"PATH": str(tmp_path)})
    with pytest.raises(mdbook.MdBookError, match=r"mdbook v0\.4\.40; this book needs"):
        mdbook.find_mdbook()
