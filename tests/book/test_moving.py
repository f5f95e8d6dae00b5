"""Each figure and each quiz, by mouse and by keyboard; what is asked, kept and printed."""

import pytest
from playwright.sync_api import Locator, Page, expect

from book.tools.figures import load_figure
from book.tools.quizzes import load_quiz
from tests.book.reading import ONE_AND_OTHERS, pages_with, reading
from tests.marks import nightly_but

FIGURES = pages_with("figure")
QUIZZES = pages_with("quiz")
ASKED = [(page, name) for page, name in FIGURES if "predict" in load_figure(name)]
FEW = nightly_but(ASKED[:1], ASKED)
"""What all figures inherit, CI tries on some of them."""
FEW_QUIZZES = nightly_but(QUIZZES[:1], QUIZZES)
"""They differ in their texts alone, which the preprocessor checks."""


def figure_on(opened: Page, name: str) -> Locator:
    return opened.locator(f"#figure-{name}")


def right_answer(name: str) -> tuple[str, int | float]:
    """("choice", its place) or ("number", the number)."""
    predict = load_figure(name)["predict"]
    if "choice" in predict:
        return "choice", next(i for i, one in enumerate(predict["choice"]) if one.get("right"))
    return "number", predict["number"]


def test_there_are_figures_and_every_chapter_figure_asks_first():
    assert len(FIGURES) >= 10
    # The whole game's is asked at the beginning of its chapter.
    assert [one for one in FIGURES if one not in ASKED] == [("whole-game", "whole-game")]


@pytest.mark.parametrize("theme", ONE_AND_OTHERS)
@pytest.mark.parametrize(("page", "name"), FEW)
def test_a_figure_by_mouse(browser, built, page, name, theme):
    with reading(browser, built, page, theme) as (opened, wrong):
        figure = figure_on(opened, name)
        expect(figure.locator(".panel")).to_be_hidden()
        kind, answer = right_answer(name)
        if kind == "choice":
            figure.locator(".predict label").nth(int(answer)).click()
        else:
            figure.locator(".predict input").fill(str(answer))
        figure.get_by_role("button", name="Check").click()
        expect(figure.locator(".predict .verdict")).to_contain_text("Right")
        expect(figure.locator(".panel")).to_be_visible()
        use_controls(figure, by_mouse=True)
        assert wrong == []


@pytest.mark.parametrize("theme", ONE_AND_OTHERS)
@pytest.mark.parametrize(("page", "name"), FEW)
def test_a_figure_by_keyboard(browser, built, page, name, theme):
    with reading(browser, built, page, theme) as (opened, wrong):
        figure = figure_on(opened, name)
        first = figure.locator(".predict input").first
        first.focus()
        if right_answer(name)[0] == "choice":
            opened.keyboard.press("Space")
        else:
            opened.keyboard.type("7")
        opened.keyboard.press("Tab")
        expect(figure.get_by_role("button", name="Check")).to_be_focused()
        opened.keyboard.press("Enter")
        expect(figure.locator(".predict .verdict")).not_to_be_empty()
        inside = "element => document.activeElement.closest('figure') === element"
        assert figure.evaluate(inside), "the focus left the figure when it was revealed"
        use_controls(figure, by_mouse=False)
        assert wrong == []


def use_controls(figure: Locator, *, by_mouse: bool) -> None:
    """Step a few times and move every control; what is drawn or said must follow."""
    back, forward = (
        figure.get_by_role("button", name="Back"),
        figure.get_by_role("button", name="Next"),
    )
    keyboard = figure.page.keyboard
    figure.locator(".scrub").focus()
    keyboard.press("Home")
    forward.focus()
    seen = {shown(figure)}
    for _ in range(3):
        if forward.is_enabled():
            forward.click() if by_mouse else keyboard.press("ArrowRight")
            seen.add(shown(figure))
    assert len(seen) > 2, "it does not change from step to step"
    back.click() if by_mouse else keyboard.press("ArrowLeft")
    expect(forward).to_be_enabled()
    for control in figure.locator(".settings input[type=range]").all():
        control.focus()
        found = set()
        for key in ("Home", "ArrowRight", "ArrowRight", "End"):  # two places may look alike
            keyboard.press(key)
            found.add(shown(figure))
        assert len(found) > 1 or control.get_attribute("data-still") == ""
    for choice in figure.locator(".settings select:not([data-still])").all():
        found = set()
        for key in ("Home", "End"):  # ways may begin alike, and part later
            figure.locator(".scrub").focus()
            keyboard.press(key)
            for index in (0, 1):
                choice.select_option(index=index)
                found.add((key, shown(figure)))
        assert len(found) > 2
    expect(figure.locator(".said")).not_to_be_empty()


def shown(figure: Locator) -> str:
    return figure.locator(".stage").inner_html() + figure.locator(".said").inner_text()


@pytest.mark.parametrize(("page", "name"), FEW)
def test_what_was_answered_is_not_asked_again(browser, served, page, name):
    with reading(browser, served, page) as (opened, _):
        figure = figure_on(opened, name)
        figure.get_by_role("button", name="Show without guessing").click()
        opened.reload()
        expect(figure.locator(".panel")).to_be_visible()


@pytest.mark.parametrize(("page", "name"), FEW)
def test_print_shows_a_state_of_its_own_and_puts_back_what_was_there(browser, built, page, name):
    with reading(browser, built, page) as (opened, _):
        figure = figure_on(opened, name)
        figure.get_by_role("button", name="Show without guessing").click()
        use_controls(figure, by_mouse=False)
        differs = []
        for key in ("Home", "End"):  # one of them may be what is printed
            figure.locator(".scrub").focus()
            opened.keyboard.press(key)
            moved = figure.locator(".stage").inner_html()
            opened.evaluate("dispatchEvent(new Event('beforeprint'))")
            differs.append(figure.locator(".stage").inner_html() != moved)
            opened.evaluate("dispatchEvent(new Event('afterprint'))")
            assert figure.locator(".stage").inner_html() == moved
        assert any(differs)


@pytest.mark.nightly
def test_the_print_page_holds_every_figure(browser, built):
    with reading(browser, built, "print") as (opened, wrong):
        assert opened.locator(
            "figure.moving .stage svg, figure.moving .stage table"
        ).count() >= len(FIGURES)
        assert wrong == []


@pytest.mark.parametrize("theme", ONE_AND_OTHERS)
@pytest.mark.parametrize(("page", "name"), FEW_QUIZZES)
def test_a_quiz_by_mouse_and_by_keyboard(browser, built, page, name, theme):
    with reading(browser, built, page, theme) as (opened, wrong):
        for number, question in enumerate(load_quiz(name)):
            asked = opened.locator("yaie-question").nth(number)
            rights = [choice.get("right", False) for choice in question["choice"]]
            asked.locator("input").nth(rights.index(False)).focus()
            opened.keyboard.press("Space")
            check = asked.get_by_role("button", name="Check")
            check.focus()
            opened.keyboard.press("Enter")
            expect(asked.locator(".verdict")).to_contain_text("Not so")
            expect(asked.locator(".why:visible")).to_have_count(1)
            asked.locator("label").nth(rights.index(True)).click()
            check.click()
            expect(asked.locator(".verdict")).to_have_text("Right.")
        assert wrong == []


def test_the_review_page_asks_missed_questions_again(browser, served):
    page, name = QUIZZES[0]
    question = load_quiz(name)[0]
    rights = [choice.get("right", False) for choice in question["choice"]]
    with reading(browser, served, page) as (opened, wrong):
        asked = opened.locator("yaie-question").first
        asked.locator("label").nth(rights.index(False)).click()
        asked.get_by_role("button", name="Check").click()
        expect(asked.locator(".verdict")).to_contain_text("Not so")
        opened.goto(f"{served}/review.html")
        again = opened.locator("yaie-question:visible")
        expect(again).to_have_count(1)
        expect(opened.locator(".review-status")).to_contain_text("1 went wrong")
        again.locator("label").nth(rights.index(True)).click()
        again.get_by_role("button", name="Check").click()
        expect(opened.locator(".review-status")).to_contain_text("Nothing to review")
        assert wrong == []


@pytest.mark.nightly
def test_an_open_review_page_shows_what_another_tab_misses(browser, served):
    page, name = QUIZZES[0]
    rights = [choice.get("right", False) for choice in load_quiz(name)[0]["choice"]]
    with reading(browser, served, "review") as (review, wrong):
        expect(review.locator(".review-status")).to_contain_text("Nothing to review")
        other = review.context.new_page()
        other.goto(f"{served}/{page}.html")
        asked = other.locator("yaie-question").first
        asked.locator("label").nth(rights.index(False)).click()
        asked.get_by_role("button", name="Check").click()
        expect(review.locator("yaie-question:visible")).to_have_count(1)
        assert wrong == []


def test_without_scripts_questions_and_figures_have_their_text(browser, built):
    page, name = next(pair for pair in FIGURES if pair[1] == "kv-growth")
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto((built / f"{page}.html").as_uri())
    expect(figure_on(opened, name)).to_contain_text("With scripts")
    expect(figure_on(opened, name).locator(".stage table").first).to_be_visible()
    assert opened.locator("yaie-question details summary").count() > 0
    context.close()
