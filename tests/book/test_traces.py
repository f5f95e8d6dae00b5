"""Traces are what the code does, right designs can be recorded, figures show what they are about."""

import json
import shutil
from importlib import import_module
from types import ModuleType

import pytest

from book.tools import traces
from book.tools.traces import ROOT, __main__, as_text, names, recorder, reference
from book.tools.traces.fragmentation import JOBS, SLOTS
from tests.learner import hand_in

DESIGNS = [("paged_cache", "ledger"), ("radix_tree", "chained_blocks")]


@pytest.fixture(scope="module")
def recorded():
    """The traces as the reference makes them now, each recorded once."""
    kept = {}

    def record(name: str) -> dict:
        if name not in kept:
            kept[name] = json.loads(as_text(recorder(name).record(reference)))
        return kept[name]

    return record


@pytest.mark.nightly  # `make check` says the same
@pytest.mark.parametrize("name", names())
def test_a_trace_is_what_the_code_does(name, recorded):
    assert as_text(recorded(name)) == traces.trace_file(name).read_text("utf-8"), "`make traces`"


@pytest.mark.parametrize("name", names())
def test_a_recorder_names_a_lab_that_exists(name):
    lab = recorder(name).LAB
    assert lab is None or (ROOT / "solutions" / lab).is_dir()


def test_every_step_has_a_caption_and_a_line_of_its_own(recorded):
    trace = recorded("radix-tree")
    assert all(step["say"].endswith(".") for step in trace["steps"])
    lines = as_text(trace).splitlines()
    assert sum(line.startswith('{"say"') for line in lines) == len(trace["steps"])


class TestCheck:
    """`--check`, on a folder of traces that the tests may spoil."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr(traces, "ROOT", tmp_path)
        monkeypatch.setattr(__main__, "ROOT", tmp_path)
        monkeypatch.setattr(traces, "TRACES", tmp_path / "traces")
        monkeypatch.setattr(traces, "names", lambda: ["radix-tree"])
        monkeypatch.setattr(__main__, "names", lambda: ["radix-tree"])
        return tmp_path / "traces"

    def test_what_was_just_recorded_is_in_step(self, capsys):
        assert __main__.main([]) == 0
        assert __main__.main(["--check"]) == 0
        assert __main__.main([]) == 0
        assert "as it was" in capsys.readouterr().out

    def test_a_missing_trace_is_named(self, capsys):
        assert __main__.main(["--check"]) == 1
        assert "radix-tree.json is missing" in capsys.readouterr().err

    def test_a_changed_trace_is_named_with_its_line_and_left_as_it_is(self, folder, capsys):
        __main__.main([])
        file = folder / "radix-tree.json"
        lines = file.read_text("utf-8").splitlines()
        lines[5] = lines[5].replace('"locks": 1', '"locks": 7')
        file.write_text("\n".join(lines) + "\n", "utf-8")
        assert __main__.main(["--check"]) == 1
        error = capsys.readouterr().err
        assert "radix-tree.json is out of step with the code, from line 6 on" in error
        assert "make traces" in error
        assert '"locks": 7' in file.read_text("utf-8")

    def test_a_trace_that_nobody_records_is_named(self, folder, capsys):
        __main__.main([])
        (folder / "old.json").write_text("{}", "utf-8")
        assert __main__.main(["--check"]) == 1
        assert "old: no recorder writes it" in capsys.readouterr().err

    def test_a_name_that_does_not_exist_is_refused(self, capsys):
        assert __main__.main(["--check", "radix_tree"]) == 2
        assert "choose from radix-tree" in capsys.readouterr().err


@pytest.mark.parametrize(("lab", "design"), DESIGNS)
def test_another_right_design_can_be_recorded(labs, recorded, lab, design):
    """Recorders use contracts only: what the pool and the tree look like inside is not their matter."""
    folder = hand_in(labs, lab)
    for file in (ROOT / "grader/known_right" / lab / design).glob("*.py"):
        shutil.copy(file, folder)

    def part(name: str) -> ModuleType:
        return import_module(f"labs.{name}") if name == lab else reference(name)

    for name in traces.of_lab(lab):
        ours = json.loads(as_text(recorder(name).record(part)))
        theirs = recorded(name)
        assert len(ours["steps"]) == len(theirs["steps"])
        if name == "radix-tree":
            assert [step["evictable"] for step in ours["steps"]] == [
                step["evictable"] for step in theirs["steps"]
            ]


class TestBlockTable:
    @pytest.fixture
    def steps(self, recorded):
        return recorded("block-table")["steps"]

    def test_references_are_the_tables_and_the_tree(self, steps):
        for step in steps:
            for block, refs in enumerate(step["refs"]):
                tables = sum(block in table for table in step["tables"].values())
                assert refs == tables + (block in step["tree"]), (step["say"], block)

    def test_the_fork_copies_its_last_block_and_no_other_step_copies(self, steps):
        copies = [(index, step["copied"]) for index, step in enumerate(steps) if step.get("copied")]
        assert len(copies) == 1
        index, ((old, fresh),) = copies[0]
        before, after = steps[index - 1]["tables"], steps[index]["tables"]
        assert before["C′"] == before["C"]
        assert old == before["C"][-1]
        assert after["C′"] == [*before["C"][:-1], fresh]

    def test_each_table_leads_to_the_words_of_its_request(self, steps):
        for step in steps:
            for name, table in step["tables"].items():
                words = [word for block in table for word in step["slots"][block]]
                words = words[: step["tokens"][name]]
                assert "" not in words
                assert "You are the tutor".startswith(" ".join(words[:4]))
                assert words[8:9] in ([], ["Why"] if name == "D" else ["What"])

    def test_something_is_shared_cached_evicted_and_found_again(self, steps):
        idle = [
            set(s["tree"]) - {block for table in s["tables"].values() for block in table}
            for s in steps
        ]
        assert any(max(step["refs"]) >= 5 for step in steps)
        assert any(idle)
        (gone,) = [set(step["gone"]) for step in steps if step.get("gone")]
        at = next(index for index, step in enumerate(steps) if step.get("gone"))
        assert gone <= idle[at - 1]
        assert set(steps[-1]["tables"]["A"]) & idle[-2], "a cached block is used again"


class TestRadixTree:
    @pytest.fixture
    def steps(self, recorded):
        return recorded("radix-tree")["steps"]

    def test_the_second_request_cuts_the_node_after_four_blocks(self, steps):
        at = next(index for index, step in enumerate(steps) if step["call"] == "match B")
        before = [node["blocks"] for node in steps[at - 1]["nodes"]]
        after = [node["blocks"] for node in steps[at]["nodes"]]
        assert before == [[0, 1, 2, 3, 4, 5, 6]]
        assert after == [[0, 1, 2, 3], [4, 5, 6]]

    def test_a_node_is_locked_as_often_as_its_children_or_more(self, steps):
        for step in steps:
            for at, node in enumerate(step["nodes"]):
                ends = node["at"] + len(node["blocks"])
                below = []
                for child in step["nodes"][at + 1 :]:
                    if child["at"] < ends:
                        break
                    below += [child["locks"]] if child["at"] == ends else []
                assert node["locks"] >= sum(below), step["say"]

    def test_the_count_of_evictable_blocks_is_that_of_unlocked_nodes(self, steps):
        for step in steps:
            unlocked = [node for node in step["nodes"] if not node["locks"]]
            assert step["evictable"] == sum(len(node["blocks"]) for node in unlocked), step["say"]

    def test_eviction_takes_unlocked_blocks_from_an_end(self, steps):
        evictions = [step for step in steps if step.get("gone")]
        assert len(evictions) == 2
        for step in evictions:
            locked = {b for node in step["before"] if node["locks"] for b in node["blocks"]}
            assert not locked & set(step["gone"])
            left = {block for node in step["nodes"] for block in node["blocks"]}
            was = {block for node in step["before"] for block in node["blocks"]}
            assert was - left == set(step["gone"])


class TestFragmentation:
    @pytest.fixture
    def trace(self, recorded):
        return recorded("fragmentation")

    def test_no_slot_belongs_to_two_requests_at_once(self, trace):
        for allocator in trace["allocators"]:
            for at in range(trace["last"] + 1):
                live = [p for p in allocator["pieces"] if p["begin"] <= at < p["end"]]
                slots = [s for p in live for s in range(p["start"], p["start"] + p["size"])]
                assert len(slots) == len(set(slots)), (allocator["label"], at)
                assert all(0 <= slot < SLOTS for slot in slots)

    def test_every_slot_is_counted_once(self, trace):
        for step in trace["steps"]:
            for state in step["states"]:
                assert state["held"] + state["empty"] + state["free"] == SLOTS

    def test_what_is_held_is_what_the_running_requests_have_computed(self, trace):
        for step in trace["steps"]:
            for allocator, state in zip(trace["allocators"], step["states"], strict=True):
                begun = {}
                for piece in allocator["pieces"]:
                    begin = begun.setdefault(piece["owner"], piece["begin"])
                    begun[piece["owner"]] = min(begin, piece["begin"])
                known = [JOBS[name][0] + step["at"] - begun[name] for name in state["running"]]
                assert state["held"] == sum(known), (allocator["label"], step["at"])

    def test_the_whole_context_wastes_most_and_blocks_least(self, trace):
        """Slots times steps that nobody can use: the answer to the figure's question."""
        wasted = []
        for allocator in trace["allocators"]:
            pieces = allocator["pieces"]
            inside = sum(
                p["size"] - min(p["size"], p["held"] + at - p["begin"])
                for p in pieces
                for at in range(p["begin"], p["end"])
            )
            outside = sum(
                SLOTS - sum(p["size"] for p in pieces if p["begin"] <= at < p["end"])
                for begin, end in allocator["external"]
                for at in range(begin, end)
            )
            wasted.append(inside + outside)
        whole, exact, paged = wasted
        assert whole > exact > 4 * paged

    def test_holes_are_in_vain_under_the_exact_length_only(self, trace):
        whole, exact, paged = (allocator["external"] for allocator in trace["allocators"])
        assert (whole, paged) == ([], [])
        assert exact

    def test_everybody_is_served(self, trace):
        for allocator in trace["allocators"]:
            assert {piece["owner"] for piece in allocator["pieces"]} == set(JOBS)


def test_the_lengths_are_those_of_the_running_example():
    from yaie.bench.evidence.four import messages
    from yaie.core.config import EngineConfig
    from yaie.core.params import SamplingParams
    from yaie.engine.llm_engine import LLMEngine

    engine = LLMEngine(EngineConfig())
    greedy = SamplingParams(temperature=0)
    made = {
        name: engine.add_request(engine.tokenizer.apply_chat_template(messages(name)), greedy)[0]
        for name in "ABCD"
    }
    while engine.has_work:
        engine.step()
    lengths = {name: (r.num_prompt_tokens, r.num_output_tokens) for name, r in made.items()}
    assert {name: JOBS[name][:2] for name in "ABCD"} == lengths
    assert {name: JOBS[name.lower()][:2] for name in "ABCD"} == lengths
