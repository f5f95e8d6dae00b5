"""`make show`: the learner's figures, and what a part under construction gets to hear."""

import re

import pytest

from book.tools.traces import show
from tests.book.reading import THEMES
from tests.learner import hand_in
from tests.marks import nightly_but

EVICT_RAISES = """
def _evict(self, num_blocks):
    raise ValueError("nothing to evict")


RadixTree.evict = _evict
"""
EVICT_LOOPS = """
def _evict(self, num_blocks):
    while True:
        pass


RadixTree.evict = _evict
"""
EVICT_TAKES_ALL_MEMORY = """
def _evict(self, num_blocks):
    kept = []
    while True:
        kept.append(bytes(10_000_000))


RadixTree.evict = _evict
"""
EVICT_RETURNS_NOTHING = """
_real = RadixTree.evict


def _evict(self, num_blocks):
    _real(self, num_blocks)


RadixTree.evict = _evict
"""
EVICT_IS_GENEROUS = """
_real = RadixTree.evict


def _evict(self, num_blocks):
    print("evict was asked for", num_blocks)
    return _real(self, num_blocks + 1)


RadixTree.evict = _evict
"""
STUB = """
class RadixTree:
    def evict(self, num_blocks):
        raise NotImplementedError(
            "radix_tree task 4.5: not implemented yet; see chapter The radix tree"
        )
"""


@pytest.fixture
def run(labs, monkeypatch):
    """Show a lab of which the learner's part is the reference with something behind it."""
    monkeypatch.delenv("YAIE_MINE", raising=False)

    def run(extra: str = "", *options: str, lab: str = "radix_tree"):
        hand_in(labs, lab, extra)
        status = show.main([lab, "--no-browser", *options])
        file = labs.parent / f".yaie/show/{lab}.html"
        return status, file.read_text("utf-8") if file.is_file() else ""

    return run


def test_a_part_that_does_the_same_is_told_so_and_shown_once(run, capfd):
    status, page = run()
    assert status == 0
    assert "radix-tree: the same as the reference's, all 14 steps" in capfd.readouterr().out
    assert page.count("<yaie-radix-tree ") == 1
    assert "recorded from your radix_tree" in page
    assert "Predict first" not in page.split("<script>")[0]


@pytest.mark.nightly
def test_the_page_loads_nothing(run):
    _, page = run()
    assert not re.search(r"<(?:link|img|iframe)\b|\bsrc=|@import|url\((?![\"']?[#`$])", page)
    assert "customElements.define" in page


@pytest.mark.nightly
def test_a_part_that_does_something_else_stands_beside_the_reference(run, capfd):
    status, page = run(EVICT_IS_GENEROUS)
    said = capfd.readouterr().out
    assert status == 0
    assert "radix-tree: not what the reference does from step 11 on" in said
    assert "evict was asked for 2" in said, "what the part prints is seen"
    assert page.count("<yaie-radix-tree ") == 2
    assert 'data-start="10"' in page
    assert len(re.findall(r'id="figure-radix-tree"', page)) == 1


@pytest.mark.nightly
def test_a_part_that_raises_is_shown_up_to_there(run, capfd):
    status, page = run(EVICT_RAISES)
    said = capfd.readouterr().out
    assert status == 1
    assert re.search(
        r"radix-tree: failed after step 10: ValueError: nothing to evict "
        r"\(labs/radix_tree/__init__\.py, line \d+\)",
        said,
    )
    assert "Here your part failed: ValueError" in page
    assert page.count("<yaie-radix-tree ") == 2


@pytest.mark.nightly
def test_a_part_that_loops_is_stopped_and_told_where(run, capfd):
    status, page = run(EVICT_LOOPS, "--seconds", "8")
    said = capfd.readouterr().out
    assert status == 1
    assert "failed after step 10: did not come to an end within 8 s (labs/radix_tree/" in said
    assert "unlock B" in page


@pytest.mark.nightly
def test_a_part_that_takes_all_memory_is_stopped(run, monkeypatch, capfd):
    monkeypatch.setattr(show, "GIB", 0.7)
    status, _ = run(EVICT_TAKES_ALL_MEMORY)
    assert status == 1
    assert "took more than 0.7 GiB of memory (labs/radix_tree/" in capfd.readouterr().out


@pytest.mark.nightly
def test_a_part_that_returns_what_does_not_fit_is_told_so(run, capfd):
    status, _ = run(EVICT_RETURNS_NOTHING)
    assert status == 1
    said = capfd.readouterr().out
    assert re.search(
        r"failed after step 10: it does not keep its contract: TypeError: .*NoneType", said
    )


def test_a_stub_is_told_by_its_open_tasks_and_makes_no_page(labs, monkeypatch, capfd):
    monkeypatch.delenv("YAIE_MINE", raising=False)
    folder = hand_in(labs, "radix_tree")
    (folder / "radix_tree.py").write_text(STUB)
    assert show.main(["radix_tree", "--no-browser"]) == 1
    error = capfd.readouterr().err
    assert "Nothing to show yet: your part radix_tree is unfinished: radix_tree task 4.5" in error
    assert "4.5  Evict the least recently used" in error
    assert "4.1  " not in error
    assert "YAIE_MINE=none make show LAB=radix_tree" in error
    assert not (labs.parent / ".yaie").exists()


def test_a_part_that_is_not_python_is_told_by_its_line(labs, monkeypatch, capfd):
    monkeypatch.delenv("YAIE_MINE", raising=False)
    folder = hand_in(labs, "radix_tree")
    (folder / "node.py").write_text("x = 1\nthis is not Python\n")
    assert show.main(["radix_tree", "--no-browser"]) == 1
    error = capfd.readouterr().err
    assert "cannot be imported" in error
    assert "labs/radix_tree/node.py, line 2" in error


def test_a_part_that_ends_the_process_is_told_so(run, capfd):
    status, page = run("import os\n\nos._exit(3)\n")
    assert (status, page) == (1, "")
    assert "brought the whole process down: it ended with status 3" in capfd.readouterr().err


@pytest.mark.nightly
def test_the_reference_can_be_shown(labs, monkeypatch, capfd):
    monkeypatch.setenv("YAIE_MINE", "none")
    assert show.main(["radix_tree", "--no-browser"]) == 0
    assert "the same as the reference's" in capfd.readouterr().out
    page = (labs.parent / ".yaie/show/radix_tree.html").read_text("utf-8")
    assert "recorded from the reference’s radix_tree" in page


def test_a_lab_without_a_figure_and_one_that_does_not_exist_are_refused(capfd):
    assert show.main(["no_such_lab"]) == 2
    assert "There is no lab 'no_such_lab'; name one of " in capfd.readouterr().err
    assert show.main(["transformer_ops"]) == 2
    assert "No figure shows transformer_ops" in capfd.readouterr().err
    assert show.main([]) == 2
    assert "make show LAB=" in capfd.readouterr().err


@pytest.mark.nightly
def test_the_browser_opens_the_page(run, labs, monkeypatch):
    opened = []
    monkeypatch.setattr(show.webbrowser, "open", opened.append)
    hand_in(labs, "radix_tree")
    assert show.main(["radix_tree"]) == 0
    assert opened == [(labs.parent / ".yaie/show/radix_tree.html").as_uri()]


@pytest.mark.parametrize("scheme", nightly_but(THEMES[:1], THEMES))
def test_both_figures_open_where_they_differ_and_move_together(run, labs, browser, scheme):
    run(EVICT_IS_GENEROUS)
    page = browser.new_page(color_scheme="dark" if scheme == "navy" else "light")
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.goto((labs.parent / ".yaie/show/radix_tree.html").as_uri())
    places = page.locator(".place")
    assert places.all_inner_texts() == ["step 11 of 14"] * 2
    page.get_by_role("button", name="Next").first.click()
    assert places.all_inner_texts() == ["step 12 of 14"] * 2
    page.keyboard.press("ArrowLeft")
    assert places.all_inner_texts() == ["step 11 of 14"] * 2
    assert page.locator("html").get_attribute("class") == scheme
    assert wrong == []
    page.close()


def test_the_first_difference_is_found_in_steps_in_their_number_and_elsewhere():
    def trace(*says: str, size: int = 4) -> dict:
        return {"size": size, "steps": [{"say": say} for say in says]}

    assert show.first_difference(trace("a", "b"), trace("a", "b")) is None
    assert show.first_difference(trace("a", "b"), trace("a", "c")) == ("", 1)
    assert show.first_difference(trace("a"), trace("a", "b")) == ("", 1)
    assert show.first_difference(trace("a"), trace("a", size=8)) == ("", 0)
    assert show.first_difference({"rows": [1]}, {"rows": [2]}) == ("", 0)
    same, mine, theirs = trace("a"), trace("a", "b"), trace("a", "c")
    tracked = [{"tracks": {"one": same, "two": other}} for other in (mine, theirs)]
    assert show.first_difference(*tracked) == ("two", 1)
