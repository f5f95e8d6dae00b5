"""Step records: whoever replays them has the engine's own state after each, merged or one by one."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.learner import faults_of, hand_in_faulty
from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.request import Request, RequestStatus
from yaie.engine.watching import recorder
from yaie.engine.watching.recorder import Recorder
from yaie.engine.watching.tree_calls import TreePicture

Json = dict[str, Any]


class Replayed:
    """What somebody who has the lines alone makes of them."""

    def __init__(self) -> None:
        self.header: Json = {}
        self.known: dict[str, Json] = {}
        self.num_steps = 0
        self.num_records = 0

    def take(self, lines: list[bytes]) -> None:
        for line in lines:
            record = json.loads(line)
            getattr(self, f"_{record['kind']}")(record)

    def _header(self, record: Json) -> None:
        self.header = record

    def _snapshot(self, record: Json) -> None:
        self.known = {each["id"]: dict(each) for each in record["requests"]}
        self.tables = {name: list(table) for name, table in record["tables"].items()}
        self.refs = dict(map(tuple, record["refs"]))
        self.tree = TreePicture()
        for node in record["tree"]:
            self.tree.file(node["path"], node["locks"])
        self.queues = record["running"], record["waiting"]
        self.num_steps = record["n"]

    def _step(self, record: Json) -> None:
        self.num_records += 1
        self.num_steps += record["merged"]
        assert record["n"] == self.num_steps
        for each in record["new"]:
            self.known[each["id"]] = {"computed": 0, "output_tokens": 0, "text": "", **each}
        for row in record["rows"]:
            one = self.known[row["id"]]
            rejected = max(0, row["drafts"] + 1 - len(row["out"])) if row["out"] else 0
            one["computed"] = row["start"] + row["num_tokens"] - rejected
            one["output_tokens"] += len(row["out"])
            one["text"] += row["text"]
        for name in record["freed"]:
            self.tables[name] = []
        for name, column, block in record["tables"]:
            table = self.tables.setdefault(name, [])
            table[column : column + 1] = [block]
        for name, how in record["preempted"]:
            if how == "recompute":
                self.known[name]["computed"] = 0
        for name, _ in record["finished"]:
            del self.known[name]
        for block, change in record["refs"]:
            self.refs[block] = self.refs.get(block, 0) + change
        self.tree.apply(record["tree"])
        self.queues = record["running"], record["waiting"]


class Watched:
    """An engine, its recorder, and a replay that is held against the engine after each record."""

    def __init__(self, engine: LLMEngine) -> None:
        self.engine, self.recorder, self.replayed = engine, Recorder(engine), Replayed()
        self.alive: list[Request] = []

    def watch(self) -> None:
        self.recorder.start(self.alive)
        self.replayed.take(self.recorder.lines())
        self.compare()

    def add(self, prompt: Any, **params: Any) -> list[Request]:
        given = SamplingParams(**{"temperature": 0, "ignore_eos": True, "max_tokens": 20, **params})
        added = self.engine.add_request(prompt, given)
        self.alive += added
        if self.recorder.is_on:
            self.recorder.arrived(added)
        return added

    def step(self) -> None:
        outputs = self.engine.step()
        if self.recorder.is_on:
            lines = self.recorder.stepped(outputs)
            self.replayed.take(lines)
            if lines:
                self.compare()
        self.alive = [request for request in self.alive if not request.is_finished]

    def run(self) -> None:
        while self.engine.has_work:
            self.step()
        self.replayed.take(self.recorder.flush())
        self.compare()

    def compare(self) -> None:
        machine, replayed = self.engine.machine_parts, self.replayed
        alive = {one.request_id: one for one in self.alive if not one.is_finished}
        assert replayed.known.keys() == alive.keys()
        blocks = machine.blocks
        for name, request in alive.items():
            assert replayed.tables.get(name, []) == blocks.get_physical_blocks(name)
            told = replayed.known[name]
            settled = request.num_computed_tokens - request.num_in_flight
            if self.engine.config.overlap != "on":
                assert told["computed"] == settled, name
                assert told["output_tokens"] == request.num_output_tokens
        running = [name for name, one in alive.items() if one.status is RequestStatus.RUNNING]
        assert replayed.queues[0] == running
        assert replayed.queues[1] == [name for name in alive if name not in running]
        counts = [blocks.ref_count(block) for block in range(blocks.num_blocks)]
        assert counts == [replayed.refs.get(block, 0) for block in range(blocks.num_blocks)]
        if machine.tree is not None:
            tree: Any = machine.tree
            assert nodes_of(replayed.tree) == nodes_of_reference(tree)


def nodes_of(picture: TreePicture) -> list[Any]:
    """(path, how often it or a node below it is locked), as the reference counts them."""
    locks = {tuple(node["path"]): node["locks"] for node in picture.nodes()}
    return sorted(
        (list(path), sum(n for other, n in locks.items() if other[: len(path)] == path))
        for path in locks
    )


def nodes_of_reference(tree: Any) -> list[Any]:
    found, below = [], [([], node) for node in tree._root.children.values()]
    while below:
        path, node = below.pop()
        path = [*path, *node.blocks]
        found.append((path, node.lock_count))
        below += [(path, child) for child in node.children.values()]
    return sorted(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return str(tiny_model("llama", tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture(params=[1e9, 1e-9], ids=["each", "merged"])
def share(request: Any, monkeypatch: pytest.MonkeyPatch) -> float:
    """Each step by itself, or as many as may be in one record."""
    monkeypatch.setattr(recorder, "SHARE", request.param)
    return request.param


def loads(watched: Watched, rng: random.Random) -> None:
    """Requests that share prefixes, forks, aborts; some before anybody watches."""
    shared = [rng.randrange(5, 200) for _ in range(40)]
    for number in range(14):
        prompt = shared[: rng.randrange(1, 40)] + [rng.randrange(5, 200) for _ in range(number * 3)]
        added = watched.add(prompt, n=1 + number % 3 // 2, max_tokens=rng.randrange(1, 30))
        for _ in range(rng.randrange(4)):
            if watched.engine.has_work:
                watched.step()
        if number % 5 == 4:
            watched.engine.abort(added[0].request_id)
    watched.run()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_blocks": 14},
        {"num_blocks": 14, "preemption": "swap", "swap_space": 0.01},
        {"token_budget": 16, "policy": "lpm"},
        {"prefix_caching": False, "num_blocks": 16},
        {"speculate": "ngram", "num_drafts": 3},
        {"overlap": "on", "num_blocks": 20},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())) or "default",
)
def test_records_tell_the_state(folder: str, share: float, settings: dict[str, Any]) -> None:
    engine = LLMEngine(model=folder, max_model_len=160, **{"num_blocks": 200, **settings})
    watched = Watched(engine)
    watched.watch()
    loads(watched, random.Random(7))
    replayed = watched.replayed
    assert replayed.num_steps == engine.num_steps
    if share > 1:
        assert replayed.num_records >= engine.num_steps
    elif not engine.stats()["preemptions"]:
        assert replayed.num_records < engine.num_steps
    assert replayed.header["num_blocks"] == engine.machine_parts.blocks.num_blocks
    engine.close()


def test_who_begins_in_the_middle_is_told_what_there_is(folder: str, share: float) -> None:
    watched = Watched(LLMEngine(model=folder, num_blocks=60, max_model_len=160))
    watched.add(list(range(100, 150)), max_tokens=3)
    while watched.engine.has_work:
        watched.step()
    for start in (5, 30):
        watched.add(list(range(start, start + 40)), max_tokens=12)
    for _ in range(4):
        watched.step()
    machine: Any = watched.engine.machine_parts
    watched.recorder.start(watched.alive)
    _, line = watched.recorder.lines()
    snapshot = json.loads(line)
    assert snapshot["partial"]  # the first request's blocks hang where nobody has told
    assert snapshot["n"] == watched.engine.num_steps
    refs = {
        block: count
        for block in range(machine.blocks.num_blocks)
        if (count := machine.blocks.ref_count(block))
    }
    assert dict(map(tuple, snapshot["refs"])) == refs
    assert snapshot["tables"] == {
        one.request_id: machine.blocks.get_physical_blocks(one.request_id) for one in watched.alive
    }
    assert [each["output_tokens"] for each in snapshot["requests"]] == [
        one.num_output_tokens for one in watched.alive
    ]
    watched.recorder.stop()
    assert watched.engine._counters._tell_plan is None
    assert not {"match_prefix", "insert", "lock", "unlock", "evict"} & vars(machine.tree).keys()


def test_records_take_their_share_of_the_time_and_no_more(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(LLMEngine(model=folder, num_blocks=200, max_model_len=160))
    watched.watch()
    now = [0.0]
    monkeypatch.setattr(recorder.time, "perf_counter", lambda: now[0])
    writes = watched.recorder._record
    monkeypatch.setattr(
        watched.recorder, "_record", lambda: (now.__setitem__(0, now[0] + 0.001), writes())[1]
    )
    watched.add(list(range(5, 40)), max_tokens=100)
    for _ in range(90):
        now[0] += 0.02
        watched.step()
    # A millisecond each, of which eight in a thousand may go to records: one in 0.125 s, seven steps.
    assert 12 <= watched.replayed.num_records <= 15


def test_after_a_learners_part_failed_the_records_begin_anew(
    labs: Path, folder: str, share: float
) -> None:
    hand_in_faulty(labs, "sampler", "Sampler.sample")
    watched = Watched(LLMEngine(model=folder, num_blocks=40, mine="sampler"))
    watched.watch()
    watched.add(list(range(5, 40)))
    watched.step()
    before = watched.engine.machine_parts.tree
    faults_of("sampler").append(IndexError("boom"))
    watched.step()
    watched.add(list(range(5, 40)), max_tokens=5)
    watched.run()
    assert watched.engine.machine_parts.tree is not before


def test_a_tree_that_cannot_be_listened_to_is_left_out(
    folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(LLMEngine(model=folder, num_blocks=40))
    tree: Any = watched.engine.machine_parts.tree

    class Sealed(type(tree)):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            if callable(value):
                raise AttributeError(name)
            super().__setattr__(name, value)

    tree.__class__ = Sealed
    watched.recorder.start([])
    assert "the radix tree cannot be watched" in caplog.text
    watched.add(list(range(5, 40)), max_tokens=3)
    while watched.engine.has_work:
        watched.engine.step()
    assert json.loads(watched.recorder.flush()[-1])["tree"] == []
