"""Writes down what an engine does: plans, outputs, tables, references and the tree's calls as records.

It calls nothing but contracts, so a learner's parts can be watched as well. Records cost time on the
engine's thread. When steps are short, several become one record, so that this is at most SHARE of all
time; the state after each record is right all the same. While a page is open, every step has a record of
its own.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from yaie.core.batch import StepPlan
from yaie.core.output import RequestOutput
from yaie.core.records import Record
from yaie.core.request import Request, RequestStatus
from yaie.engine.watching.merging import Merged
from yaie.engine.watching.telling import TEXT, header, line_of, told
from yaie.engine.watching.tree_calls import TreeCalls, TreePicture

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine

logger = logging.getLogger(__name__)

SHARE = 0.008
"""Of the engine's time, what records may take, and noting plans and outputs between them. The first and
the last record are due whatever they take, so that a short run comes nearer to 1%."""
GROUP_USAGES = ("full_kv_usage", "windowed_kv_usage")
MOST_WAITING = 64
"""Ids of the queue that a record names."""


class Recorder:
    """Of one engine, from `start` to `stop`, on its thread. seconds: spent on records so far. every:
    whether each step has a record, however long that takes."""

    def __init__(self, engine: "LLMEngine", *, step_mode: bool = False) -> None:
        self.seconds = 0.0
        self._engine = engine
        self.every = False
        self._step_mode = step_mode
        self._is_on = False
        self._is_stale = False  # what was told has gaps, and must be told anew
        self._calls: TreeCalls | None = None
        self._began = time.monotonic()

    # --- for the engine's thread ---

    @property
    def is_on(self) -> bool:
        """Whether anybody watches."""
        return self._is_on

    def start(self, alive: Iterable[Request]) -> None:
        """Begin. alive: the requests that are not over, in the order in which they came."""
        self._is_on, self._is_stale = True, False
        self._alive = {request.request_id: request for request in alive}
        self._tables: dict[str, list[int]] = {}
        self._seen: dict[str, int] = {}
        self._texts = dict.fromkeys(self._alive, "")
        self._merged = Merged()
        self._due = self._noting = 0.0
        self._step_began = self._flushed = time.perf_counter()
        self._engine.tell_plans(self._planned)
        self._listen()

    def stop(self) -> None:
        """Nobody watches any more."""
        self._is_on = False
        self._engine.tell_plans(None)
        self._hush()

    def lines(self) -> list[bytes]:
        """Header and snapshot, for someone who begins to watch now. What is pending comes before it."""
        return [line_of(header(self._engine, self._step_mode)), line_of(self._snapshot())]

    def arrived(self, requests: Iterable[Request]) -> None:
        """These were queued."""
        new = {request.request_id: request for request in requests}
        self._alive |= new
        self._texts |= dict.fromkeys(new, "")
        self._merged.new += [told(request, self._engine) for request in new.values()]

    def stepped(self, outputs: list[RequestOutput]) -> list[bytes]:
        """A step yielded these; returns the records that are due."""
        now = time.perf_counter()
        self._merged.stepped(outputs, now - self._step_began)
        self._step_began = now
        for output in outputs:
            if output.request_id in self._texts:
                text = self._texts[output.request_id] + output.text[-TEXT:]
                self._texts[output.request_id] = text[-TEXT:]
        self._noting += time.perf_counter() - now
        is_due = now >= self._due or self.every or self._step_mode
        if not is_due and self._engine.has_work:
            return []
        return self.flush()

    def missed(self) -> None:
        """Something could not be noted: the next record begins anew, with a snapshot."""
        logger.warning("a step could not be recorded", exc_info=True)
        self._is_stale = True

    def flush(self) -> list[bytes]:
        """The record of what is pending, if anything is."""
        if self._merged.is_empty and not self._is_stale and not self._ended():
            return []
        begin = time.perf_counter()
        lines: list[bytes] = []
        try:
            if not self._is_stale and self._engine.machine_parts.blocks is self._blocks:
                lines = [line_of(self._record())]
            else:  # a part failed, and all began anew; or records are missing
                self._hush()
                self._forget(self._ended())
                self._merged = Merged()
                self._listen()
                lines = self.lines()
                self._is_stale = False
        except Exception:  # a learner's part may raise where the engine would not have called it
            logger.warning("a step could not be recorded", exc_info=True)
            self._merged, self._is_stale = Merged(), True
        spent = time.perf_counter() - begin
        self.seconds += spent
        # Noting goes on at every step, whether or not a record is due: what is left is the record's.
        left = SHARE - self._noting / max(begin - self._flushed, 1e-9)
        self._due = begin + spent / max(left, SHARE / 4)
        self._noting, self._flushed = 0.0, begin
        return lines

    # --- listening ---

    def _planned(self, plan: StepPlan) -> None:
        begin = time.perf_counter()
        if self._merged.is_idle:
            self._step_began = begin
        try:
            self._merged.planned(plan)
        except Exception:  # noqa: BLE001, the step goes on
            self.missed()
        if plan.preempted:
            self._due = 0.0  # a request that came back within the same record would seem untouched
        self._noting += time.perf_counter() - begin

    def _listen(self) -> None:
        parts = self._engine.machine_parts
        self._tree, self._blocks, self._scheduler = parts.tree, parts.blocks, parts.scheduler
        self._cache = parts.cache
        self._calls = None
        if self._tree is not None:
            try:
                self._calls = TreeCalls(self._tree)
            except AttributeError:
                logger.warning("the radix tree cannot be watched: its methods cannot be replaced")
        self._tables = {name: self._table(name) for name in self._alive}
        self._seen = {name: len(table) for name, table in self._tables.items()}
        filed = set(self._tree.all_blocks()) if self._tree is not None else set()
        self._picture = TreePicture()
        self._refs: dict[int, int] = {}
        for table in self._tables.values():
            path = table[: next((k for k, b in enumerate(table) if b not in filed), len(table))]
            self._picture.file(path, locks=1)
        for block in filed.union(*self._tables.values()):
            self._refs[block] = self._blocks.ref_count(block)
        self._is_partial = any(block not in self._picture for block in filed)

    def _hush(self) -> None:
        if self._calls is not None:
            self._calls.stop()

    def _table(self, request_id: str) -> list[int]:
        return self._blocks.get_physical_blocks(request_id)

    # --- records ---

    def _snapshot(self) -> Record:
        running, waiting = self._queues()
        return {
            "kind": "snapshot",
            "n": self._engine.num_steps,
            "t": self._now(),
            "requests": [
                {
                    **told(request, self._engine),
                    "status": str(request.status),
                    "computed": request.num_computed_tokens,
                    "cached": request.num_cached_tokens,
                    "output_tokens": request.num_output_tokens,
                    "text": self._texts.get(request.request_id, ""),
                    "preemptions": request.num_preemptions,
                }
                for request in self._alive.values()
            ],
            "running": running,
            "waiting": waiting,
            "num_waiting": self._scheduler.num_waiting,
            "tables": {name: list(table) for name, table in self._tables.items() if table},
            "refs": [[block, count] for block, count in self._refs.items() if count],
            "tree": self._picture.nodes(),
            "partial": self._is_partial,
            "stats": self._stats({}),
        }

    def _record(self) -> Record:
        merged, self._merged = self._merged, Merged()
        calls = self._calls.take() if self._calls is not None else []
        self._picture.apply(calls)
        freed, entries, touched = self._table_changes()
        for name, arguments, result in calls:
            touched.update(result[1] if name == "insert" else result or ())
            if name == "insert":
                touched.update(arguments[1])
        ended = self._ended()
        running, waiting = self._queues()
        record: Record = {
            "kind": "step",
            "n": self._engine.num_steps,
            "t": self._now(),
            "ms": 1000 * merged.seconds,
            "merged": merged.num_steps,
            "new": merged.new,
            # A prompt that is computed for another engine has no request here.
            "rows": [row for row in merged.rows() if row["id"] in self._alive],
            "finished": [[request.request_id, str(request.finish_reason)] for request in ended],
            "preempted": [pair for pair in merged.preempted if pair[0] in self._alive],
            "running": running,
            "waiting": waiting,
            "num_waiting": self._scheduler.num_waiting,
            "freed": freed,
            "tables": entries,
            "refs": self._ref_changes(touched),
            "tree": calls,
            "stats": self._stats(merged.first_tokens(self._alive)),
        }
        if any(merged.moves.values()):
            record["moves"] = merged.moves
        self._forget(ended)
        return record

    def _forget(self, ended: Iterable[Request]) -> None:
        for request in ended:
            for known in (self._alive, self._texts, self._tables, self._seen):
                known.pop(request.request_id, None)

    def _ended(self) -> list[Request]:
        return [request for request in self._alive.values() if request.is_finished]

    def _queues(self) -> tuple[list[str], list[str]]:
        running = [name for name, one in self._alive.items() if one.status is RequestStatus.RUNNING]
        waiting = (
            name
            for name, one in self._alive.items()
            if not (one.status is RequestStatus.RUNNING or one.is_finished)
        )
        return running, list(islice(waiting, MOST_WAITING))

    def _table_changes(self) -> tuple[list[str], list[list[Any]], set[int]]:
        """(requests whose tables are gone or others, new entries, blocks that came or went)."""
        freed: list[str] = []
        entries: list[list[Any]] = []
        touched: set[int] = set()
        for name, request in self._alive.items():
            if request.status is RequestStatus.WAITING and not self._seen.get(name):
                continue
            before, table = self._tables.get(name, []), self._table(name)
            seen = self._seen.get(name, 0)
            if table is not before or len(table) < seen:
                touched.update(before[:seen])
                if len(table) < seen:
                    freed.append(name)
                    seen = 0
                else:  # another list: entries were replaced, or copied on write
                    changed = [k for k in range(seen) if table[k] != before[k]]
                    entries += [[name, k, table[k]] for k in changed]
                    touched.update(table[k] for k in changed)
            entries += [[name, k, table[k]] for k in range(seen, len(table))]
            touched.update(table[seen:])
            self._tables[name], self._seen[name] = table, len(table)
        return freed, entries, touched

    def _ref_changes(self, touched: Iterable[int]) -> list[list[int]]:
        changes = []
        for block in touched:
            count, before = self._blocks.ref_count(block), self._refs.get(block, 0)
            if count != before:
                changes.append([block, count - before])
                self._refs[block] = count
        return changes

    def _stats(self, first_tokens: Mapping[str, float]) -> Record:
        stats = self._engine.stats()
        return {
            "kv_usage": stats["kv_usage"],
            "hit_rate": stats["prefix_hit_rate"],
            "ttft": dict(first_tokens),
            **_lowered_threads(stats),
            **{name: stats[name] for name in GROUP_USAGES if name in stats},
        }

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 6)


def _lowered_threads(stats: Mapping[str, float]) -> Record:
    """How many threads compute of those that are wanted, while other programs keep the cores busy."""
    names = ("threads", "threads_wanted")
    now, wanted = (stats.get(name, 0) for name in names)
    return dict(zip(names, (now, wanted), strict=True)) if now < wanted else {}
