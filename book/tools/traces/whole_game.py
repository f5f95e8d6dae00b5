"""Requests A to D through the whole reference engine, a record for each step.

The engine is watched as the X-ray page watches it (yaie.engine.watching): plans, tables and the calls
of the tree. Two settings: one with room for all, and one with so few blocks and tokens a step that
prompts are computed in chunks and requests lose their blocks. How long the first took, and the same
requests one after the other, was measured apart (`start_phases.json`), with the engine's usual threads.
"""

import json
from typing import Any

from book.tools.evidence import load
from book.tools.traces import Part, Trace
from book.tools.traces._asides import PLENTY, SCARCE, add_asides
from book.tools.traces._game import say
from book.tools.traces._timeline import FOUR
from yaie.bench.evidence.four import QUESTIONS, messages

LAB = None
BLOCK_SIZE = 16
TRACKS: dict[str, dict[str, Any]] = {
    "plenty": {"label": "16 blocks", "num_blocks": 16},
    "scarce": {
        "label": "9 blocks, 40 tokens a step",
        "num_blocks": 9,
        "watermark": 0.0,
        "token_budget": 40,
    },
}


def record(part: Part) -> Trace:
    """A track for each setting. The answers are the tutor's, drawn greedily, the same in both."""
    runs = {key: Run(**settings) for key, settings in TRACKS.items()}
    plenty, scarce = runs["plenty"], runs["scarce"]
    measured = load("start_phases")["four"]
    plenty.track["ms"] = [round(measured[key]) for key in ("together_ms", "one_by_one_ms")]
    alone = sum(answer for _, answer in FOUR.values())
    add_asides(plenty.track["steps"], plenty.states, PLENTY, alone=alone)
    add_asides(scarce.track["steps"], scarce.states, SCARCE, other=len(plenty.states) - 1)
    tracks = {key: run.track for key, run in runs.items()}
    return {"tracks_label": "Engine", "tracks": tracks}


class Run:
    """Four requests that arrive together, and the engine's state after each step.

    A step has `rows`: [name, first token, tokens computed, text drawn]. What else changed since the step
    before stands beside them: `queue`, `done`, `ended`, `preempted`, `tables` by name, `tree` ([the
    block above or -1, blocks, locks] a node, parents first) and, for blocks that changed, `pool` ([who
    computed it, its column in that request, tokens in it], [] if it is free).
    """

    def __init__(self, label: str, num_blocks: int, **settings: Any) -> None:
        from yaie.core.params import SamplingParams
        from yaie.engine.llm_engine import LLMEngine
        from yaie.engine.watching.recorder import Recorder

        engine = LLMEngine(
            mine="none",
            model="tutor",
            backend="torch",
            device="cpu",
            dtype="float32",
            threads=1,
            block_size=BLOCK_SIZE,
            num_blocks=num_blocks,
            **settings,
        )
        self._recorder = Recorder(engine, step_mode=True)
        self._recorder.start([])
        self._pool: list[list[Any]] = [[] for _ in range(num_blocks)]
        self._requests = {}
        greedy = SamplingParams(temperature=0)
        for name in QUESTIONS:
            (self._requests[name],) = engine.add_request(
                engine.encode_chat(messages(name)), greedy, request_id=name
            )
        self._recorder.arrived(self._requests.values())
        self._done: list[str] = []
        self._last: dict[str, Any] = {"pool": [[]] * num_blocks, "tables": {}}
        self.states: list[dict[str, Any]] = []
        self.track: dict[str, Any] = {
            "label": label,
            "num_blocks": num_blocks,
            "questions": QUESTIONS,
            "prompts": {name: one.num_tokens for name, one in self._requests.items()},
            "steps": [],
        }
        self._note([])
        while engine.has_work:
            (line,) = self._recorder.stepped(engine.step())
            self._stepped(json.loads(line))
        self._recorder.stop()
        engine.close()

    def _stepped(self, told: dict[str, Any]) -> None:
        """Note one step by the engine's record of it."""
        self._done += [name for name, _ in told["finished"]]
        rows = [[row["id"], row["start"], row["num_tokens"], row["text"]] for row in told["rows"]]
        ended = [name for name, _ in told["finished"]]
        preempted = [name for name, _ in told["preempted"]]
        self._fill(rows, told, self._last["tables"])
        self._note(rows, ended, preempted)

    def _fill(self, rows: list[list[Any]], told: dict[str, Any], before: dict[str, Any]) -> None:
        """What the step wrote into the pool. A request that ended had its table until then."""
        ended = {name for name, _ in told["finished"]}
        tables = {
            name: list(table)
            for name, table in before.items()
            if name not in told["freed"] or name in ended
        }
        for name, column, block in told["tables"]:
            tables.setdefault(name, [])[column:] = [block]
        for name, start, count, _ in rows:
            for token in range(start, start + count):
                column, slot = divmod(token, BLOCK_SIZE)
                self._pool[tables[name][column]] = [name, column, slot + 1]

    def _note(
        self,
        rows: list[list[Any]],
        ended: list[str] | None = None,
        preempted: list[str] | None = None,
    ) -> None:
        state = json.loads(self._recorder.lines()[1])
        held = {block for block, _ in state["refs"]}
        self._pool = [entry if b in held else [] for b, entry in enumerate(self._pool)]
        now = {
            "rows": rows,
            "queue": state["waiting"],
            "done": list(self._done),
            "ended": ended or [],
            "preempted": preempted or [],
            "tables": state["tables"],
            "pool": [list(entry) for entry in self._pool],
            "tree": _locked_paths([self._node(node) for node in state["tree"]]),
        }
        steps = self.track["steps"]
        words = say(self._last, now, self._requests, len(steps))
        changed = {
            key: value
            for key, value in now.items()
            if key == "rows" or self._last.get(key) != value
        }
        pairs = zip(now["pool"], self._last["pool"], strict=True)
        changed["pool"] = {str(b): entry for b, (entry, old) in enumerate(pairs) if entry != old}
        steps.append(
            {"say": words, "place": f"step {len(steps)}" if steps else "before step 1"} | changed
        )
        self._last = now
        self.states.append(now)

    def _node(self, node: dict[str, Any]) -> list[Any]:
        path, above = node["path"], node["existing"]
        return [path[above - 1] if above else -1, path[above:], node["locks"]]


def _locked_paths(nodes: list[list[Any]]) -> list[list[Any]]:
    """The nodes of a tree, parents first, with the locks of all below them: a lock is of a path."""
    ends = {node[1][-1]: node for node in nodes}
    for above, _, locks in reversed(nodes):
        if above >= 0:
            ends[above][2] += locks
    return nodes
