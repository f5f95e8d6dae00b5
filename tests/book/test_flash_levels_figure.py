"""The figure `flash-levels` counts the bytes that the runtime counts for the reference's kernel."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from book.tools.figures import load_figure
from book.tools.mdbook import ROOT
from solutions.cuda_flash_attention import FlashAttention
from yaie.cuda.on_cpu import recording

pytestmark = pytest.mark.nightly

THEME = ROOT / "book/theme/figures"


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page()
    for name in (
        "base",
        "question",
        "tween",
        "stage",
        "things",
        "link",
        "player",
        "shell",
        "kinds",
    ):
        page.add_script_tag(path=str(THEME / f"{name}.js"))
    page.add_script_tag(path=str(THEME / "flash-levels.js"))
    yield page
    page.close()


@pytest.mark.parametrize(("tokens", "dim"), [(128, 32), (192, 128)])
def test_the_counts_are_those_of_the_kernel(page, tokens, dim):
    q, k, v = (torch.randn(1, tokens, 1, dim) for _ in range(3))
    with recording() as launches:
        FlashAttention().forward(q, k, v, scale=1.0, causal=True)
    (launch,) = launches
    shape = {"tokens": tokens, "dim": dim, "rows": 64}
    assert page.evaluate("shape => flashLevels.count(shape)", shape) == {
        "read": launch.global_loads.bytes,
        "written": launch.global_stores.bytes,
        "filled": launch.shared_stores.bytes,
        "used": launch.shared_loads.bytes,
    }


def test_the_question_counts_the_tiles_of_keys(page):
    walk = page.evaluate("flashLevels.walk({ tokens: 256, rows: 64 })")
    assert (
        sum(what == "keys" for what, *_ in walk) == load_figure("flash-levels")["predict"]["number"]
    )
    larger = page.evaluate("flashLevels.walk({ tokens: 256, rows: 128 })")
    assert sum(what == "keys" for what, *_ in larger) == 6


def test_the_obvious_program_moves_the_scores_six_times(page):
    moved = page.evaluate("flashLevels.obvious({ tokens: 256, dim: 64 })")
    assert moved["scores"] == 6 * 256 * 256 * 4
    assert moved["read"] + moved["written"] == moved["scores"] + 4 * 256 * 64 * 4
