"""The engine's steps behind an answer, as a table: who computed how many tokens, and what was drawn.

`yaie generate --steps` prints it. It watches from outside: requests before and after each step, the
step's plan, what the step returned, and the engine's figures.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import JustifyMethod
from rich.table import Table

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request, RequestStatus
from yaie.system.terminal import printable

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine

GAP = "  "
HEAD = ("step", "tokens", "blocks", "request", "computes", "drafts", "accepted", "drawn")
NUMBERS = ("step", "tokens", "blocks", "drafts", "accepted")
OF_DRAFTS = ("drafts", "accepted")
AT_MOST = "up to "
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


class StepLog:
    """Runs the engine step by step for these requests and remembers what each step did."""

    def __init__(self, engine: "LLMEngine", requests: Sequence[Request]) -> None:
        self._engine = engine
        self._requests = {name_of(index): request for index, request in enumerate(requests)}
        self._steps: list[Step] = []
        self._verified: dict[str, ScheduledRequest] = {}  # of this step, by the request's id

    def step(self) -> list[RequestOutput]:
        """One step of the engine."""
        before = {
            name: (request.num_computed_tokens, request.status)
            for name, request in self._requests.items()
            if not request.is_finished
        }
        self._verified = {}
        self._engine.tell_plans(self._planned)
        outputs = self._engine.step()
        self._engine.tell_plans(None)
        gained = {output.request_id: output for output in outputs}
        step = Step({}, [], int(self._engine.stats()["used_blocks"]))
        for name, (computed, status) in before.items():
            request = self._requests[name]
            share = _share(request, computed, status, self._verified.get(request.request_id))
            if (output := gained.get(request.request_id)) is not None:
                share = share or Share("nothing", 0)
                share.drawn, share.end = output.token_ids, output.finish_reason
            if share is not None:
                step.shares[name] = share
            elif not request.is_finished:
                step.waiting.append(name)
        self._steps.append(step)
        return outputs

    def _planned(self, plan: StepPlan) -> None:
        self._verified = {item.request.request_id: item for item in plan.scheduled if item.drafts}

    def table(self, width: int) -> Table:
        """A row for each run of steps that look alike; what was drawn is cut to fit `width` characters.

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
            most = max(room, len(name)) if name == "drawn" else None
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


def _share(
    request: Request, computed: int, status: RequestStatus, item: ScheduledRequest | None
) -> Share | None:
    """What the step did for a request that stood at `computed` tokens and `status` before it. item: of
    the plan, if it had drafts."""
    if request.num_computed_tokens < computed or (
        request.status is RequestStatus.SWAPPED and status is not RequestStatus.SWAPPED
    ):
        return Share(f"{request.status}", 0)
    num_tokens = request.num_computed_tokens - computed
    if num_tokens == 0:
        return None
    drafts = rejected = 0
    if item is not None:  # rejected drafts were computed, and do not hold
        drafts = len(item.drafts)
        rejected = item.start + item.num_tokens - request.num_computed_tokens
        num_tokens += rejected
    # A request that was preempted may find some of its tokens cached; how many, it does not say.
    if computed == 0 and request.num_preemptions > 0:
        what = f"{AT_MOST}{num_tokens}, again"
    else:
        cached = request.num_cached_tokens if computed == 0 else 0
        num_tokens -= cached
        what = f"{num_tokens}" + (f", {cached} cached" if cached else "")
    return Share(what, num_tokens, drafts=drafts, accepted=drafts - rejected)


def _tokens(step: Step) -> str:
    """How many the step computed."""
    count = sum(share.num_tokens for share in step.shares.values())
    exact = not any(share.what.startswith(AT_MOST) for share in step.shares.values())
    return str(count) if exact else f"{AT_MOST}{count}"


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"
