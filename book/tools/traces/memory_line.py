"""Blocks over time: requests A to D, C with two answers, in a pool that is too small for all.

The scheduler and the cache manager run without a model. Prompts begin alike for two blocks, as those of
the book do, so blocks are shared, copied on write, kept by the tree, given up and swapped, in one run.
"""

from typing import Any

from book.tools.traces import Part, Trace
from book.tools.traces._story import listed
from book.tools.traces._timeline import BLOCK_SIZE, FOUR
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request

LAB = "scheduler"
BLOCKS, HOST_BLOCKS = 14, 8
PREFIX = 36  # tokens with which all four prompts begin
ORDER = ["A", "B", "C", "C′", "D"]
TRACKS = {"recompute": "recompute", "swap": "swap to the host pool"}
MOST_STEPS = 300


def record(part: Part) -> Trace:
    """A track for each way to preempt."""
    tracks = {
        key: {
            "label": label,
            "blocks": BLOCKS,
            "host_blocks": HOST_BLOCKS if key == "swap" else 0,
            "order": ORDER,
            "steps": Run(part, swap=key == "swap").steps,
        }
        for key, label in TRACKS.items()
    }
    return {"tracks_label": "Preempt by", "tracks": tracks}


class Run:
    """The engine's steps, each with the state after it was planned.

    A step has `tables` by name, `kept` (blocks that only the tree holds), `host` (blocks in the host
    pool, by name), `computes` by name, `queue`, and what happened: `preempted`, `ended`, `copies`
    ([from, to]), `out` ([device block, host block]) and `back` ([host block, device block]).
    """

    def __init__(self, part: Part, *, swap: bool) -> None:
        memory, package = part("paged_cache"), part("scheduler")
        self._blocks = memory.BlockManager(BLOCKS, BLOCK_SIZE, HOST_BLOCKS if swap else 0)
        cache = memory.KVCacheManager(self._blocks, part("radix_tree").RadixTree(BLOCK_SIZE))
        self._scheduler = package.Scheduler(
            cache,
            package.POLICIES["fcfs"](cache),
            max_num_seqs=8,
            token_budget=256,
            chunked_prefill=True,
            swap=swap,
        )
        self._requests = _requests()
        self.steps: list[dict[str, Any]] = []
        self._computed = self._again = 0
        self._reached: dict[str, int] = {}
        for request in self._requests.values():
            self._scheduler.add(request)
        ended: list[str] = []
        while not all(request.is_finished for request in self._requests.values()):
            if len(self.steps) > MOST_STEPS:
                raise RuntimeError(f"after {MOST_STEPS} steps some requests have not ended")
            ended = self._step(ended)
        self.steps[-1]["say"] += self._summary()

    def _step(self, ended: list[str]) -> list[str]:
        plan = self._scheduler.schedule()
        computes = {item.request.request_id: item.num_tokens for item in plan.scheduled}
        for item in plan.scheduled:
            name, end = item.request.request_id, item.start + item.num_tokens
            self._computed += item.num_tokens
            self._again += max(0, min(end, self._reached.get(name, 0)) - item.start)
            self._reached[name] = max(end, self._reached.get(name, 0))
        tables = {
            name: table
            for name in self._requests
            if (table := list(self._blocks.get_physical_blocks(name)))
        }
        used = {block for table in tables.values() for block in table}
        swapped = {name: self._blocks.num_swapped_blocks(name) for name in self._requests}
        now = {
            "tables": tables,
            "kept": [b for b in range(BLOCKS) if self._blocks.ref_count(b) and b not in used],
            "host": {name: count for name, count in swapped.items() if count},
            "computes": computes,
            "queue": [
                n for n, r in self._requests.items() if not r.is_finished and n not in tables
            ],
            "preempted": [request.request_id for request in plan.preempted],
            "copies": [list(pair) for pair in plan.copies],
            "out": [list(pair) for pair in plan.swap_out],
            "back": [list(pair) for pair in plan.swap_in],
            "ended": ended,
        }
        before = self.steps[-1] if self.steps else None
        tokens = {name: request.num_tokens for name, request in self._requests.items()}
        self.steps.append({"say": _say(before, now, tokens)} | now)
        self._scheduler.advance(plan)
        updated = self._scheduler.update(plan, [[0] for item in plan.scheduled if item.samples])
        done = [one for one in updated if one.num_output_tokens >= one.max_tokens]
        for request in done:
            self._scheduler.finish(request, FinishReason.LENGTH)
        return [request.request_id for request in done]

    def _summary(self) -> str:
        twice = f"{self._again} of them for the second time" if self._again else "none twice"
        moved = sum(len(step["out"]) + len(step["back"]) for step in self.steps)
        return f" In all {self._computed} tokens were computed, {twice}, and {moved} blocks moved."


def _requests() -> dict[str, Request]:
    """A to D with the lengths of the book; C′ is the second answer to C's prompt."""
    requests: dict[str, Request] = {}
    for arrival, name in enumerate(ORDER):
        prompt, answer = FOUR[name[0]]
        own = [1000 * ord(name[0]) + index for index in range(prompt - PREFIX)]
        request = Request(
            name,
            [*range(PREFIX), *own],
            SamplingParams(n=2) if name[0] == "C" else SamplingParams(),
            arrival=arrival,
            max_tokens=answer,
        )
        if name != name[0]:
            request.fork_of = requests[name[0]]
        requests[name] = request
    return requests


def _say(before: dict[str, Any] | None, now: dict[str, Any], tokens: dict[str, int]) -> str:
    tables, old = now["tables"], before["tables"] if before else {}
    told = []
    if now["ended"]:
        held = {b for name in now["ended"] for b in old.get(name, [])}
        kept = sorted(held & set(now["kept"]))
        stay = f"{listed(kept, 'block')} {'stay' if kept[1:] else 'stays'} in the tree"
        told.append(f"{listed(now['ended'])} ended{f'; {stay}' if kept else ''}.")
    if now["preempted"]:
        names = listed(now["preempted"])
        others = [table for name, table in old.items() if name not in now["preempted"]]
        lost = [
            block
            for name in now["preempted"]
            for block in old[name]
            if not any(block in table for table in others)
        ]
        way = (
            f"{len(now['out'])} blocks are copied to the host pool"
            if now["out"]
            else f"{listed(lost, 'block')} are given up, though the tree keeps full ones for a while"
        )
        last = ", the last to come," if now["preempted"] == [max(old, key=ORDER.index)] else ""
        told.append(f"No block is free: {names}{last} goes back to the queue; {way}.")
    told += [_comes(name, now, tokens[name]) for name in tables if name not in old]
    for source, fresh in now["copies"]:
        who = next(name for name, table in tables.items() if fresh in table)
        told.append(
            f"{who} writes to block {source}, which another table holds too: it is copied to {fresh}."
        )
    grown = {
        name: table[-1]
        for name, table in tables.items()
        if name in old and len(table) > len(old[name])
    }
    if grown:
        need = "take a block each" if len(grown) > 1 else "takes a block"
        told.append(f"{listed(sorted(grown))} {need}: {listed(list(grown.values()))}.")
    gone = sorted(
        {b for b in (before["kept"] if before else []) if b not in now["kept"]}
        & {b for name in grown for b in [grown[name]]}
    )
    if gone:
        told.append(f"The tree had to give up {listed(gone, 'block')}.")
    ones = [name for name, count in now["computes"].items() if count == 1]
    if not told:
        compute = "compute one token each" if ones[1:] else "computes one token"
        told.append(f"{listed(sorted(ones))} {compute}.")
    return " ".join(told)


def _comes(name: str, now: dict[str, Any], tokens: int) -> str:
    computes = now["computes"].get(name, 0)
    found = tokens - computes
    table = now["tables"][name]
    if now["back"]:
        moved = len(now["back"])
        return f"{name} comes back: {moved} blocks are copied from the host, and it computes {computes}."
    shares = f", {found} tokens found" if found else ""
    return f"{name} gets {listed(table, 'block')}{shares}, and computes {computes}."
