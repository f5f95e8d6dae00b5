"""Slow motion and step mode: what the page shows of an engine that runs, and what it asks it for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.book.conftest import browser  # noqa: F401
from tests.server.conftest import LiveServer
from tests.web.chat_pages import ask, finished, tutor, visited  # noqa: F401
from tests.web.live_pages import come, decode, mounted
from tests.web.xray_pages import opened, serving


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Iterator[Any]:  # noqa: F811
    with (
        serving(tmp_path) as base,
        opened(browser, f"{base}/viewer.html?recording=") as (page, wrong),
    ):
        yield page
        assert not wrong


def shows(page: Any, step: int) -> None:
    page.wait_for_selector(f".xray[data-step='{step}']")


def now(page: Any) -> int:
    step: int = page.evaluate("xray.store.state.n")
    return step


def test_an_engine_is_shown_as_it_runs(page: Any) -> None:
    mounted(page)
    come(page, *(decode(n, "one") for n in range(1, 41)))
    assert now(page) == 40


def test_slow_motion_shows_every_step_behind_the_engine(page: Any) -> None:
    mounted(page)
    come(page, decode(1, "one"))
    page.get_by_label("Speed of playing").select_option("60")
    page.evaluate(
        """() => {
          window.seen = [];
          xray.store.subscribe(({ state }) => { if (seen.at(-1) !== state.n) seen.push(state.n); });
        }"""
    )
    come(page, *(decode(n, "one") for n in range(2, 32)))
    assert now(page) < 31
    shows(page, 31)
    assert page.evaluate("seen") == list(range(1, 32))
    come(page, decode(32, "one"))  # it waits for more, it does not stop
    shows(page, 32)
    assert page.evaluate("asked") == []  # the engine went on at its own pace


def test_slow_motion_is_paused_where_it_is(page: Any) -> None:
    mounted(page)
    page.get_by_label("Speed of playing").select_option("15")
    come(page, *(decode(n, "one") for n in range(1, 100)))
    page.wait_for_function("xray.store.state.n > 1")
    page.get_by_role("button", name="Pause").click()
    stopped = now(page)
    page.wait_for_timeout(250)
    assert now(page) == stopped
    page.get_by_role("button", name="Play").click()
    page.wait_for_function(f"xray.store.state.n > {stopped}")
    assert now(page) < 99
    page.get_by_label("Speed of playing").select_option("0")
    shows(page, 99)


def test_a_recording_has_no_speed_of_an_engine(page: Any) -> None:
    page.wait_for_selector(".xray")
    speeds = page.locator(".x-options option").all_inner_texts()
    assert speeds == ["2 steps/s", "6 steps/s", "15 steps/s", "60 steps/s"]


def test_step_mode_is_a_button_where_the_server_offers_it(page: Any) -> None:
    button = page.get_by_role("button", name="Step mode")
    mounted(page)
    assert button.count() == 0
    mounted(page, can_pace=True)
    assert button.get_attribute("aria-pressed") == "false"
    come(page, decode(1, "one"))
    forward = page.get_by_role("button", name="One step forward")
    page.wait_for_selector("button[aria-label='One step forward']:disabled")
    button.click()
    page.wait_for_selector(".x-options button[aria-pressed=true]")
    forward.click()
    come(page, decode(2, "one"))
    shows(page, 2)
    button.click()
    page.wait_for_selector(".x-options button[aria-pressed=false]")
    assert page.evaluate("asked") == ["pause", "step", "resume"]


def test_a_page_shows_that_another_one_holds_the_engine(page: Any) -> None:
    mounted(page, can_pace=True)
    come(page, {"kind": "pace", "held": True})
    page.wait_for_selector(".x-options button[aria-pressed=true]")
    come(page, {"kind": "pace", "held": False})
    page.wait_for_selector(".x-options button[aria-pressed=false]")


def test_an_engine_is_stepped_and_let_go(browser: Any, tutor: LiveServer) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        page.evaluate("document.querySelector('.c-next').open = false")
        page.get_by_role("button", name="Step mode").click()
        page.wait_for_selector(".x-options button[aria-pressed=true]")
        ask(page)
        page.wait_for_function("xray.store.head.numWaiting || xray.store.head.requests.size")
        for number in (1, 2, 3):
            page.get_by_role("button", name="One step forward").click()
            page.wait_for_function(
                f"xray.store.records.filter(({{ rows }}) => rows.length).length === {number}"
            )
        page.get_by_role("button", name="Step mode").click()
        finished(page)
