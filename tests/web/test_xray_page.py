"""The X-ray in a browser: a recording without an engine, a keyboard, sizes, themes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.book.conftest import browser  # noqa: F401
from tests.marks import nightly_but
from tests.web.recorded import Recording, four
from tests.web.xray_pages import opened, serving

WIDTHS = (360, 768, 1280, 1920)


@pytest.fixture(scope="module")
def preempting() -> Recording:
    """Four requests in a pool that is too small for them."""
    return four(every=0, num_blocks=12)


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any, preempting: Recording) -> Path:
    folder: Path = tmp_path_factory.mktemp("files")
    preempting.write(folder / "small.jsonl")
    return folder


@pytest.fixture(scope="module")
def address(files: Path) -> Iterator[str]:
    with serving(files) as address:
        yield f"{address}/viewer.html?recording=files/small.jsonl"


def shown(page: Any, step: int | None = None) -> None:
    """Wait until the page has drawn the state it is at."""
    number = "xray.store.state.n" if step is None else str(step)
    page.wait_for_function(
        f"document.querySelector('.xray')?.dataset.step === String({number}) "
        f"&& xray.store.records.length && xray.store.state.n === {number}"
    )


def go(page: Any, index: int) -> None:
    page.evaluate(f"xray.store.seek({index})")
    shown(page, index + 1)
    # The frame after the one that wrote the number.
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


def story(page: Any) -> str:
    return str(page.inner_text(".x-story"))


def preemption(recording: Recording) -> int:
    """The index of the step that preempts."""
    steps = recording.lines[1:]
    return next(index for index, step in enumerate(steps) if step["preempted"])


def test_a_recording_is_shown_without_an_engine(browser, address, preempting):  # noqa: F811
    with opened(browser, address) as (page, wrong):
        shown(page, 1)
        go(page, preemption(preempting))
        assert "No block is free: D is preempted" in story(page)
        assert page.inner_text(".x-panel-queues h3 >> nth=1") == "Waiting 1"
        assert "preempted" in page.inner_text("ol[aria-label='Waiting requests']")
        state = preempting.states[preemption(preempting)]
        cells = page.locator(".x-tables li").evaluate_all(
            "(rows) => rows.map((row) => [row.querySelector('.x-chip').title, "
            "[...row.querySelectorAll('.x-cell')].map((cell) => Number(cell.textContent))])"
        )
        assert dict(cells) == state["tables"]
        assert f"{len(state['tree'])} nodes" in page.get_attribute(
            ".x-panel-tree svg", "aria-label"
        )
        assert not wrong


def test_the_viewer_opens_a_recording_and_plays_it(browser, files):  # noqa: F811
    with serving(files) as base:
        bare = f"{base}/viewer.html"
        with opened(browser, bare, reduced_motion="no-preference") as (page, wrong):
            page.wait_for_function("xray.store.records.length === 62 && xray.store.state.n > 2")
            assert page.get_by_role("button", name="Pause").is_visible()
            assert page.inner_text("[aria-current=page]") == "A pool too small for them"
            assert not wrong
        with opened(browser, bare) as (page, wrong):  # where motion is not wanted, it waits
            shown(page, 1)
            assert page.get_by_role("button", name="Play").is_visible()
            assert not wrong


@pytest.mark.nightly
def test_the_strictest_policy_is_enough(browser, address):  # noqa: F811
    """No script and no style within a page, nothing of another host, no evaluated text."""
    with opened(browser, address, bypass_csp=False) as (page, wrong):
        page.wait_for_selector(".xray[data-step='1']")
        page.get_by_role("button", name="One step forward").click()
        page.wait_for_selector(".xray[data-step='2']")
        page.wait_for_selector(".x-progress .x-prompt[style*=width]")
        assert not wrong


def test_the_pool_s_legend_counts_what_the_engine_counts(browser, address, preempting):  # noqa: F811
    with opened(browser, address) as (page, wrong):
        shown(page, 1)
        for index in (0, 5, preemption(preempting), len(preempting.states) - 1):
            go(page, index)
            state = preempting.states[index]
            holders = [block for table in state["tables"].values() for block in table]
            shared = {block for block in holders if holders.count(block) > 1}
            counts = [
                int(text) for text in page.locator(".x-panel-pool .x-legend b").all_inner_texts()
            ]
            cached = len(state["refs"]) - len(set(holders))
            assert counts == [
                len(set(holders)) - len(shared),
                len(shared),
                cached,
                12 - len(state["refs"]),
            ]
        assert not wrong


def test_keyboard_alone_steps_plays_and_looks_at_blocks(browser, address):  # noqa: F811
    with opened(browser, address) as (page, wrong):
        shown(page, 1)
        page.locator(".x-panel-timeline .x-stage").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        shown(page, 3)
        page.keyboard.press("Home")
        shown(page, 1)
        page.keyboard.press(".")
        shown(page, 2)
        page.keyboard.press(",")
        shown(page, 1)
        page.keyboard.press(" ")
        page.wait_for_function("xray.store.state.n > 3")
        page.keyboard.press(" ")
        stopped = page.evaluate("xray.store.state.n")
        page.wait_for_timeout(400)
        assert page.evaluate("xray.store.state.n") == stopped
        page.locator(".x-panel-pool .x-stage").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "document.querySelector('.x-pointed').textContent.startsWith('Block 1:')"
        )
        page.get_by_role("slider", name="Step").focus()
        page.keyboard.press("End")
        shown(page, page.evaluate("xray.store.records.length"))
        assert not wrong


@pytest.mark.nightly
def test_what_is_pointed_at_lights_up_everywhere(browser, address):  # noqa: F811
    with opened(browser, address) as (page, wrong):
        shown(page, 1)
        go(page, 8)
        page.hover(".x-panel-queues li >> nth=1")
        page.wait_for_selector(".x-tables li[data-lit=true]")
        assert "B (B): running, 47 prompt tokens, 32 of them from the tree" in page.inner_text(
            ".x-pointed"
        )
        page.hover(".x-tables .x-cell >> nth=0")
        page.wait_for_selector(".x-panel-tree [data-lit=true]")
        assert page.locator(".x-tables .x-cell[data-lit=true]").count() == 4
        assert page.inner_text(".x-pointed").startswith("Block 0: 5 references.")
        page.mouse.move(2, 2)
        page.wait_for_function("document.querySelector('.x-pointed').textContent === ''")
        assert not wrong


def test_the_timeline_goes_to_the_step_that_is_clicked(browser, address):  # noqa: F811
    with opened(browser, address) as (page, wrong):
        shown(page, 1)
        page.locator(".x-panel-timeline canvas").click(position={"x": 34 + 16 * 6 + 8, "y": 70})
        shown(page, 7)
        assert not wrong


def test_a_recording_is_saved_and_opened_again(browser, address, tmp_path):  # noqa: F811
    with opened(browser, address, accept_downloads=True) as (page, wrong):
        shown(page, 1)
        with page.expect_download() as download:
            page.get_by_role("button", name="Save a recording").click()
        saved = tmp_path / "saved.jsonl"
        download.value.save_as(saved)
        original = (page.evaluate("xray.store.records"), page.evaluate("xray.store.header"))
        page.set_input_files("input[type=file]", saved)
        page.wait_for_function(
            "document.querySelector('.x-status').textContent.includes('saved.jsonl')"
        )
        assert (page.evaluate("xray.store.records"), page.evaluate("xray.store.header")) == original
        (tmp_path / "broken.jsonl").write_text("hello\n")
        page.set_input_files("input[type=file]", tmp_path / "broken.jsonl")
        page.wait_for_function(
            "document.querySelector('.x-status').textContent.includes('not JSON')"
        )
        assert page.evaluate("xray.store.records.length") == len(original[0])
        assert not wrong


def test_text_of_prompts_and_answers_is_never_markup(browser, tmp_path):  # noqa: F811
    bad = "<img src=x onerror=alert(1)><script>window.hit = 1</script>&lt;b&gt;"
    lines = [
        {"kind": "header", "v": 1, "num_blocks": 4, "parts": [{"lab": bad, "whose": bad}]},
        {
            "kind": "step",
            "n": 1,
            "t": 0.1,
            "new": [{"id": bad, "prompt_tokens": 3, "max_tokens": 9, "words": bad}],
            "rows": [{"id": bad, "start": 0, "num_tokens": 3, "out": [1], "text": bad}],
            "running": [bad],
            "tables": [[bad, 0, 0]],
            "refs": [[0, 1]],
            "finished": [[bad, bad]],
        },
    ]  # fmt: skip
    (tmp_path / "bad.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with (
        serving(tmp_path) as base,
        opened(browser, f"{base}/viewer.html?recording=files/bad.jsonl") as (page, wrong),
    ):
        shown(page, 1)
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("window.hit") is None
        assert bad in story(page)
        assert not wrong


@pytest.mark.nightly
def test_another_site_s_recording_is_not_read(browser, files):  # noqa: F811
    with (
        serving(files) as base,
        opened(browser, f"{base}/viewer.html?recording=https://example.org/x.jsonl") as (
            page,
            wrong,
        ),
    ):
        page.wait_for_selector(".xray")
        page.wait_for_timeout(200)
        assert not wrong


@pytest.mark.parametrize("scheme", nightly_but(["light"], ["light", "dark"]))
def test_axe_finds_nothing(browser, address, preempting, scheme):  # noqa: F811
    with opened(browser, address, color_scheme=scheme) as (page, wrong):
        shown(page, 1)
        go(page, preemption(preempting))
        found = Axe().run(page).response["violations"]
        assert not [(each["id"], each["nodes"][0]["html"]) for each in found]
        assert not wrong


@pytest.mark.parametrize("width", nightly_but(WIDTHS[:1], WIDTHS))
def test_nothing_runs_out_of_the_page(browser, address, preempting, width):  # noqa: F811
    with opened(browser, address, viewport={"width": width, "height": 800}) as (page, wrong):
        shown(page, 1)
        go(page, preemption(preempting))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        clipped = page.evaluate(
            "() => [...document.querySelectorAll('.xray button')]"
            ".filter((each) => each.scrollWidth > each.clientWidth + 1).length"
        )
        assert clipped == 0
        assert not wrong
