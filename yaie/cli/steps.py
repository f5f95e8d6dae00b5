"""The engine's steps behind an answer, as a table: who computed how many tokens, and what was sampled.

`yaie generate --steps` prints it. It watches from outside: the plan of each step, what the step
returned, and the engine's figures.
"""

import json
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import JustifyMethod
from rich.table import Table

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request
from yaie.system.terminal import printable

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine

GAP = "  "
HEAD = ("step", "tokens", "blocks", "request", "computes", "drafts", "accepted", "sampled")
NUMBERS = ("step", "tokens", "blocks", "drafts", "accepted")
OF_DRAFTS = ("drafts", "accepted")
FOR_NOTHING = ", for nothing"
"""Of a step that was sent before the end of its request was known."""
MOST_LINES = 8
"""Requests of a step that get a line of their own."""


@dataclass(slots=True)
class Share:
    """One request's part of a step. what: in words, and the same for steps that look alike.
    drafts: how many were verified; they are among the `num_tokens`. accepted: those that were right."""

    what: str
    num_tokens: int
    drawn: list[int] = field(default_factory=list)
    end: FinishReason | None = None
    drafts: int = 0
    accepted: int = 0


@dataclass(slots=True)
class Step:
    """shares: by name, of those who ran or lost their place. waiting: names.
    blocks: in use at its end."""

    shares: dict[str, Share]
    waiting: list[str]
    blocks: int

    @property
    def shape(self) -> tuple[object, ...]:
        """Steps with the same shape are told in one row."""
        shares = [
            (name, share.what, share.drafts, share.accepted) for name, share in self.shares.items()
        ]
        return (shares, self.waiting)

    @property
    def has_drafts(self) -> bool:
        """Whether drafts were verified."""
        return any(share.drafts for share in self.shares.values())


@dataclass(frozen=True, slots=True)
class Drawing:
    """A share whose outcome has not been read."""

    share: Share
    item: ScheduledRequest


class StepLog:
    """Runs the engine step by step for these requests and remembers what each step did.

    An overlapped loop reads the outcome of a step when it has sent the next one. So what comes out
    belongs to the oldest step that drew for its request and was not read.
    """

    def __init__(self, engine: "LLMEngine", requests: Sequence[Request]) -> None:
        self._engine = engine
        self._requests = {name_of(index): request for index, request in enumerate(requests)}
        self._steps: list[Step] = []
        self._plan: StepPlan | None = None  # the one that was sent last
        self._unread: dict[str, deque[Drawing]] = defaultdict(deque)

    def step(self) -> list[RequestOutput]:
        """One step of the engine."""
        computed = {
            name: request.num_computed_tokens
            for name, request in self._requests.items()
            if not request.is_finished
        }
        self._plan = None
        self._engine.tell_plans(self._sent)
        outputs = self._engine.step()
        self._engine.tell_plans(None)
        plan = self._plan or StepPlan()
        step = Step({}, [], int(self._engine.stats()["used_blocks"]))
        planned = {item.request.request_id: item for item in plan.scheduled}
        preempted = {request.request_id for request in plan.preempted}
        for name, before in computed.items():
            request = self._requests[name]
            if (item := planned.get(request.request_id)) is not None:
                share = step.shares[name] = _share(item, is_first=before == 0)
                if item.samples:
                    self._unread[name].append(Drawing(share, item))
            elif request.request_id in preempted:
                step.shares[name] = Share(f"{request.status}", 0)
        self._read({output.request_id: output for output in outputs}, step)
        for name in computed:
            request = self._requests[name]
            if name not in step.shares and not request.is_finished and not self._unread[name]:
                step.waiting.append(name)
        if step.shares or step.waiting or not plan.is_empty:  # a call may have only read
            self._steps.append(step)
        return outputs

    def _sent(self, plan: StepPlan) -> None:
        self._plan = plan

    def _read(self, gained: dict[str, RequestOutput], step: Step) -> None:
        """Put what came out to the steps that drew it; without one, to this step."""
        for name, request in self._requests.items():
            if (output := gained.get(request.request_id)) is None:
                continue
            unread = self._unread[name]
            if unread:
                drawing = unread.popleft()
                share = drawing.share
                share.accepted = _accepted(drawing.item)
            else:
                share = step.shares.setdefault(name, Share("nothing", 0))
            share.drawn, share.end = output.token_ids, output.finish_reason
            if request.is_finished:
                for late in unread:
                    late.share.what += FOR_NOTHING
                unread.clear()

    def table(self, width: int) -> Table:
        """A row for each run of steps that look alike; what was sampled is cut to `width` characters.

        blocks: the most that were in use at the end of a step of the run. drafts, accepted: only where
        the engine drafts.
        """
        rows = [HEAD, *self._rows()]
        if self._engine.config.speculate == "off" and not any(s.has_drafts for s in self._steps):
            rows = [tuple(cell for cell, name in zip(row, HEAD, strict=True) if name not in OF_DRAFTS)
                    for row in rows]  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        room = width - sum(widths[:-1]) - len(GAP) * len(widths)
        table = Table(box=None, padding=(0, len(GAP), 0, 0), header_style="dim")
        for name in rows[0]:
            most = max(room, len(name)) if name == "sampled" else None
            justify: JustifyMethod = "right" if name in NUMBERS else "left"
            table.add_column(
                name, justify=justify, no_wrap=True, overflow="ellipsis", max_width=most
            )
        for row in rows[1:]:
            table.add_row(*row)
        return table

    def _rows(self) -> Iterator[tuple[str, ...]]:
        first = 1
        for _, group in groupby(self._steps, key=lambda step: step.shape):
            run = list(group)
            blocks = max(step.blocks for step in run)
            cells = (_span(first, first + len(run) - 1), _tokens(run[0]), str(blocks))
            for line in self._lines(run):
                yield *cells, *line
                cells = ("", "", "")
            first += len(run)

    def _lines(self, run: list[Step]) -> list[tuple[str, ...]]:
        """Name, share, drafts and drawn text of each request in a run of steps."""
        lines: list[tuple[str, ...]] = []
        for name in run[0].shares:
            shares = [step.shares[name] for step in run]
            ids = [token for share in shares for token in share.drawn]
            text = self._engine.tokenizer.decode(ids)
            drawn = printable(json.dumps(text, ensure_ascii=False)) if text else "(no text)"
            end = f", ends: {shares[-1].end}" if shares[-1].end else ""
            drafts = (str(shares[0].drafts), str(shares[0].accepted)) if ids else ("", "")
            lines.append((name, shares[0].what + end, *drafts, drawn if ids else ""))
        if len(lines) > MOST_LINES:
            more = f"and {len(lines) - MOST_LINES + 1} more"
            lines[MOST_LINES - 1 :] = [("...", more, "", "", "")]
        if run[0].waiting:
            waiting = run[0].waiting
            more = f" and {len(waiting) - MOST_LINES} more" if len(waiting) > MOST_LINES else ""
            lines.append((" ".join(waiting[:MOST_LINES]), f"wait{more}", "", "", ""))
        return lines or [("", "nothing", "", "", "")]


def name_of(index: int) -> str:
    """A to Z, then 27 and so on."""
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def _share(item: ScheduledRequest, *, is_first: bool) -> Share:
    """What a plan has a request compute. is_first: nothing of it was computed before."""
    request = item.request
    what = f"{item.num_tokens}"
    if is_first and request.num_preemptions > 0:
        what += ", again"
    elif is_first and request.num_cached_tokens:
        what += f", {request.num_cached_tokens} cached"
    return Share(what, item.num_tokens, drafts=len(item.drafts))


def _accepted(item: ScheduledRequest) -> int:
    """How many drafts of a request were right, once the outcome is known: rejected ones were computed,
    and do not hold. A request with drafts is not in the next step, which would have to know them."""
    end = item.start + item.num_tokens
    rejected = end - item.request.num_computed_tokens if item.drafts else 0
    return len(item.drafts) - rejected


def _tokens(step: Step) -> str:
    """How many the step computed."""
    return str(sum(share.num_tokens for share in step.shares.values()))


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"
