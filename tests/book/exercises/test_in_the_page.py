"""An exercise in a browser: answers with units, what wrong ones are told, the page without scripts."""

import pytest
from playwright.sync_api import expect

from book.tools.exercises import EXERCISES, load_exercises
from book.tools.quantities_shown import in_unit, measure
from tests.book.reading import PHONE, reading

PAGE = "kv-cache"


@pytest.mark.parametrize(
    ("typed", "units", "number"),
    [
        ("43", {"gb": 1}, 43),
        ("43 GB", {"gb": 1}, 43),
        ("43,000 mb", {"gb": 1, "mb": 1e-3}, 43),
        ("40G", {"gb": 1, "b": 1e-9}, 40),
        ("1.2k", {"chats": 1}, 1200),
        ("3M tokens", {"tokens": 1}, 3e6),
        ("1,234.5", {"ms": 1}, 1234.5),
        ("1,5", {"ms": 1}, 1.5),
        ("1 500 ms", {"ms": 1}, 1500),
        ("2.6e-4", {"ms": 1}, 2.6e-4),
        ("7 s", {"ms": 1, "s": 1000}, 7000),
        ("−3", {"ms": 1}, -3),
        ("24.5 tokens per second", {"tokens/s": 1}, 24.5),
        ("7 apples", {"ms": 1}, None),
    ],
)
def test_a_number_is_read_with_its_unit(browser, built, typed, units, number):
    with reading(browser, built, PAGE) as (opened, _):
        got = opened.evaluate("([text, units]) => yaie.exercise.read(text, units)", [typed, units])
        assert got == (number if number is None else pytest.approx(number))


def test_an_answer_by_keyboard_is_judged_and_explained(browser, built):
    one = load_exercises(PAGE)[0]
    with reading(browser, built, PAGE, size=PHONE) as (opened, wrong):
        asked = opened.locator("yaie-exercise").first
        field = asked.get_by_label(f"Your answer, in {one.unit}")
        verdict = asked.get_by_role("status")

        field.press("Enter")
        expect(verdict).to_have_text("Type a number first.")
        field.fill("3 GB")
        field.press("Enter")
        expect(verdict).to_have_text("That unit does not fit. Answer in chats.")
        field.fill(str(float(one.slips[0][0])))
        field.press("Enter")
        expect(verdict).to_have_text("Not so. It is 2.0 times too large.")
        expect(asked.locator(".why:visible")).to_have_count(1)
        assert asked.locator("details").get_attribute("open") is None
        field.fill("30")
        opened.keyboard.press("Tab")
        expect(asked.get_by_role("button", name="Check")).to_be_focused()
        opened.keyboard.press("Enter")
        expect(verdict).to_have_text("Not so. It is 9.1% too small.")
        expect(asked.locator(".why:visible")).to_have_count(0)
        field.fill(str(float(one.answer)))
        field.press("Enter")
        expect(verdict).to_have_text("Right.")
        expect(asked.locator("details ol")).to_contain_text(one.shown)
        assert wrong == []


@pytest.mark.nightly
@pytest.mark.parametrize("page", sorted(path.stem for path in EXERCISES.glob("*.toml")))
def test_every_shown_answer_is_accepted_as_it_is_shown(browser, built, page):
    with reading(browser, built, page) as (opened, wrong):
        for place, one in enumerate(load_exercises(page)):
            asked = opened.locator("yaie-exercise").nth(place)
            asked.locator("input").fill(one.shown)
            asked.locator("input").press("Enter")
            expect(asked.locator(".verdict")).to_have_text("Right.")
        assert wrong == []


def test_a_missed_exercise_is_asked_again_on_the_review_page(browser, served):
    one = load_exercises(PAGE)[0]
    with reading(browser, served, PAGE) as (opened, wrong):
        field = opened.locator("yaie-exercise input").first
        field.fill("1")
        field.press("Enter")
        opened.goto(f"{served}/review.html")
        expect(opened.locator("yaie-exercise:visible")).to_have_count(1)
        expect(opened.locator(".review-status")).to_contain_text("1 went wrong")
        opened.locator("yaie-exercise:visible input").fill(str(float(one.answer)))
        opened.locator("yaie-exercise:visible input").press("Enter")
        expect(opened.locator(".review-status")).to_contain_text("Nothing to review")
        assert wrong == []


def test_without_scripts_the_solution_is_folded_and_on_paper_it_is_open(browser, built):
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto((built / f"{PAGE}.html").as_uri())
    exercise = opened.locator("yaie-exercise").first
    assert exercise.locator("input").count() == 0
    expect(exercise.locator("ol")).to_be_hidden()
    exercise.scroll_into_view_if_needed()
    exercise.locator("summary").click()
    expect(exercise.locator("ol")).to_be_visible()
    context.close()
    with reading(browser, built, PAGE) as (opened, _):
        opened.emulate_media(media="print")
        expect(opened.locator("yaie-exercise").first.locator(".check")).to_be_hidden()
        assert opened.locator("yaie-exercise ol").first.bounding_box()["height"] > 0


def test_units_of_answers_are_what_their_labels_say():
    assert measure("GB/s").value == 10**9
    assert in_unit(measure("TB"), "GB") == 1000
