"""Every word of the book is in a dictionary, or in the list of those that no dictionary has."""

from book.tools import spelling


def test_every_word_is_known():
    assert spelling.unknown_words() == {}


def test_the_list_holds_no_word_that_the_book_has_lost():
    used = set().union(*map(spelling.words_of, spelling.sources()))
    assert sorted(spelling.known_words() - used) == []


def test_a_misspelt_word_is_found(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("The `teh` scheduler's [recieve](teh.md) $teh$ word.\n\n```text\nteh\n```\n")
    monkeypatch.setattr(spelling, "ROOT", tmp_path)
    monkeypatch.setattr(spelling, "sources", lambda: [page])
    assert spelling.unknown_words() == {"page.md": ["recieve"]}


def test_what_readers_see_of_a_data_file_is_prose(tmp_path):
    quiz = tmp_path / "quiz.toml"
    quiz.write_text(
        '[[question]]\nid = "zzid"\nask = "Why `zz`?"\nchoice = [{ text = "Because" }]\n'
    )
    assert spelling.words_of(quiz) == {"why", "because"}
