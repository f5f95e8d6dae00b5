"""The figure `routing` sends each turn where the score says, and its question has its answer."""

from collections.abc import Iterator
from typing import Any

import pytest

from book.tools.figures import load_figure
from book.tools.mdbook import ROOT

THEME = ROOT / "book/theme/figures"
TURNS, CHATS, SYSTEM, NEW = 10, 60, 2000, 300
PROMPTS = CHATS * sum(SYSTEM + NEW * (turn + 1) for turn in range(TURNS))


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page()
    for name in ("base", "stage", "around", "routing"):
        page.add_script_tag(path=str(THEME / f"{name}.js"))
    yield page
    page.close()


def run(page: Any, **given: Any) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate("given => routing.run(given)", given)
    return found


def served(found: dict[str, Any]) -> list[int]:
    return [one["served"] for one in found["replicas"]]


def test_each_round_has_a_turn_of_every_chat(page):
    arrivals = page.evaluate("routing.arrivals()")
    assert [turn for _, turn in arrivals] == [turn for turn in range(TURNS) for _ in range(CHATS)]
    rounds = [[chat for chat, of in arrivals if of == turn] for turn in range(TURNS)]
    assert all(sorted(one) == list(range(CHATS)) for one in rounds)
    assert len({tuple(one) for one in rounds}) == TURNS


def test_by_the_cache_alone_one_replica_gets_everything_and_finds_all_that_can_be_found(page):
    found = run(page, replicas=8, weight=0, way="score")
    assert served(found) == [600, *[0] * 7]
    # The system prompt, but for the first request; then what the turn before had.
    cached = SYSTEM * (CHATS - 1) + CHATS * sum(SYSTEM + NEW * turn for turn in range(1, TURNS))
    assert found["found"] == pytest.approx(cached / PROMPTS)


def test_in_turn_all_get_as_many_and_the_caches_have_less(page):
    dealt = run(page, replicas=8, weight=0, way="turn")
    assert served(dealt) == [75] * 8
    assert dealt["found"] < run(page, replicas=8, weight=0.75, way="score")["found"] - 0.1
    # Each replica computes the system prompt once and finds at least that ever after.
    assert dealt["found"] >= SYSTEM * (600 - 8) / PROMPTS


def test_a_larger_weight_spreads_the_load_and_finds_less(page):
    runs = [run(page, replicas=8, weight=weight, way="score") for weight in (0, 0.25, 0.5, 1, 2)]
    assert [max(served(one)) for one in runs] == sorted(
        (max(served(one)) for one in runs), reverse=True
    )
    shares = [one["found"] for one in runs]
    assert shares == sorted(shares, reverse=True)


def test_the_chapter_counts_the_replicas_that_stay_empty(page):
    half, one = (run(page, replicas=8, weight=weight, way="score") for weight in (0.5, 1))
    assert served(half).count(0) == 2
    assert load_figure("routing")["predict"]["number"] == 6  # the figure's answer
    assert served(one).count(0) == 0
    assert one["found"] < half["found"]
