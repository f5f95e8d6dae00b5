"""Steps that share a record are a break in the timeline; a page asks for a record of every step."""

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


def test_a_page_sees_every_step_of_an_answer(browser: Any, tutor: LiveServer) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        page.evaluate("document.querySelector('.c-next').open = false")
        ask(page)
        finished(page)
        page.wait_for_function(
            "xray.store.head.running.length === 0 && xray.store.records.length > 1"
        )
        steps = page.evaluate("xray.store.records.map(({ n, merged }) => [n, merged])")
        first = steps[0][0]
        assert steps == [[first + index, 1] for index in range(len(steps))]
        assert len(steps) > 10


def test_a_record_of_several_steps_is_a_break(page: Any) -> None:
    mounted(page)
    come(page, decode(1, "one"), decode(37, "one", merged=36), decode(38, "one"))
    page.wait_for_selector(".xray[data-step='38']")
    told = page.get_attribute(".x-panel-timeline canvas", "aria-label")
    assert told == "Timeline: 3 of 3 kept steps, 1 request. Breaks: 1, each of several steps."


def test_the_bar_of_a_break_is_a_step_s(page: Any) -> None:
    """Three steps of a budget of 512 tokens each: 1,536 would pass the line of the budget."""
    page.wait_for_selector(".xray")
    found = page.evaluate(
        """async () => {
          const { tokensOf } = await import('./xray/timeline-layout.js');
          const rows = [{ id: 'long', num_tokens: 1527, is_prefill: true },
            ...Array.from({ length: 3 }, (_, k) => ({ id: `r${k}`, num_tokens: 3 }))];
          return tokensOf({ merged: 3, rows });
        }"""
    )
    assert found == [509, 3]


def test_a_break_is_torn_and_a_step_is_not(page: Any) -> None:
    """The middle of a column, in a lane: a decode's colour, or the paper's between the torn edges."""
    mounted(page)
    come(page, decode(1, "one"), decode(5, "one", merged=4), decode(6, "one"))
    page.wait_for_selector(".xray[data-step='6']")
    colours = page.evaluate(
        """() => {
          const canvas = document.querySelector('.x-panel-timeline canvas');
          const ratio = devicePixelRatio, g = canvas.getContext('2d');
          const lane = 46 + 6 + 12; // TOP, its margin, half a lane
          return [0, 1, 2].map((column) =>
            [...g.getImageData((34 + 24 * column + 12) * ratio, lane * ratio, 1, 1).data].join());
        }"""
    )
    assert colours[0] == colours[2] != colours[1]
