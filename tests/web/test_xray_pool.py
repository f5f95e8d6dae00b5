"""The map of a large pool begins with the rows in use; a switch shows all of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.book.conftest import browser  # noqa: F401
from tests.web.xray_pages import opened, serving

BLOCKS = 2048


def step(n: int, blocks: list[int], request: str) -> dict[str, Any]:
    """A request that holds these blocks."""
    return {
        "kind": "step", "n": n, "t": n / 10, "running": [request],
        "new": [{"id": request, "prompt_tokens": 16 * len(blocks), "max_tokens": 9}],
        "tables": [[request, column, block] for column, block in enumerate(blocks)],
        "refs": [[block, 1] for block in blocks],
    }  # fmt: skip


@pytest.fixture
def page(browser: Any, tmp_path: Path) -> Iterator[Any]:  # noqa: F811
    """Blocks 0 to 4 in use."""
    with (
        serving(tmp_path) as base,
        opened(browser, f"{base}/viewer.html?recording=") as (page, wrong),
    ):
        page.wait_for_selector(".xray")
        page.evaluate(
            "(lines) => lines.forEach((line) => xray.store.push(line))",
            [
                {"kind": "header", "v": 1, "num_blocks": BLOCKS, "block_size": 16},
                step(1, [0, 1, 2, 3, 4], "one"),
            ],
        )
        shows(page, 1)
        yield page
        assert not wrong


def shows(page: Any, step: int) -> None:
    page.wait_for_selector(f".xray[data-step='{step}']")


def grow(page: Any) -> None:
    """Blocks 900 to 902 are in use as well."""
    page.evaluate("(line) => xray.store.push(line)", step(2, [900, 901, 902], "other"))
    shows(page, 2)


def left_out(page: Any) -> int:
    words: str = page.inner_text(".x-panel-pool .x-more")
    return int(words.split()[0])


def test_a_large_pool_shows_the_rows_in_use(page: Any) -> None:
    row = BLOCKS - left_out(page)
    assert row % 8 == 0
    assert row <= 48
    grow(page)
    assert BLOCKS - left_out(page) == 2 * row
    assert "--num-blocks" in page.inner_text(".x-panel-pool .x-more")
    first = 900 // row * row
    layout = page.evaluate(
        """async () => {
          const { zoomedGrid, groupsInUse } = await import('./xray/pool-layout.js');
          const width = document.querySelector('.x-panel-pool .x-stage').clientWidth;
          const grid = zoomedGrid(2048, groupsInUse(xray.store.state), width);
          return { ...grid, width };
        }"""
    )
    assert layout["blocks"] == [*range(row), *range(first, first + row)]
    assert layout["size"] >= 18  # letters can be read
    assert layout["left"] + layout["columns"] * layout["size"] <= layout["width"]


def test_a_block_of_the_zoomed_map_is_pointed_at(page: Any) -> None:
    grow(page)
    row = (BLOCKS - left_out(page)) // 2
    page.locator(".x-panel-pool .x-stage").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")  # over all rows that are left out
    block = 900 // row * row
    page.wait_for_function(
        f"document.querySelector('.x-pointed').textContent.startsWith('Block {block}:')"
    )


def test_a_row_that_was_in_use_stays_when_one_goes_back(page: Any) -> None:
    grow(page)
    both = left_out(page)
    page.evaluate("xray.store.seek(0)")
    shows(page, 1)
    assert left_out(page) == both


def test_a_switch_shows_all_blocks(page: Any) -> None:
    grow(page)
    switch = page.get_by_role("button", name="All blocks")
    assert switch.get_attribute("aria-pressed") == "false"
    switch.click()
    page.wait_for_selector(".x-panel-pool button[aria-pressed=true]")
    assert "left out" not in page.inner_text(".x-panel-pool .x-more")
    switch.click()
    page.wait_for_selector(".x-panel-pool button[aria-pressed=false]")
    assert left_out(page)


def test_a_small_pool_has_no_switch(page: Any) -> None:
    page.evaluate("xray.store.push({ kind: 'header', v: 1, num_blocks: 12, block_size: 16 })")
    page.wait_for_selector(".x-panel-pool button", state="hidden")
    assert page.inner_text(".x-panel-pool .x-more") == ""


@pytest.mark.parametrize(("used", "size"), [(0, 1), (2048, 4), (300, 8)])
def test_what_is_in_use_fits_however_much_it_is(page: Any, used: int, size: int) -> None:
    grid = page.evaluate(
        """async (used) => {
          const { zoomedGrid } = await import('./xray/pool-layout.js');
          const groups = new Set(Array.from({ length: Math.ceil(used / 8) }, (_, index) => index));
          return zoomedGrid(2048, groups, 600);
        }""",
        used,
    )
    assert grid["size"] >= size
    assert len(grid["blocks"]) >= used
    assert len(grid["blocks"]) // grid["columns"] * grid["size"] <= 300 or grid["size"] == 4
