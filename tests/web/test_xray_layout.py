"""Controls that never wrap, a sentence that moves nothing, columns where there is room."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.book.conftest import browser  # noqa: F401
from tests.marks import nightly_but
from tests.web.xray_pages import opened, serving

WIDTHS = (360, 500, 640, 700, 860, 980, 1100, 1400)


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Iterator[Any]:  # noqa: F811
    with (
        serving(tmp_path) as base,
        opened(browser, f"{base}/viewer.html?recording=samples/preemption.jsonl") as (page, wrong),
    ):
        page.wait_for_selector(".xray[data-step='1']")
        yield page
        assert not wrong


def framed(page: Any) -> None:
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


def top(page: Any, selector: str) -> float:
    return float(page.locator(selector).bounding_box()["y"])


def height(page: Any, selector: str) -> float:
    return float(page.locator(selector).bounding_box()["height"])


@pytest.mark.parametrize("width", nightly_but((360, 700, 980), WIDTHS))
def test_controls_do_not_wrap(page: Any, width: int) -> None:
    """With every button that may be there, at step 12,345: rows are as many as at step 1."""
    page.set_viewport_size({"width": width, "height": 800})
    framed(page)
    before = height(page, ".x-transport")
    page.evaluate(
        """() => {
          const hidden = document.querySelectorAll('.x-transport [hidden]:not(input)');
          // The way back to the engine is there where the engine's own button is not.
          for (const it of hidden) it.hidden = it.title === 'Back to the engine';
          document.querySelector('.x-place').textContent = 'step 12345 of 12345';
        }"""
    )
    assert height(page, ".x-transport") == before
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.locator(".x-buttons").evaluate_all(
        """(groups) => groups.map((group) => {
          const tops = [...group.children].filter((it) => it.offsetParent).map((it) => it.offsetTop);
          return [group.scrollWidth <= group.clientWidth + 1, new Set(tops).size];
        })"""
    )
    assert boxes == [[True, 1], [True, 1]]


@pytest.mark.parametrize("width", [360, 1280])
def test_the_sentence_moves_nothing(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    framed(page)
    before = top(page, ".x-panel-timeline")
    page.evaluate(
        """() => xray.store.push({ kind: 'step', n: 63, t: 9,
          rows: Array.from({ length: 3 }, (_, k) => ({ id: `r${k}`, start: 100, num_tokens: 1000 })),
          preempted: Array.from({ length: 9 }, (_, k) => [`r${k}`, 'recompute']) })"""
    )
    page.evaluate("xray.store.seek(62)")
    page.wait_for_selector(".xray[data-step='63']")
    assert len(page.inner_text(".x-story")) > 300
    assert page.locator(".x-story[tabindex='0']").count()  # the rest is reached by keyboard
    assert top(page, ".x-panel-timeline") == before


@pytest.mark.parametrize(("width", "columns"), [(700, 1), (1000, 2), (1440, 3)])
def test_memory_stands_beside_the_timeline(page: Any, width: int, columns: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    framed(page)
    tops = [top(page, f".x-panel-{name}") for name in ("timeline", "queues", "pool")]
    assert len(set(tops)) == {1: 2, 2: 2, 3: 1}[columns]
    assert (tops[0] == tops[2]) == (columns > 1)
