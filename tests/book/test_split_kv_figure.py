"""The figure `split-kv` divides sequences as the kernels of lab 11 do; its places take what they can."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.nightly

BOOK = Path(__file__).parents[2] / "book"


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page()
    for name in ("base", "stage", "split-kv"):
        page.add_script_tag(path=str(BOOK / f"theme/figures/{name}.js"))
    yield page
    page.close()


def run(page: Any, lengths: list[int], splits: int) -> dict[str, Any]:
    result: dict[str, Any] = page.evaluate(
        "([lengths, splits]) => splitKv.simulate({ lengths, splits, places: 8 })", [lengths, splits]
    )
    return result


def test_parts_are_whole_tiles_and_none_is_empty(page: Any) -> None:
    programs = page.evaluate("splitKv.programs([300, 64, 1], 3)")
    assert programs == [[0, 128], [0, 128], [0, 44], [1, 64], [2, 1]]


def test_nine_programs_on_eight_places_take_two_rounds(page: Any) -> None:
    whole = run(page, [1024] * 9, 1)
    assert (whole["end"], whole["busy"]) == (2 * (1024 + 48), 9 / 16)
    assert run(page, [1024] * 9, 4)["end"] < whole["end"]


def test_eight_sequences_lose_by_splitting(page: Any) -> None:
    ends = [run(page, [1024] * 8, splits)["end"] for splits in (1, 2, 4, 8)]
    assert ends == sorted(ends)


def test_one_sequence_is_best_in_as_many_parts_as_there_are_places(page: Any) -> None:
    ends = {splits: run(page, [1024], splits)["end"] for splits in range(1, 17)}
    assert min(ends, key=ends.__getitem__) == 8
