"""The same requests under three allocators: the whole context each, the exact length each, blocks.

The blocks are those of the part's BlockManager. The two others, which give each request one contiguous
piece where it first fits, are small enough to stand here. Kwon et al. (2023, section 6) compare with
the same two. Prompts and answers have the lengths of the running example.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

from book.tools.traces import Part, Trace
from book.tools.traces._story import listed

LAB = "paged_cache"
SLOTS, BLOCK_SIZE, CONTEXT = 384, 16, 128
# Prompt and answer tokens, and the step in which it comes. Lower case: the same question again.
JOBS = {
    "A": (48, 30, 0),
    "B": (47, 34, 0),
    "C": (47, 22, 0),
    "D": (47, 57, 0),
    "d": (47, 57, 20),
    "c": (47, 22, 20),
    "b": (47, 34, 20),
    "a": (48, 30, 20),
}


def record(part: Part) -> Trace:
    """Run all jobs under each allocator, and pick the steps in which somebody comes or goes."""
    manager = part("paged_cache").BlockManager(SLOTS // BLOCK_SIZE, BLOCK_SIZE)
    runs = [
        Run("whole context", Contiguous(exact=False)).go(),
        Run("exact length", Contiguous(exact=True)).go(),
        Run(f"blocks of {BLOCK_SIZE}", Paged(manager)).go(),
    ]
    moments = _moments(runs)
    return {
        "slots": SLOTS,
        "block_size": BLOCK_SIZE,
        "last": moments[-1],
        "allocators": [
            {
                "label": run.label,
                "external": run.external,
                "pieces": [vars(piece) for piece in run.allocator.pieces],
            }
            for run in runs
        ],
        "steps": [
            {
                "say": _caption(at, runs, is_last=at == moments[-1]),
                "at": at,
                "states": [run.states[min(at, len(run.states) - 1)] for run in runs],
            }
            for at in moments
        ],
    }


def _moments(runs: list["Run"]) -> list[int]:
    """Steps to show: who comes and goes while somebody waits for a piece, then the end of each run."""
    ends = {len(run.states) - 1 for run in runs}
    last_vain = max((end for run in runs for _, end in run.external), default=max(ends))
    events = {at for run in runs for at, *_ in run.events}
    return sorted(ends | {at for at in events if at <= last_vain})


@dataclass
class Piece:
    """A stretch of memory that a request has: slots, then steps. held: tokens in it when it got it.

    It gains a token a step until it is full: of a request's blocks only the last one is not.
    """

    owner: str
    start: int
    size: int
    begin: int
    held: int
    end: int | None = None

    def tokens(self, at: int) -> int:
        """How many of its slots hold a token in a step."""
        return min(self.size, self.held + at - self.begin)


class Allocator(Protocol):
    """pieces: all that it ever gave out."""

    pieces: list[Piece]

    def start(self, name: str, at: int) -> bool:
        """Give a request room for its prompt; False if there is none."""
        ...

    def grow(self, name: str, tokens: int, at: int) -> None:
        """Have room for this many tokens of a request."""
        ...

    def end(self, name: str, at: int) -> None:
        """Take back all that a request has."""
        ...

    def in_vain(self, name: str) -> str:
        """Why a request must wait although enough slots are free; '' if they are not."""
        ...


class Contiguous:
    """One piece for each request, in the first hole that is long enough."""

    def __init__(self, *, exact: bool) -> None:
        self.exact = exact
        self.pieces: list[Piece] = []

    def wanted(self, name: str) -> int:
        prompt, answer, _ = JOBS[name]
        return prompt + answer if self.exact else CONTEXT

    def holes(self) -> list[tuple[int, int]]:
        taken = sorted((p.start, p.start + p.size) for p in self.pieces if p.end is None)
        ends = [0, *(end for _, end in taken)]
        begins = [*(begin for begin, _ in taken), SLOTS]
        return [(a, b - a) for a, b in zip(ends, begins, strict=True) if b > a]

    def start(self, name: str, at: int) -> bool:
        size = self.wanted(name)
        place = next((start for start, length in self.holes() if length >= size), None)
        if place is None:
            return False
        self.pieces.append(Piece(name, place, size, at, JOBS[name][0]))
        return True

    def grow(self, name: str, tokens: int, at: int) -> None:
        """It has all its room from the start."""

    def end(self, name: str, at: int) -> None:
        _end(self.pieces, name, at)

    def in_vain(self, name: str) -> str:
        sizes = [size for _, size in self.holes()]
        if sum(sizes) < self.wanted(name):
            return ""
        return (
            f"{self.wanted(name)} slots, and the {sum(sizes)} that are free lie in {listed(sizes)}"
        )


class Paged:
    """Blocks, one at a time, from the part under way."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self.pieces: list[Piece] = []

    def start(self, name: str, at: int) -> bool:
        """One block stays free for whoever runs already: the watermark."""
        if self.manager.num_free <= -(-JOBS[name][0] // BLOCK_SIZE):
            return False
        self.grow(name, JOBS[name][0], at)
        return True

    def grow(self, name: str, tokens: int, at: int) -> None:
        has = len(self.manager.get_physical_blocks(name))
        fresh = self.manager.allocate(name, max(0, -(-tokens // BLOCK_SIZE) - has))
        for index, block in enumerate(fresh, has):
            held = min(BLOCK_SIZE, tokens - index * BLOCK_SIZE)
            self.pieces.append(Piece(name, block * BLOCK_SIZE, BLOCK_SIZE, at, held))

    def end(self, name: str, at: int) -> None:
        self.manager.free(name)
        _end(self.pieces, name, at)

    def in_vain(self, name: str) -> str:
        """Never: any free block is as good as any other."""
        return ""


def _end(pieces: list[Piece], name: str, at: int) -> None:
    for piece in pieces:
        if piece.owner == name and piece.end is None:
            piece.end = at


@dataclass
class Run:
    """First come, first served: who is next waits until there is room, and the others behind it.

    states: of each step: slots that hold a token, that are reserved and empty, that are free; whether
        they are free in vain; who runs and who waits. events: (step, name, what). external: the steps
        in which somebody waits although enough slots are free, as [from, to); reasons: why, by step.
    """

    label: str
    allocator: Allocator
    states: list[dict[str, Any]] = field(default_factory=list)
    events: list[tuple[int, str, str]] = field(default_factory=list)
    external: list[list[int]] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    _running: dict[str, int] = field(default_factory=dict)  # name -> tokens that it has computed
    _queue: list[str] = field(default_factory=lambda: list(JOBS))

    def go(self) -> "Run":
        """Until everybody is done."""
        while self._queue or self._running:
            self._step(len(self.states))
        return self

    def _step(self, at: int) -> None:
        for name in list(self._running):
            prompt, answer, _ = JOBS[name]
            self._running[name] += 1
            if self._running[name] == prompt + answer:  # the last token drawn is never computed
                del self._running[name]
                self.allocator.end(name, at)
                self.events.append((at, name, "is done"))
            else:
                self.allocator.grow(name, self._running[name], at)
        self.events += [(at, name, "comes") for name in self._queue if JOBS[name][2] == at]
        while self._waiting(at) and self.allocator.start(self._queue[0], at):
            name = self._queue.pop(0)
            self._running[name] = JOBS[name][0]
            self.events.append((at, name, "starts"))
        self._keep(at)

    def _waiting(self, at: int) -> list[str]:
        return [name for name in self._queue if JOBS[name][2] <= at]

    def _keep(self, at: int) -> None:
        live = [piece for piece in self.allocator.pieces if piece.end is None]
        held = sum(piece.tokens(at) for piece in live)
        taken = sum(piece.size for piece in live)
        waiting = self._waiting(at)
        reason = self.allocator.in_vain(waiting[0]) if waiting else ""
        vain = bool(reason)
        self.reasons[at] = reason
        if vain and self.external and self.external[-1][1] == at:
            self.external[-1][1] = at + 1
        elif vain:
            self.external.append([at, at + 1])
        self.states.append({
            "held": held, "empty": taken - held, "free": SLOTS - taken, "vain": vain,
            "running": "".join(self._running), "waiting": "".join(waiting),
        })  # fmt: skip

    @property
    def share(self) -> float:
        """Of the slots taken, summed over all steps, how many hold a token."""
        held = sum(state["held"] for state in self.states)
        return float(held / (held + sum(state["empty"] for state in self.states)))


def _caption(at: int, runs: list[Run], *, is_last: bool) -> str:
    coming = [name for moment, name, what in runs[0].events if moment == at and what == "comes"]
    parts = [f"Step {at}."]
    if coming:
        parts.append(f"{listed(coming)} come{', the same questions again' if at else ''}.")
    parts += [text for run in runs if (text := _told(run, at))]
    if is_last:
        shares = ", ".join(f"{run.share:.0%} with {run.label}" for run in runs)
        parts.append(f"Over all steps, of the slots taken, this many held a token: {shares}.")
    return " ".join(parts)


def _told(run: Run, at: int) -> str:
    """What happens in one step of a run."""
    happened = {
        what: [name for moment, name, event in run.events if (moment, event) == (at, what)]
        for what in ("is done", "starts")
    }
    what = [
        _verb(names, *words) for words, names in zip(VERBS, happened.values(), strict=True) if names
    ]
    if not what:
        return ""
    state = run.states[at]
    if state["vain"]:
        what.append(f"{state['waiting'][0]} waits: it needs {run.reasons[at]}")
    elif state["waiting"]:
        what.append(_verb(list(state["waiting"]), "waits", "wait"))
    if not state["running"] and not state["waiting"]:
        what.append("that was the last")
    return f"{run.label.capitalize()}: {'; '.join(what)}."


VERBS = (("is done", "are done"), ("starts", "start"))


def _verb(names: list[str], one: str, several: str) -> str:
    return f"{listed(names)} {one if len(names) == 1 else several}"
