"""The figure `memory-line`: tables and moves of a pool that is too small, and the answer it gives."""

import json
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from book.tools.figures import load_figure
from book.tools.traces import memory_line, reference, trace_file
from book.tools.traces._timeline import BLOCK_SIZE, FOUR

TRACKS: dict[str, Any] = json.loads(trace_file("memory-line").read_text("utf-8"))["tracks"]
WAYS = sorted(TRACKS)
PREFIX_BLOCKS = memory_line.PREFIX // BLOCK_SIZE


def steps_of(way: str) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = TRACKS[way]["steps"]
    return steps


@pytest.mark.parametrize("way", WAYS)
class TestEveryStep:
    def test_a_block_is_shared_only_at_the_beginning_of_tables(self, way):
        for step in steps_of(way):
            tables = step["tables"]
            for name, table in tables.items():
                for column, block in enumerate(table):
                    others = [n for n, other in tables.items() if n != name and block in other]
                    assert not others or column < PREFIX_BLOCKS, (step["say"], block)

    def test_no_more_blocks_than_there_are_and_none_both_in_a_table_and_kept(self, way):
        for step in steps_of(way):
            used = {block for table in step["tables"].values() for block in table}
            assert not used & set(step["kept"])
            assert len(used) + len(step["kept"]) <= memory_line.BLOCKS

    def test_a_table_has_the_blocks_that_its_tokens_need(self, way):
        answered = dict.fromkeys(memory_line.ORDER, 0)
        for step in steps_of(way):
            for name in step["computes"]:
                known = FOUR[name[0]][0] + answered[name]
                assert len(step["tables"][name]) == -(-known // BLOCK_SIZE), step["say"]
                answered[name] += 1
        assert answered == {name: FOUR[name[0]][1] for name in answered}

    def test_one_block_is_copied_the_half_full_last_one_of_the_prompt(self, way):
        copies = [(at, *pair) for at, step in enumerate(steps_of(way)) for pair in step["copies"]]
        assert len(copies) == 1
        at, old, fresh = copies[0]
        tables = steps_of(way)[at]["tables"]
        assert old == tables["C"][-1]
        assert tables["C′"] == [*tables["C"][:-1], fresh]

    def test_the_answer_is_what_happens(self, way):
        [right] = [c for c in load_figure("memory-line")["predict"]["choice"] if c.get("right")]
        at, step = next((at, s) for at, s in enumerate(steps_of(way)) if s["preempted"])
        assert step["preempted"] == [right["text"][0]]
        before = steps_of(way)[at - 1]
        used = {block for table in before["tables"].values() for block in table}
        assert len(used | set(before["kept"])) == memory_line.BLOCKS - 1
        assert len(before["tables"]) == 5


def test_swap_computes_nothing_twice_and_moves_less_back_than_out():
    computed = {way: sum(sum(s["computes"].values()) for s in steps_of(way)) for way in WAYS}
    assert computed["recompute"] > computed["swap"]
    assert str(computed["swap"]) in steps_of("swap")[-1]["say"]
    moved = {key: sum(len(step[key]) for step in steps_of("swap")) for key in ("out", "back")}
    assert 0 < moved["back"] < moved["out"]
    assert not any(step["out"] or step["back"] for step in steps_of("recompute"))


def test_who_comes_back_has_what_went_to_the_host():
    away = [step["host"] for step in steps_of("swap")]
    assert {name for host in away for name in host} == {"D"}
    for before, after in pairwise(steps_of("swap")):
        if after["back"]:
            assert before["host"]["D"] >= len(after["back"])
            assert after["computes"]["D"] == 1


def test_a_scheduler_that_preempts_another_one_is_shown_doing_so():
    scheduler: ModuleType = reference("scheduler")

    class FromTheFront(scheduler.Scheduler):  # type: ignore[name-defined, misc]
        def _preempt_last(self, plan: Any) -> Any:
            self._running.insert(len(self._running), self._running.pop(1))
            return super()._preempt_last(plan)

    package: Any = SimpleNamespace(**{**vars(scheduler), "Scheduler": FromTheFront})
    trace = memory_line.record(lambda lab: package if lab == "scheduler" else reference(lab))
    step = next(s for s in trace["tracks"]["recompute"]["steps"] if s["preempted"])
    assert step["preempted"] == ["B"]
    assert "B, the last to come" not in step["say"]
