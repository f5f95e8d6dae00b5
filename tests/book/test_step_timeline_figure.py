"""The figure `step-timeline` runs three recorded loops on one clock, with the chapter's numbers."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from book.tools.figures import load_figure
from book.tools.mdbook import ROOT
from book.tools.traces import reference, step_timeline, trace_file
from tests.book.reading import reading

TRACE: dict[str, Any] = json.loads(trace_file("step-timeline").read_text("utf-8"))


def told(way: str) -> list[int]:
    """When each token was told."""
    spans = TRACE["tracks"][way]["steps"][-1]["host"]
    return [end for name, _, _, end in spans if name == "text"]


def test_the_trace_is_what_the_loops_do():
    assert json.loads(json.dumps(step_timeline.record(reference))) == TRACE


@pytest.mark.parametrize(("way", "apart"), [("launched", 17), ("replayed", 11), ("ahead", 6)])
def test_tokens_are_as_far_apart_as_the_chapter_says(way, apart):
    assert {b - a for a, b in pairwise(told(way))} == {apart}
    chapter = (ROOT / "book/src/cuda-graphs.md").read_text("utf-8")
    assert re.search(rf"\b{apart}\s+units", chapter)


def test_the_question_has_the_answer_of_the_loop_that_runs_ahead():
    [right] = [c for c in load_figure("step-timeline")["predict"]["choice"] if c.get("right")]
    assert right["text"].startswith("6 units")


def test_the_clock_shows_all_three_at_once(browser, built):
    with reading(browser, built, "cuda-graphs") as (opened, wrong):
        figure = opened.locator("#figure-step-timeline")
        figure.get_by_role("button", name="Show without guessing").click()
        figure.get_by_role("slider").fill("23")
        tokens = [sum(end <= 23 for end in told(way)) for way in ("launched", "replayed", "ahead")]
        expected = f"At 23 the clients have {tokens[0]}, {tokens[1]} and {tokens[2]} tokens"
        assert expected in figure.locator(".said").inner_text()
        for way, count in zip(("launched", "replayed", "ahead"), tokens, strict=True):
            assert figure.locator(f"[data-key^='token-{way}-']").count() >= count
        assert wrong == []
