"""Steps on their way to a record: several become one where they are short."""

import time
from collections.abc import Mapping
from copy import copy
from typing import Any

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.output import RequestOutput
from yaie.core.records import Record
from yaie.core.request import Request, RequestStatus

Moves = dict[str, list[tuple[int, int]]]


class Merged:
    """Plans and outputs since the last record. Adding a step costs next to nothing.

    new: requests that came, as records tell them. preempted: [id, how]. moves: of blocks, by kind.
    num_steps, seconds: how many, and what they took.
    """

    def __init__(self) -> None:
        self.new: list[Record] = []
        self.preempted: list[list[str]] = []
        self.moves: Moves = {"copies": [], "swap_out": [], "swap_in": []}
        self.num_steps = 0
        self.seconds = 0.0
        self._plans: list[list[ScheduledRequest]] = []
        self._outputs: list[list[RequestOutput]] = []

    @property
    def is_empty(self) -> bool:
        return not (self.new or self._plans or self._outputs)

    @property
    def is_idle(self) -> bool:
        """Whether every planned step has ended."""
        return len(self._plans) == len(self._outputs)

    def planned(self, plan: StepPlan) -> None:
        """A step is about to be computed."""
        self._plans.append(plan.scheduled)
        for request in plan.preempted:
            is_swapped = request.status is RequestStatus.SWAPPED
            self.preempted.append([request.request_id, "swap" if is_swapped else "recompute"])
        for name, pairs in self.moves.items():
            pairs += getattr(plan, name)

    def stepped(self, outputs: list[RequestOutput], seconds: float) -> None:
        """A step has ended."""
        # Copies: what a slow client has not taken is merged into the output itself, on another thread.
        self._outputs.append([copy(output) for output in outputs])
        self.num_steps += 1
        self.seconds += seconds

    def rows(self) -> list[Record]:
        """What was computed and drawn. Decodes of a request that follow each other are one row."""
        rows: list[Record] = []
        latest: dict[str, Record] = {}
        for scheduled in self._plans:
            for item in scheduled:
                told = _row(item)
                before = latest.get(told["id"])
                if before is not None and _continues(before, told):
                    before["num_tokens"] += told["num_tokens"]
                else:
                    rows.append(told)
                    latest[told["id"]] = told
        for output in (output for outputs in self._outputs for output in outputs):
            if output.request_id not in latest:  # its step has a record already
                latest[output.request_id] = _bare(output)
                rows.append(latest[output.request_id])
            row = latest[output.request_id]
            row["out"] += output.token_ids
            row["text"] += output.text
        return rows

    def first_tokens(self, alive: Mapping[str, Request]) -> dict[str, float]:
        """Seconds from arrival to first token, of the requests that got theirs."""
        now, found = time.monotonic(), {}
        for output in (output for outputs in self._outputs for output in outputs):
            request = alive.get(output.request_id)
            is_first = 0 < output.num_output_tokens == len(output.token_ids)
            if request is not None and is_first:
                came = request.first_token_time
                found[output.request_id] = (now if came is None else came) - request.arrival_time
        return found


def _row(item: ScheduledRequest) -> dict[str, Any]:
    request = item.request
    return {
        "id": request.request_id,
        "start": item.start,
        "num_tokens": item.num_tokens,
        "cached": request.num_cached_tokens,
        "is_prefill": item.start < request.num_prompt_tokens,
        "drafts": len(item.drafts),
        "out": [],
        "text": "",
    }


def _bare(output: RequestOutput) -> dict[str, Any]:
    computed = output.num_prompt_tokens + output.num_output_tokens - 1
    return {
        "id": output.request_id,
        "start": computed,
        "num_tokens": 0,
        "cached": output.num_cached_tokens,
        "is_prefill": False,
        "drafts": 0,
        "out": [],
        "text": "",
    }


def _continues(before: Record, row: Record) -> bool:
    return (
        not (before["drafts"] or row["drafts"] or before["is_prefill"] or row["is_prefill"])
        and before["start"] + before["num_tokens"] == row["start"]
    )
