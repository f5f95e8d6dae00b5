"""The shell of the figures: play, scrub, step, keys, links, heights, tweens, lights, paper."""

import json
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from book.tools.figures import load_figure
from tests.book.reading import LAPTOP, ONE_AND_OTHERS, pages_with, reading
from tests.book.test_pages import TO_THEME, WCAG
from tests.marks import nightly_but

FIGURES = pages_with("figure")
FEW = nightly_but(FIGURES[:1], FIGURES)
MANY = nightly_but(FIGURES[:30:15], FIGURES)  # a visit takes seconds: CI has time for some of them
SMALL_PHONE = {"width": 390, "height": 844}
MENU, LEAST_TEXT = 50, 12  # px: of mdBook's bar, which stays at the top, and of letters

# Whether a figure's stage holds what is drawn of its state from nothing.
IS_AS_DRAWN = """(figure) => {
  const [fresh, shown] = [document.createElement('div'), figure.stage.childNodes];
  fresh.dataset.room = figure.width;
  figure.drawAt(fresh, figure.index);
  return shown.length === fresh.childNodes.length
    && [...shown].every((node, at) => node.isEqualNode(fresh.childNodes[at]));
}"""

# Goes through all states; of each, the heights of stage and text, and what is drawn.
ALL_STATES = """async (figure) => {
  const isAsDrawn = IS_AS_DRAWN;
  const found = { heights: new Set(), pictures: new Set(), differing: 0, smallest: 99, keys: 0,
    sideways: 0 };
  figure.measure();
  await new Promise((done) => setTimeout(done, 50));
  const stride = Math.max(1, Math.ceil(figure.last / 24));
  for (let index = 0; index <= figure.last; index += stride) {
    figure.go(index);
    const { stage, said } = figure;
    found.heights.add(`${Math.round(stage.offsetHeight)} ${Math.round(said.offsetHeight)}`);
    found.pictures.add(stage.innerHTML);
    found.differing += !isAsDrawn(figure);
    found.keys = Math.max(found.keys, stage.querySelectorAll('[data-key]').length);
    found.sideways = Math.max(found.sideways, stage.scrollWidth - stage.clientWidth);
    for (const element of stage.querySelectorAll('*')) {
      const speaks = [...element.childNodes].some((node) =>
        node.nodeType === 3 && node.textContent.trim());
      if (!speaks || element.closest('math')) continue;
      const scale = element instanceof SVGElement ? element.getScreenCTM().a : 1;
      found.smallest = Math.min(found.smallest, parseFloat(getComputedStyle(element).fontSize) * scale);
    }
  }
  figure.go(0);
  const [panel, stage] = [figure.panel, figure.stage].map((each) => each.getBoundingClientRect());
  return { ...found, heights: [...found.heights], pictures: found.pictures.size,
    whole: figure.closest('figure').offsetHeight, span: stage.bottom - panel.top };
}""".replace("IS_AS_DRAWN", IS_AS_DRAWN)


def figure_on(opened: Page, name: str) -> Locator:
    """The custom element of a figure, with its question put away, and the mouse elsewhere."""
    element = opened.locator(f"#figure-{name} [data-name]")
    waive = element.get_by_role("button", name="Show without guessing")
    if waive.count():
        waive.click()
        opened.mouse.move(0, 0)  # what slides under it would be lit
    return element


def index_of(figure: Locator) -> int:
    return int(figure.evaluate("figure => figure.index"))


@pytest.mark.parametrize("theme", ONE_AND_OTHERS)
@pytest.mark.parametrize(("page", "name"), MANY)
def test_a_figure_in_its_shell(browser, built, page, name, theme):
    with reading(browser, built, page, theme) as (opened, wrong):
        figure = figure_on(opened, name)
        last = int(figure.evaluate("figure => figure.last"))
        assert last >= 2

        # The answer is folded to one line by the first use.
        asks = "predict" in load_figure(name)
        answer = figure.locator(".predict")
        assert answer.count() == asks
        assert not asks or answer.get_attribute("data-open") == "true"
        figure.get_by_role("button", name="Next").click()
        assert index_of(figure) == min(last, int(figure.evaluate("f => f.index")))
        if asks:
            assert answer.get_attribute("data-open") == "false"
            assert answer.evaluate("element => element.offsetHeight") < 45

        figure.locator(".stage").focus()
        opened.keyboard.press("Home")
        assert index_of(figure) == 0
        opened.keyboard.press("ArrowRight")
        assert index_of(figure) == 1
        opened.keyboard.press("ArrowLeft")
        assert index_of(figure) == 0
        opened.keyboard.press("End")
        assert index_of(figure) == last
        assert opened.url.endswith(f"{page}.html"), "a key has turned the page"

        # Scrubbing, stepping, playing.
        scrub = figure.locator(".scrub")
        scrub.fill("1")
        assert index_of(figure) == 1
        assert scrub.get_attribute("aria-valuetext") == figure.locator(".place").inner_text()
        figure.get_by_role("button", name="Back").click()
        expect(figure.get_by_role("button", name="Back")).to_be_disabled()
        figure.get_by_label("Speed").select_option("4")
        figure.get_by_role("button", name="Play").click()
        opened.wait_for_function("figure => figure.index >= 1", arg=figure.element_handle())
        figure.locator(".stage").focus()
        if figure.evaluate("figure => figure.player.isPlaying()"):
            opened.keyboard.press("Space")
        assert not figure.evaluate("figure => figure.player.isPlaying()")

        # No state is higher than another; all of it fits the window.
        seen = figure.evaluate(ALL_STATES)
        holds(seen)
        assert seen["whole"] <= LAPTOP["height"], "higher than the window"

        # A link to a step, in another setting of the page.
        opened.evaluate(f"location.hash = '#fig-{name}-3'")
        opened.wait_for_function("figure => figure.index === 2", arg=figure.element_handle())
        top = figure.evaluate("f => f.closest('figure').getBoundingClientRect().top")
        at_the_end = "scrollY + innerHeight >= document.body.scrollHeight - 2"
        assert 0 <= top < 200 or opened.evaluate(at_the_end)

        opened.evaluate(TO_THEME, theme)
        found = Axe().run(opened, context=f"#figure-{name}", options=WCAG)
        assert found.violations_count == 0, found.generate_report()

        # On a phone it is laid out anew, and bar and stage are seen at once.
        opened.set_viewport_size(SMALL_PHONE)
        opened.wait_for_function(
            "figure => figure.width === figure.stage.clientWidth && figure.width < 380",
            arg=figure.element_handle(),
        )
        seen = figure.evaluate(ALL_STATES)
        holds(seen)
        assert seen["span"] <= SMALL_PHONE["height"] - MENU, "bar and stage do not fit a phone"
        assert wrong == []


def holds(seen: dict[str, Any]) -> None:
    """What is true at any width."""
    assert len(seen["heights"]) == 1, f"the stage jumps: {seen['heights']}"
    assert seen["pictures"] > 2, "nothing changes"
    assert seen["differing"] == 0, "what is shown is not what is drawn from nothing"
    assert seen["keys"] > 0, "nothing can move"
    assert seen["smallest"] >= LEAST_TEXT - 0.01
    assert seen["sideways"] <= 0, "it scrolls sideways"


def test_no_figure_stands_twice():
    names = [name for _, name in FIGURES]
    assert sorted(set(names)) == sorted(names)


def test_a_caption_says_what_is_seen_and_few_tell_the_reader_to_look():
    captions = {name: load_figure(name)["caption"] for _, name in FIGURES}
    assert [name for name, text in captions.items() if len(text.split(". ")) < 2] == []
    assert sum("Look " in text for text in captions.values()) <= 10


LIT = [(page, name) for page, name in FIGURES if load_figure(name).get("code")]
FEW_LIT = nightly_but(LIT[:2], LIT)


@pytest.mark.parametrize(("page", "name"), FEW_LIT)
def test_what_a_figure_shows_is_lit_in_the_listings_of_its_page(browser, built, page, name):
    code = load_figure(name)["code"]
    with reading(browser, built, page) as (opened, wrong):
        figure = figure_on(opened, name)
        for thing, texts in code.items():
            for text in texts:
                listing = opened.locator("main pre > code:not(.language-console)", has_text=text)
                assert listing.count() >= 1, f"no listing has {text!r}"
            # Some state has the thing; there it is lit, and so are its lines.
            shown = figure.evaluate(
                """(figure, thing) => {
                  const tracks = Object.keys(figure.data.tracks ?? { one: 0 });
                  const states = tracks.flatMap((track) => [...Array(40).keys()].map((i) => [track, i]));
                  figure.measure();
                  for (const [track, index] of states) {
                    if (figure.chosen) figure.chosen.value = track;
                    figure.go(index);
                    const found = figure.stage.querySelector(`[data-thing~="${thing}"]`);
                    if (!found) continue;
                    found.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }));
                    const lit = figure.stage.querySelectorAll('.lit').length;
                    const lines = document.querySelectorAll('.lit-line').length;
                    figure.things.light([]);
                    return { lit, lines, after: document.querySelectorAll('.lit-line').length };
                  }
                  return null;
                }""",
                thing,
            )
            if shown is None and name == "sampling":
                continue  # a filter that is off strikes nothing out
            assert shown is not None, f"no state has {thing}"
            assert shown["lit"] >= 1
            assert shown["lines"] >= len(texts)
            assert shown["after"] == 0
        assert wrong == []


def test_enough_figures_are_tied_to_listings():
    assert len(LIT) >= 6


def test_the_keyboard_lights_one_thing_after_the_other(browser, built):
    with reading(browser, built, "radix-tree") as (opened, _):
        figure = figure_on(opened, "radix-tree")
        figure.evaluate("figure => figure.go(5)")
        figure.locator(".stage").focus()
        opened.keyboard.press("ArrowDown")
        first = figure.locator("[role=status].sr-only").inner_text()
        assert figure.locator(".lit").count() >= 1
        opened.keyboard.press("ArrowDown")
        assert figure.locator("[role=status].sr-only").inner_text() != first
        opened.keyboard.press("Tab")
        expect(figure.locator(".lit")).to_have_count(0)


def test_a_listing_lights_the_figure(browser, built):
    with reading(browser, built, "radix-tree") as (opened, _):
        figure = figure_on(opened, "radix-tree")
        figure.evaluate("figure => figure.go(5)")
        listing = opened.locator("pre", has_text="lock_count: int").first
        listing.scroll_into_view_if_needed()
        y = listing.evaluate(
            """pre => {
              const code = pre.querySelector('code');
              const lines = code.textContent.replace(/\\n$/, '').split('\\n');
              const at = lines.findIndex((words) => words.includes('lock_count: int'));
              const style = getComputedStyle(code);
              const pad = parseFloat(style.paddingTop);
              const inner = code.offsetHeight - pad - parseFloat(style.paddingBottom);
              return code.offsetTop + pad + (at + 0.5) * inner / lines.length;
            }"""
        )
        listing.hover(position={"x": 60, "y": y})
        assert figure.locator(".lit").count() >= 1


@pytest.mark.nightly
def test_what_changes_moves_from_its_old_place_unless_motion_is_reduced(browser, built):
    middle = """async (figure) => {
      figure.go(3);
      await new Promise((done) => setTimeout(done, 700));
      figure.go(8);
      const entering = figure.stage.querySelectorAll('[data-key][opacity]').length;
      const ghosts = figure.stage.querySelectorAll('.ghost').length;
      await new Promise((done) => setTimeout(done, 900));
      const rest = figure.stage.querySelectorAll('[opacity]').length;
      return { entering, ghosts, rest,
        ghostsAfter: figure.stage.querySelectorAll('.ghost').length };
    }"""
    for motion in ("no-preference", "reduce"):
        with reading(browser, built, "radix-tree", motion=motion) as (opened, wrong):
            seen = figure_on(opened, "radix-tree").evaluate(middle)
            moved = motion == "no-preference"
            assert (seen["entering"] > 0, seen["ghosts"] > 0) == (moved, moved)
            assert (seen["rest"], seen["ghostsAfter"]) == (0, 0)
            assert wrong == []


@pytest.mark.nightly
def test_a_bar_grows_to_its_new_height(browser, built):
    with reading(browser, built, "gpu", motion="no-preference") as (opened, _):
        widths = figure_on(opened, "latency").evaluate(
            """async (figure) => {
              const bar = () => Number(
                figure.stage.querySelector('[data-key="0-wait-0"]').getAttribute('width'));
              const before = bar();
              figure.values.latency = 150;
              figure.update();
              const began = bar();
              await new Promise((done) => setTimeout(done, 900));
              return [before, began, bar()];
            }"""
        )
        assert widths[1] == pytest.approx(widths[0], abs=0.15 * widths[0])
        assert widths[2] < 0.5 * widths[0]


def test_a_link_opens_a_figure_at_its_step_and_setting(browser, built):
    with reading(browser, built, "scheduler") as (opened, wrong):
        opened.goto(opened.url + "#fig-memory-line-6;track=swap")
        opened.reload()
        figure = opened.locator("#figure-memory-line [data-name]")
        expect(figure.locator(".place")).to_contain_text("6")
        expect(figure.locator("select").last).to_have_value("swap")
        expect(figure.locator(".panel")).to_be_visible()
        figure.get_by_role("button", name="Next").click()
        figure.get_by_role("button", name="Copy a link to this step").click()
        opened.wait_for_url("**/scheduler.html#fig-memory-line-7;track=swap")
        assert wrong == []


WRONG = ["#fig-latency-99;loads=2", "#fig-latency-x", "#fig-latency-4;loads=900;no=1"]


@pytest.mark.parametrize("hash_", nightly_but(WRONG[:1], WRONG))
def test_a_link_that_asks_for_what_there_is_not_opens_what_there_is(browser, built, hash_):
    with reading(browser, built, "gpu") as (opened, wrong):
        opened.goto(opened.url + hash_)
        opened.reload()
        figure = opened.locator("#figure-latency [data-name]")
        values = json.loads(figure.evaluate("figure => JSON.stringify(figure.values)"))
        assert 1 <= values["warps"] <= 16
        assert values["loads"] == (2 if "loads=2" in hash_ else 1)
        assert wrong == []


def test_playing_ends_at_the_last_step_and_begins_anew(browser, built):
    with reading(browser, built, "radix-attention") as (opened, _):
        figure = figure_on(opened, "online-softmax")
        figure.get_by_label("Speed").select_option("4")
        last = int(figure.evaluate("figure => figure.last"))
        figure.evaluate("figure => figure.go(figure.last - 1)")
        figure.get_by_role("button", name="Play").click()
        expect(figure.get_by_role("button", name="Play")).to_be_visible()
        opened.wait_for_function(
            "([f, last]) => f.index === last", arg=[figure.element_handle(), last]
        )
        figure.get_by_role("button", name="Play").click()
        assert index_of(figure) < last


def test_what_is_played_is_drawn_ahead_and_is_what_is_drawn_from_nothing(browser, built):
    page, name = FIGURES[0]
    with reading(browser, built, page, motion="no-preference") as (opened, wrong):
        figure = figure_on(opened, name)
        figure.evaluate("""figure => {
          figure.foreseen = 0;
          const paint = figure.paint;
          figure.paint = (...given) => {
            figure.foreseen += figure.ahead?.key === figure.key(figure.index);
            paint.apply(figure, given);
          };
        }""")
        figure.get_by_label("Speed").select_option("4")
        figure.get_by_role("button", name="Play").click()
        opened.wait_for_function("figure => figure.index >= 5", arg=figure.element_handle())
        figure.get_by_role("button", name="Pause").click()
        assert figure.evaluate("figure => figure.foreseen") >= 5
        figure.evaluate("figure => figure.go(figure.index + 1, 0)")  # ends what still moves
        assert figure.evaluate(IS_AS_DRAWN)
        assert wrong == []


@pytest.mark.parametrize(("page", "name"), FEW)
def test_on_paper_a_figure_shows_a_state_in_which_something_has_happened(
    browser, built, page, name
):
    with reading(browser, built, page) as (opened, _):
        figure = figure_on(opened, name)
        figure.evaluate("figure => figure.go(1)")
        before = figure.locator(".stage").inner_html()
        opened.evaluate("dispatchEvent(new Event('beforeprint'))")
        opened.emulate_media(media="print")
        expect(figure.locator(".panel")).to_be_hidden()
        assert figure.locator(".stage").inner_text().strip() or figure.locator(".stage svg").count()
        opened.emulate_media(media="screen")
        opened.evaluate("dispatchEvent(new Event('afterprint'))")
        assert index_of(figure) == 1
        assert figure.locator(".stage").inner_html() == before
