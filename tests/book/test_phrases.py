"""Translated and worn phrases are found, and no file has more of them than it is still allowed."""

import pytest

from book.tools import phrases


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A function that writes one file of an otherwise empty book, and returns what is found in it."""
    monkeypatch.setattr(phrases, "ROOT", tmp_path)
    monkeypatch.setattr(phrases, "LEFT", tmp_path / "left.toml")
    phrases.write_allowances({})

    def findings(text: str, name: str = "book/src/page.md") -> list[phrases.Finding]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return phrases.all_findings()[name]

    return findings


def test_no_file_has_more_than_its_allowance():
    left = phrases.allowances()
    over = {
        name: list(map(str, found))
        for name, found in phrases.all_findings().items()
        if len(found) > left.get(name, 0)
    }
    assert over == {}


def test_every_allowance_is_of_a_file_that_exists():
    assert [name for name in phrases.allowances() if not (phrases.ROOT / name).is_file()] == []


@pytest.mark.parametrize(
    "text",
    [
        "Whoever forgets it waits.",
        "A bug that nobody notices.",
        "What is measured is elsewhere.",
        "It reads two and a half times fewer bytes.",
        "It comes to its first token.",
        "The rest stands on the evidence page.",
        "The client is told so.",
        "Eight programs fill the places.",
        "Eight requests, eight seats.",
        "The engine draws the next token.",
        "The token that is drawn.",
        "backends that shall agree",
        "It fails. Who forgets to rescale reads this.",
        "Beside each structure stands a sibling.",
        "SGLang has it since 2025.",
        "It is the default since version 0.14.",
    ],
)
def test_a_phrase_is_found(book, text):
    assert book(text)


@pytest.mark.parametrize(
    "text",
    [
        "`nobody` is a user.",
        "[a link](nobody.md) and $nobody$",
        "```text\nnobody\n```\n",
        "<!-- nobody -->",
        "The engine samples a token in two places.",
        "Who waits for whom? Who frees it?",
        "Code 3 stands for 0.25.",
        "One replaces another.",
        "SGLang has had it since 2025, and it has been the default since version 0.14.",
    ],
)
def test_code_and_plain_english_pass(book, text):
    assert book(text) == []


def test_a_phrase_is_found_across_lines_and_its_line_named(book):
    [finding] = book("# Title\n\n```text\nx\n```\n\nThe client is\ntold so.\n")
    assert str(finding).startswith("book/src/page.md:7: 'is told': write 'is notified'")


def test_the_first_ones_within_a_limit_pass(book):
    assert book("So that. So that.") == []
    assert [finding.line for finding in book("So that.\nSo that.\nSo that.")] == [3]


def test_a_word_passes_where_it_is_defined(book):
    assert book("seats", "book/src/gpu.md")
    assert book("seats", "book/src/cuda-graphs.md") == []


def test_a_data_file_is_read_without_its_comments(book):
    [finding] = book('# nobody\nask = "Is nobody here?"\n', "book/quizzes/quiz.toml")
    assert finding.line == 2


def test_allowances_only_shrink(book):
    book("nobody nobody")
    phrases.write_allowances({"book/src/page.md": 1, "book/src/gone.md": 3})
    phrases.shrink()
    assert phrases.allowances() == {"book/src/page.md": 1}
    book("nothing")
    phrases.shrink()
    assert phrases.allowances() == {}
