"""The figures `copy-rows` and `block-sum` count and sum as they say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from book.tools.figures import load_figure

pytestmark = pytest.mark.nightly

FIGURES = Path(__file__).parents[2] / "book/theme/figures"


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page with the figures' scripts and nothing else."""
    page = browser.new_page()
    for name in ("base", "stage", "copy-rows", "block-sum"):
        page.add_script_tag(path=str(FIGURES / f"{name}.js"))
    yield page
    page.close()


@pytest.mark.parametrize(
    ("way", "instructions", "sectors"), [("token", 32, 256), ("number", 32, 32), ("pack", 4, 16)]
)
def test_rows_are_read_in_so_many_sectors(
    page: Any, way: str, instructions: int, sectors: int
) -> None:
    assert page.evaluate(f"copyRows.MAPS.{way}.instructions") == instructions
    moved = page.evaluate(f"copyRows.moved(copyRows.MAPS.{way}, {instructions})")
    assert sum(map(sum, moved)) == sectors


@pytest.mark.parametrize("way", ["token", "number", "pack"])
def test_every_number_is_read_once(page: Any, way: str) -> None:
    reads = page.evaluate(
        f"Array.from({{ length: copyRows.MAPS.{way}.instructions }}, "
        f"(_, step) => copyRows.MAPS.{way}.reads(step)).flat()"
    )
    numbers = [(read["row"], read["from"] + i) for read in reads for i in range(int(read["count"]))]
    assert sorted(numbers) == [(row, i) for row in range(8) for i in range(32)]


def test_the_question_about_sectors_has_the_answer_that_the_figure_gives() -> None:
    assert load_figure("copy-rows")["predict"]["number"] == 256


@pytest.mark.parametrize(
    ("way", "results"),
    [("both", [78, 78, 78]), ("reading", [10, 36, 78]), ("between", [78, 78, 72])],
)
def test_a_barrier_less_gives_another_sum(page: Any, way: str, results: list[int]) -> None:
    states = page.evaluate(f"blockSum.states('{way}')")
    assert states[-1]["result"] == results
    assert [state["barrier"] for state in states].count(True) == (2 if way == "both" else 1)
