"""Recordings of the real engine, each step beside what the engine itself says of its state then.

`python -m tests.web.recorded` records the two that `viewer.html` offers again.

The records come from the contracts' calls alone, as the server's do. The states come from the
reference's own fields, which the page never sees: what it makes of the records must be the same.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yaie.bench.evidence.four import QUESTIONS, messages
from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestStatus
from yaie.engine.llm_engine import LLMEngine

Json = dict[str, Any]

SAMPLES = Path(__file__).parents[2] / "yaie/server/web/samples"
SHIPPED: dict[str, Json] = {
    "four": {"every": 3, "num_blocks": 64},
    "preemption": {"every": 0, "num_blocks": 12},
}


@dataclass(slots=True)
class Recording:
    """The lines of a recording, and the engine's state after each step."""

    lines: list[Json] = field(default_factory=list)
    states: list[Json] = field(default_factory=list)

    def write(self, path: Path) -> None:
        path.write_text("".join(f"{json.dumps(line)}\n" for line in self.lines), "utf-8")


class CalledTree:
    """A radix tree whose calls are written down, its nodes named by the blocks on their paths."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls: list[list[Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def _end(self, node: Any) -> int:
        path = self.inner.path_blocks(node)
        return int(path[-1]) if path else -1

    def match_prefix(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], Any]:
        blocks, node = self.inner.match_prefix(token_ids, max_blocks)
        self.calls.append(["match_prefix", [len(token_ids), max_blocks], list(blocks)])
        return blocks, node

    def insert(self, token_ids: list[int], block_ids: list[int]) -> tuple[int, Any]:
        existing, node = self.inner.insert(token_ids, block_ids)
        path = list(self.inner.path_blocks(node))
        self.calls.append(["insert", [len(token_ids), list(block_ids)], [existing, path]])
        return existing, node

    def lock(self, node: Any) -> None:
        self.calls.append(["lock", [self._end(node)], None])
        self.inner.lock(node)

    def unlock(self, node: Any) -> None:
        self.calls.append(["unlock", [self._end(node)], None])
        self.inner.unlock(node)

    def evict(self, num_blocks: int) -> list[int]:
        gone = list(self.inner.evict(num_blocks))
        self.calls.append(["evict", [num_blocks], gone])
        return gone


class Watched:
    """An engine of the tutor, stepped by hand, with everything that it does written down."""

    def __init__(self, **settings: Any) -> None:
        self.engine = LLMEngine(threads=1, **settings)
        machine = self.engine._machine
        self.cache, self.scheduler = machine.cache, machine.scheduler
        self.blocks = self.cache._blocks
        self.tree = CalledTree(self.cache._tree)
        self.cache._tree = self.tree
        self.plans: list[Any] = []
        schedule = self.scheduler.schedule

        def noted() -> Any:
            self.plans.append(schedule())
            return self.plans[-1]

        self.scheduler.schedule = noted
        self.alive: dict[str, Request] = {}
        self.tables: dict[str, list[int]] = {}
        self.refs = [0] * self.blocks.num_blocks
        self.began = time.monotonic()
        self.admitted: dict[str, Request] = {}
        self.recording = Recording([self._header()])

    def _header(self) -> Json:
        config, blocks = self.engine.config, self.blocks
        return {
            "kind": "header",
            "v": 1,
            "model": self.engine.model_name,
            "block_size": blocks.block_size,
            "num_blocks": blocks.num_blocks,
            "num_host_blocks": blocks.num_host_blocks,
            "token_budget": config.step_tokens("cpu"),
            "max_num_seqs": config.max_num_seqs,
            "prefix_caching": config.prefix_caching,
            "parts": [
                {"lab": part.lab, "whose": "yours" if part.is_yours else "reference"}
                for part in self.engine.parts
            ],
            "step_mode": False,
        }

    def step(self, arriving: Mapping[str, tuple[list[int], SamplingParams]]) -> None:
        """Queue requests, compute a step, and note what it did."""
        for name, (prompt, params) in arriving.items():
            (self.alive[name],) = self.engine.add_request(prompt, params, request_id=name)
        began = time.monotonic()
        outputs = {output.request_id: output for output in self.engine.step()}
        took = time.monotonic() - began
        plan = self.plans[-1]
        rows = [self._row(item, outputs) for item in plan.scheduled]
        ended = [request for request in self.alive.values() if request.is_finished]
        waiting = [
            name
            for name, request in self.alive.items()
            if not request.is_finished and request.status is not RequestStatus.RUNNING
        ]
        freed, entries = self._table_changes()
        refs = [self.blocks.ref_count(block) for block in range(self.blocks.num_blocks)]
        changes = [
            [block, now - before]
            for block, (before, now) in enumerate(zip(self.refs, refs, strict=True))
            if now != before
        ]
        stats = self.cache.stats()
        self.refs = refs
        self.admitted |= {each.request.request_id: each.request for each in plan.scheduled}
        looked_up = sum(each.num_prompt_tokens for each in self.admitted.values())
        found = sum(each.num_cached_tokens for each in self.admitted.values())
        self.recording.lines.append(
            {
                "kind": "step",
                "n": len(self.recording.states) + 1,
                "t": time.monotonic() - self.began,
                "ms": 1000 * took,
                "rows": rows,
                "new": [self._arrival(self.alive[name]) for name in arriving],
                "finished": [[each.request_id, str(each.finish_reason)] for each in ended],
                "preempted": [
                    [each.request_id, "swap" if each.status == "swapped" else "recompute"]
                    for each in plan.preempted
                ],
                "running": [each.request_id for each in self.scheduler._running],
                "waiting": waiting,
                "num_waiting": len(waiting),
                "tables": entries,
                "freed": freed,
                "refs": changes,
                "tree": self.tree.calls,
                "stats": {
                    "kv_usage": stats["used_blocks"] / stats["total_blocks"],
                    "hit_rate": found / max(1, looked_up),
                    "ttft": self._first_tokens(outputs),
                },
            }
        )
        self.tree.calls = []
        self.alive = {name: each for name, each in self.alive.items() if not each.is_finished}
        self.recording.states.append(self._state(waiting))

    def _arrival(self, request: Request) -> Json:
        return {
            "id": request.request_id,
            "prompt_tokens": request.num_prompt_tokens,
            "max_tokens": request.max_tokens,
            "priority": request.priority,
            "words": QUESTIONS.get(request.request_id, request.request_id),
        }

    def _row(self, item: Any, outputs: Mapping[str, Any]) -> Json:
        request = item.request
        output = outputs.get(request.request_id)
        return {
            "id": request.request_id,
            "start": item.start,
            "num_tokens": item.num_tokens,
            "cached": request.num_cached_tokens,
            "is_prefill": item.start < request.num_prompt_tokens,
            "drafts": len(item.drafts),
            "out": list(output.token_ids) if output else [],
            "text": output.text if output else "",
        }

    def _first_tokens(self, outputs: Mapping[str, Any]) -> dict[str, float]:
        return {
            name: (request.first_token_time or 0.0) - request.arrival_time
            for name, request in self.alive.items()
            if name in outputs and request.num_output_tokens == 1
        }

    def _table_changes(self) -> tuple[list[str], list[list[Any]]]:
        names = dict.fromkeys([*self.tables, *self.alive])
        now = {name: list(self.blocks.get_physical_blocks(name)) for name in names}
        freed = [name for name in names if len(now[name]) < len(self.tables.get(name, []))]
        before = {name: [] if name in freed else self.tables.get(name, []) for name in names}
        entries = [
            [name, column, block]
            for name, table in now.items()
            for column, block in enumerate(table)
            if before[name][column : column + 1] != [block]
        ]
        self.tables = {name: table for name, table in now.items() if table}
        return freed, entries

    def _state(self, waiting: list[str]) -> Json:
        """What the engine's own structures hold: the tree by its nodes, locks counted by the tree."""
        nodes = []
        below = [*self.tree.inner._root.children.values()]
        while below:
            node = below.pop()
            nodes.append([list(node.blocks), node.lock_count])
            below += node.children.values()
        return {
            "running": [each.request_id for each in self.scheduler._running],
            "waiting": waiting,
            "tables": dict(self.tables),
            "refs": {str(block): count for block, count in enumerate(self.refs) if count},
            "tree": sorted(nodes),
            "evictable": self.tree.inner.num_evictable,
            "computed": {name: each.num_computed_tokens for name, each in self.alive.items()},
            "output": {name: each.num_output_tokens for name, each in self.alive.items()},
            "cached": {name: each.num_cached_tokens for name, each in self.alive.items()},
        }


def four(every: int, *, endless: bool = False, **settings: Any) -> Recording:
    """The book's four requests, one every so many steps, until all are answered.

    endless: they go on behind the end of their answers, and soon repeat themselves.
    """
    watched = Watched(**settings)
    params = SamplingParams(temperature=0, max_tokens=120 if endless else 57, ignore_eos=endless)
    prompts = {name: watched.engine.encode_chat(messages(name)) for name in QUESTIONS}
    coming = {name: index * every for index, name in enumerate(QUESTIONS)}
    while coming or watched.engine.has_work:
        now = len(watched.recording.states)
        due = [name for name, when in coming.items() if when <= now]
        for name in due:
            del coming[name]
        watched.step({name: (prompts[name], params) for name in due})
    watched.engine.close()
    return watched.recording


if __name__ == "__main__":
    for name, load in SHIPPED.items():
        four(**load).write(SAMPLES / f"{name}.jsonl")
