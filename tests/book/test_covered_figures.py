"""Until its question is answered, a figure shows how things are before, and neither bar nor sentence."""

import pytest
from playwright.sync_api import Locator, expect

from book.tools.figures import load_figure
from tests.book.reading import reading

PRINT = "dispatchEvent(new Event('beforeprint'))"
PRINTED = "dispatchEvent(new Event('afterprint'))"
BOTH = pytest.mark.parametrize(("page", "name"), [("gpu", "latency"), ("quantization", "gptq")])
"""One that is computed from its controls, and one that steps through a recording."""


HIDDEN = pytest.mark.parametrize(
    ("page", "name"), [("latent-attention", "attention-kinds"), ("cuda-memory-ops", "warp-store")]
)
"""Of both kinds, figures whose first state is the answer."""


def parts(figure: Locator) -> list[Locator]:
    return [figure.locator(f".{part}") for part in ("panel", "said", "stage")]


def is_drawn(figure: Locator) -> bool:
    return figure.locator(".stage svg").count() > 0 and bool(figure.locator(".said").inner_text())


@BOTH
def test_the_answer_is_not_seen_before_the_question_is_answered(browser, built, page, name):
    with reading(browser, built, page, motion="no-preference") as (opened, wrong):
        figure = opened.locator(f"#figure-{name}")
        figure.scroll_into_view_if_needed()
        panel, said, stage = parts(figure)
        expect(panel).to_be_hidden()
        expect(said).to_be_hidden()
        expect(stage.locator("svg").first).to_be_visible()
        expect(figure.locator("figcaption")).to_be_visible()
        before = figure.evaluate("figure => figure.offsetHeight")

        figure.get_by_role("button", name="Check").click()  # nothing was chosen
        expect(panel).to_be_hidden()
        expect(said).to_be_hidden()
        figure.get_by_role("button", name="Show without guessing").click()
        for part in parts(figure):
            expect(part).to_be_visible()
        assert is_drawn(figure)
        assert figure.evaluate("figure => figure.offsetHeight") > before
        # The height is that of the tallest state from the first click on.
        height = "figure => figure.offsetHeight"
        shown = figure.evaluate(height)
        figure.get_by_role("button", name="Next").click()  # folds the answer, which is above
        folded = figure.evaluate(height)
        figure.get_by_role("button", name="Next").click()
        assert figure.evaluate(height) == folded <= shown
        assert wrong == []


@HIDDEN
def test_a_first_state_that_is_the_answer_is_hidden(browser, built, page, name):
    with reading(browser, built, page, motion="no-preference") as (opened, wrong):
        figure = opened.locator(f"#figure-{name}")
        figure.scroll_into_view_if_needed()
        for part in parts(figure):
            expect(part).to_be_hidden()
        figure.get_by_role("button", name="Show without guessing").click()
        for part in parts(figure):
            expect(part).to_be_visible()
        assert is_drawn(figure)
        assert wrong == []


def test_another_setting_is_drawn_and_named_where_the_first_one_is_the_answer(browser, built):
    with reading(browser, built, "cuda-flash-attention", motion="no-preference") as (opened, wrong):
        figure = opened.locator("#figure-banks")
        figure.scroll_into_view_if_needed()
        expect(figure.locator(".said")).to_have_text("Floats in a row: 80")
        figure.get_by_role("button", name="Show without guessing").click()
        expect(figure.locator(".said")).to_contain_text("pass")
        expect(figure.get_by_label("Play", exact=True).first).to_be_visible()
        expect(figure.get_by_label("floats in a row")).to_have_value("128")
        assert wrong == []


def test_a_step_is_shown_under_the_question_and_another_one_behind_it(browser, built):
    with reading(browser, built, "paged-cache", motion="no-preference") as (opened, _):
        figure = opened.locator("#figure-block-table")
        figure.scroll_into_view_if_needed()
        data = load_figure("block-table")["data"]
        index = "name => document.querySelector(`[data-name=${name}]`).index"
        assert opened.evaluate(index, "block-table") == data["unanswered"] - 1
        figure.get_by_role("button", name="Show without guessing").click()
        assert opened.evaluate(index, "block-table") == data["open"] - 1


@BOTH
def test_on_paper_and_by_a_link_it_is_seen(browser, built, page, name):
    with reading(browser, built, page, motion="no-preference") as (opened, wrong):
        figure = opened.locator(f"#figure-{name}")
        opened.evaluate(PRINT)
        opened.emulate_media(media="print", reduced_motion="no-preference")
        expect(figure.locator(".stage")).to_be_visible()
        assert is_drawn(figure)
        opened.emulate_media(media="screen", reduced_motion="no-preference")
        opened.evaluate(PRINTED)
        panel, said, stage = parts(figure)
        expect(panel).to_be_hidden()
        expect(said).to_be_hidden()
        expect(stage).to_be_visible()

        opened.evaluate(f"location.hash = '#fig-{name}-3'")
        for part in parts(figure):
            expect(part).to_be_visible()
        assert is_drawn(figure)
        assert wrong == []


@BOTH
def test_with_reduced_motion_only_the_bar_waits(browser, built, page, name):
    with reading(browser, built, page, motion="reduce") as (opened, _):
        figure = opened.locator(f"#figure-{name}")
        figure.scroll_into_view_if_needed()
        panel, said, stage = parts(figure)
        expect(panel).to_be_hidden()
        expect(said).to_be_visible()
        expect(stage).to_be_visible()


def test_it_is_seen_at_once_by_a_reader_who_answered_before(browser, served):
    with reading(browser, served, "gpu", motion="no-preference") as (opened, wrong):
        figure = opened.locator("#figure-latency")
        figure.get_by_role("button", name="Show without guessing").click()
        opened.reload()
        figure.scroll_into_view_if_needed()
        for part in parts(figure):
            expect(part).to_be_visible()
        assert is_drawn(figure)
        assert wrong == []


def test_a_figure_without_a_question_is_seen(browser, built):
    with reading(browser, built, "index", motion="no-preference") as (opened, _):
        for part in parts(opened.locator("#figure-whole-game")):
            expect(part).to_be_visible()


def test_a_reader_who_wants_no_questions_says_so_once(browser, served):
    with reading(browser, served, "scheduler", motion="no-preference") as (opened, wrong):
        figures = opened.locator("figure.moving")
        assert figures.count() > 1
        figures.first.get_by_role("button", name="Show all figures").click()
        for figure in figures.all():
            figure.scroll_into_view_if_needed()
            for part in parts(figure):
                expect(part).to_be_visible()
            assert is_drawn(figure)

        opened.goto(f"{served}/gpu.html")
        figure = opened.locator("#figure-latency")
        figure.scroll_into_view_if_needed()
        expect(figure.locator(".panel")).to_be_visible()
        figure.get_by_role("button", name="Show the question and its answer").click()
        figure.get_by_role("button", name="Ask before figures again").click()
        opened.reload()
        expect(figure.get_by_role("button", name="Check")).to_be_visible()
        expect(figure.locator(".panel")).to_be_hidden()
        assert wrong == []
