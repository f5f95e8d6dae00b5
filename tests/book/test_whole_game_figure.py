"""The figure `whole-game` replays what the engine did: tokens, blocks, tree, answers."""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from book.tools.mdbook import ROOT
from book.tools.traces import reference, trace_file, whole_game
from book.tools.traces._asides import QUIET
from book.tools.traces._timeline import BLOCK_SIZE, FOUR
from tests.book.reading import reading

THEME = ROOT / "book/theme/figures"
SHARED = ("base", "question", "tween", "stage", "things", "link", "player", "shell", "kinds")
TRACE: dict[str, Any] = json.loads(trace_file("whole-game").read_text("utf-8"))
TRACKS = sorted(TRACE["tracks"])


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page()
    for name in (*SHARED, "whole-game"):
        page.add_script_tag(path=str(THEME / f"{name}.js"))
    yield page
    page.close()


@pytest.fixture
def states(page: Any, track: str) -> list[dict[str, Any]]:
    """The states as the page makes them of the recording."""
    made: list[dict[str, Any]] = page.evaluate(
        "track => wholeGame.states(track)", TRACE["tracks"][track]
    )
    return made


def test_the_trace_is_what_the_engine_does():
    assert whole_game.record(reference) == TRACE


def test_the_chapter_counts_the_steps_that_were_recorded():
    steps = TRACE["tracks"]["plenty"]["steps"]
    chapter = (ROOT / "book/src/whole-game.md").read_text("utf-8")
    assert f"All four are done after {len(steps) - 1} steps:" in chapter


def test_the_first_page_plays_once_by_itself_where_motion_is_wanted(browser, built):
    with reading(browser, built, "index", motion="no-preference") as (opened, wrong):
        figure = opened.locator("yaie-whole-game")
        assert figure.locator(".predict").count() == 0
        opened.wait_for_function("figure => figure.index >= 2", arg=figure.element_handle())
        assert figure.locator(".said").get_attribute("aria-live") == "off"
        figure.get_by_role("button", name="Pause").click()
        stopped = figure.evaluate("figure => figure.index")
        opened.wait_for_timeout(1500)
        assert figure.evaluate("figure => figure.index") == stopped
        assert figure.locator(".said").get_attribute("aria-live") == "polite"
        assert wrong == []


def test_nothing_plays_where_motion_is_not_wanted_or_a_step_was_asked_for(browser, built):
    for motion, hash_ in (("reduce", ""), ("no-preference", "#fig-whole-game-12")):
        with reading(browser, built, "index", motion=motion) as (opened, wrong):
            if hash_:
                opened.goto(opened.url.partition("#")[0] + hash_)
                opened.reload()
            opened.wait_for_timeout(1200)
            assert opened.locator("yaie-whole-game").get_by_role("button", name="Play").count() == 1
            assert wrong == []


@pytest.mark.parametrize("track", TRACKS)
class TestStates:
    def test_every_request_gets_its_whole_answer(self, states):
        drawn = Counter(name for state in states for name in state["pieces"])
        assert drawn == {name: answer for name, (_, answer) in FOUR.items()}
        assert states[-1]["done"] == [*dict.fromkeys(states[-1]["done"])]
        assert sorted(states[-1]["done"]) == sorted(FOUR)

    def test_the_answers_are_the_same_with_little_memory(self, page, states):
        plain = page.evaluate("track => wholeGame.states(track)", TRACE["tracks"]["plenty"])
        assert states[-1]["texts"] == plain[-1]["texts"]
        assert states[-1]["texts"]["A"].startswith("The KV cache stores")

    def test_a_request_computes_where_it_stopped_or_where_its_cached_blocks_end(self, states):
        for before, now in pairwise(states):
            for name, start, _, _ in now["rows"]:
                went_on = start == before["computed"].get(name, 0)
                assert went_on or start % BLOCK_SIZE == 0
                if not went_on:
                    assert name in before["queue"]

    def test_a_running_request_has_a_slot_for_each_token_that_is_computed(self, states):
        for state in states:
            for name, table in state["tables"].items():
                held = sum(state["pool"][block][2] for block in table)
                assert held == state["computed"][name]
                assert len(table) == -(-held // BLOCK_SIZE)

    def test_the_tree_holds_full_blocks_once_and_a_locked_node_is_in_a_table(self, states):
        for state in states:
            blocks = [block for _, own, _ in state["tree"] for block in own]
            assert len(blocks) == len(set(blocks))
            assert all(state["pool"][block][2] == BLOCK_SIZE for block in blocks)
            used = {block for table in state["tables"].values() for block in table}
            assert all(set(own) <= used for _, own, locks in state["tree"] if locks)
            assert not any(set(own) & used for _, own, locks in state["tree"] if not locks)

    def test_a_block_that_is_in_no_table_and_not_in_the_tree_is_empty(self, states):
        for state in states:
            used = {block for table in state["tables"].values() for block in table}
            used |= {block for _, own, _ in state["tree"] for block in own}
            assert {b for b, entry in enumerate(state["pool"]) if entry} == used


@pytest.mark.parametrize("track", TRACKS)
def test_a_step_in_which_requests_only_decode_says_something_besides(track):
    said = [step["say"] for step in TRACE["tracks"][track]["steps"]]
    assert not [words for words in said if QUIET.fullmatch(words)]
    assert len(set(said)) > 25


def test_one_by_one_each_token_takes_a_step(page):
    plenty = TRACE["tracks"]["plenty"]
    alone = [
        page.evaluate("([track, at]) => wholeGame.alone(track, at)", [plenty, n])
        for n in (0, 2, 58)
    ]
    assert alone == [0, 5, sum(answer for _, answer in FOUR.values())]


@pytest.mark.parametrize("track", ["plenty"])
def test_the_plain_run_is_the_table_of_the_chapter(states):
    """Of whole-game.md: tokens and most blocks of its rows of steps."""
    tokens = [sum(row[2] for row in state["rows"]) for state in states]
    assert [tokens[n] for n in (1, 2, 3, 30, 35, 58)] == [48, 46, 4, 3, 2, 1]
    used = [len({b for table in state["tables"].values() for b in table}) for state in states]
    assert (used[1], used[2], max(used)) == (3, 7, 14)


@pytest.mark.parametrize("track", ["scarce"])
def test_little_memory_makes_chunks_and_preempts(states):
    assert [name for state in states for name in state["preempted"]] == ["D", "C"]
    assert states[1]["rows"][0][1:3] == [0, 40]


@pytest.mark.nightly
def test_tokens_go_from_their_row_to_a_slot(browser, built):
    """The squares of A's prompt are in its row at first, and in the pool a step later."""
    with reading(browser, built, "index") as (opened, wrong):
        figure = opened.locator("#figure-whole-game")
        square = figure.locator("[data-key='token-A-0']")
        in_row = square.bounding_box()
        figure.get_by_role("button", name="Next").click()
        in_pool = square.bounding_box()
        assert in_pool["x"] > in_row["x"] + 100
        assert figure.locator("[data-key^='token-A-']").count() == FOUR["A"][0] // 4 + 1
        assert figure.locator("[data-key^='token-B-']").count() == 4, "15 tokens, in fours"
        assert wrong == []
