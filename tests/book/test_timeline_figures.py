"""The figures about time show what the schedulers do, and their questions have the answers they name.

What must hold is worked out here from the requests alone: lengths, rows, budgets, blocks.
"""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from book.tools.figures import load_figure, render_figure
from book.tools.mdbook import ROOT
from book.tools.traces import (
    Part,
    batching,
    chunked_prefill,
    memory_line,
    reference,
    trace_file,
)
from book.tools.traces._timeline import FOUR
from solutions.paged_cache.naive import NaiveBlockManager

BOOK = ROOT / "book"
RECORDERS = {"batching": batching, "chunked-prefill": chunked_prefill, "memory-line": memory_line}


def kept(name: str) -> dict[str, Any]:
    """The trace that the book shows."""
    trace: dict[str, Any] = json.loads(trace_file(name).read_text("utf-8"))
    return trace


def right_answer(name: str) -> str:
    [choice] = [c for c in load_figure(name)["predict"]["choice"] if c.get("right")]
    return str(choice["text"])


def with_part(lab: str, **changes: Any) -> Part:
    """The reference, with some names of one lab's package replaced."""
    package: Any = SimpleNamespace(**{**vars(reference(lab)), **changes})
    return lambda wanted: package if wanted == lab else reference(wanted)


@pytest.mark.parametrize("name", RECORDERS)
def test_a_trace_is_what_the_reference_does(name):
    assert RECORDERS[name].LAB == "scheduler"
    assert RECORDERS[name].record(reference) == kept(name)


@pytest.mark.parametrize(
    "name", ["batching", "chunked-prefill"]
)  # block numbers are a design's own
def test_a_part_of_another_design_is_recorded_alike(name):
    part = with_part("paged_cache", BlockManager=NaiveBlockManager)
    assert RECORDERS[name].record(part) == kept(name)


@pytest.mark.parametrize("name", RECORDERS)
def test_a_figure_becomes_html_with_every_caption(name):
    page = render_figure(name)
    tracks = kept(name).get("tracks", {"": kept(name)})
    told = [[step["say"] for step in track["steps"]] for track in tracks.values()]
    runs = [sum(a != b for a, b in pairwise(says)) + 1 for says in told]
    assert page.count("<li") == sum(runs), "a caption that is the one before it stands once"


def test_the_four_are_those_of_the_guide():
    guide = (ROOT / "book/README.md").read_text("utf-8")
    rows = re.findall(r"^\| ([A-D]) \| .+ \| (\d+) \| (\d+) \|$", guide, re.M)
    assert {name: (int(prompt), int(answer)) for name, prompt, answer in rows} == FOUR


# Batching


def rows_of(trace: dict[str, Any], way: str) -> list[list[list[Any]]]:
    return [step[way]["rows"] for step in trace["steps"]]


def first_steps(trace: dict[str, Any], way: str) -> dict[str, int]:
    """The step, from 1, in which each request is computed for the first time."""
    first: dict[str, int] = {}
    for number, rows in enumerate(rows_of(trace, way), 1):
        for name, *_ in filter(None, rows):
            first.setdefault(name, number)
    return first


@pytest.mark.parametrize("way", ["static", "continuous"])
def test_every_request_gets_its_whole_answer_and_no_more(way):
    trace = kept("batching")
    rows = [row for step in rows_of(trace, way) for row in step if row and row[2] != "vain"]
    for request in trace["requests"]:
        own = [kind for name, _, kind in rows if name == request["name"]]
        assert own == ["prompt"] + ["answer"] * (request["answer"] - 1)


def test_no_request_waits_for_a_row_that_is_empty_under_continuous_batching():
    for step in kept("batching")["steps"]:
        assert not (step["continuous"]["waiting"] and [] in step["continuous"]["rows"])
        assert "vain" not in {row[2] for row in step["continuous"]["rows"] if row}


def test_a_static_batch_is_as_long_as_its_longest_answer():
    trace = kept("batching")
    answer = {request["name"]: request["answer"] for request in trace["requests"]}
    first = first_steps(trace, "static")
    begins = sorted(set(first.values()))
    batches = [[name for name in first if first[name] == begin] for begin in begins]
    longest = [max(answer[name] for name in batch) for batch in batches]
    assert [end - begin for begin, end in pairwise([*begins, len(trace["steps"]) + 1])] == longest
    lost = sum(row[2] == "vain" for step in rows_of(trace, "static") for row in step if row)
    wanted = zip(batches, longest, strict=True)
    assert lost == sum(most - answer[name] for batch, most in wanted for name in batch)


def test_the_answer_about_batching_is_what_happens():
    trace = kept("batching")
    steps = [first_steps(trace, way)["E"] for way in ("static", "continuous")]
    assert [int(number) for number in re.findall(r"\d+", right_answer("batching"))] == steps
    asked = load_figure("batching")["predict"]["ask"]
    lengths = ", ".join(str(request["answer"]) for request in trace["requests"][:3])
    assert f"need {lengths} and {trace['requests'][3]['answer']} steps" in asked


# Chunked prefill


def tracks() -> Iterator[tuple[str, dict[str, Any]]]:
    yield from kept("chunked-prefill")["tracks"].items()


def test_a_budget_is_kept_and_a_prompt_computed_once():
    for key, track in tracks():
        totals = [sum(step["tokens"].values()) for step in track["steps"]]
        assert max(totals) <= (track["budget"] or 10**6)
        chunks = [step["tokens"].get(track["long"], 0) for step in track["steps"]]
        assert sum(chunks) == track["prompt"] + track["steps"][-1]["tokens"][track["long"]]
        assert (sum(chunk > 1 for chunk in chunks) == 1) == (key == "whole")


def test_those_who_answer_gain_a_token_in_every_step():
    for _, track in tracks():
        for step in track["steps"]:
            assert set(track["talkers"]) <= set(step["drew"])
            assert all(step["tokens"][name] == 1 for name in track["talkers"])


def test_smaller_chunks_mean_shorter_waits_for_all_but_the_newcomer():
    totals = kept("chunked-prefill")["tracks"]["whole"]["totals"]
    assert [total["longest"] for total in totals] == [163, 64, 16]
    assert all(a["steps"] < b["steps"] and a["wait"] < b["wait"] for a, b in pairwise(totals))


def test_a_step_s_time_is_what_was_measured():
    script = (BOOK / "theme/figures/chunked-prefill.js").read_text("utf-8")
    [line] = re.findall(r"const MS = \{(.+)\};", script)
    ms = {name: float(value) for name, value in re.findall(r"(\w+): ([\d.]+)", line)}
    steps = json.loads((BOOK / "evidence/start_phases.json").read_text("utf-8"))["steps"]
    one, four, prefill = (
        steps[name]["total_ms"] for name in ("decode_1", "decode_4", "prefill_512")
    )
    assert ms["decode"] == pytest.approx((four - one) / 3, rel=0.02)
    assert ms["step"] == pytest.approx(one - ms["decode"], rel=0.01)
    assert ms["prompt"] == pytest.approx((prefill - one) / 511, rel=0.01)


def test_the_answer_about_chunks_is_what_happens():
    quiet, *_, longest = sorted(
        sum(step["tokens"].values()) for step in kept("chunked-prefill")["tracks"]["whole"]["steps"]
    )
    assert f"computes {longest} tokens instead of {quiet}" in right_answer("chunked-prefill")
