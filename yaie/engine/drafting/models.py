"""Drafts from a small model of its own, which keeps its place in a paged cache of its own."""

import weakref
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np

from yaie.core.contracts.drafting import DraftPlaces
from yaie.core.request import Request
from yaie.core.step import DraftStep
from yaie.engine.step.isolation import Isolation

MOST_CAUGHT_UP = 512
"""Tokens that the draft model computes beside its first drafts: a long prompt is read over several
steps, in which its request gets no drafts."""


class DraftsSteps(Protocol):
    """What carries out draft steps: `yaie.worker.draft_worker`."""

    def draft(self, step: DraftStep) -> list[list[int]]:
        """The drafts of each row."""
        ...


class ModelProposer:
    """See `yaie.core.contracts.Proposer`. All requests of a step go through the model together."""

    is_free = False

    def __init__(
        self, worker: DraftsSteps, places: DraftPlaces, isolation: Isolation | None = None
    ) -> None:
        """places: lab 18's. isolation: where requests fail whose place raises."""
        self._worker = worker
        self._places = places
        self._isolation = isolation or Isolation()
        self._ends: dict[str, weakref.finalize[Any, Request]] = {}

    def propose(self, asked: Sequence[tuple[Request, int]]) -> list[Sequence[int]]:
        """See the contract."""
        rows: list[tuple[int, str, int, Sequence[int], int]] = []
        left = MOST_CAUGHT_UP
        for index, (request, most) in enumerate(asked):
            key, text = request.request_id, request.token_ids
            start = self._isolation.call(request, None, self._begin, request, most, asked)
            if start is None:
                continue
            new: Sequence[int] = text[start : start + max(1, min(len(text) - start, left))]
            left -= len(new)
            rows.append((index, key, start, new, most if start + len(new) == len(text) else 0))
            if left <= 0:
                break
        found: list[Sequence[int]] = [()] * len(asked)
        if rows:
            rows.sort(key=lambda row: len(row[3]) > 1)  # single tokens first
            made = self._worker.draft(self._step(rows))
            for (index, key, _, new, most), drafts in zip(rows, made, strict=True):
                self._places.wrote(key, [*new, *drafts[: most - 1]] if most else new)
                found[index] = drafts
        return found

    def _begin(
        self, request: Request, most: int, asked: Sequence[tuple[Request, int]]
    ) -> int | None:
        """See `DraftPlaces.begin`. Makes room once where there is none."""
        key, text = self._key(request), request.token_ids
        start = self._places.begin(key, text, most)
        if start is None:
            self._make_room({one.request_id for one, _ in asked})
            start = self._places.begin(key, text, most)
        return start

    def _step(self, rows: Sequence[tuple[int, str, int, Sequence[int], int]]) -> DraftStep:
        tables = [self._places.table(key) for _, key, _, _, _ in rows]
        width = max(map(len, tables))
        padded = np.zeros((len(rows), width), np.int32)
        for row, table in zip(padded, tables, strict=True):
            row[: len(table)] = table
        return DraftStep(
            tokens=np.array(list(chain.from_iterable(new for _, _, _, new, _ in rows)), np.int32),
            starts=np.array([start for _, _, start, _, _ in rows], np.int32),
            num_tokens=np.array([len(new) for _, _, _, new, _ in rows], np.int32),
            num_drafts=np.array([most for *_, most in rows], np.int32),
            tables=padded,
        )

    def _key(self, request: Request) -> str:
        """Of a request's place, which is given up when the request goes."""
        key = request.request_id
        end = self._ends.get(key)
        if end is None or end.peek() is None or end.peek()[0] is not request:  # type: ignore[index]
            self._places.end(key)
            self._ends[key] = weakref.finalize(request, _end, self._ends, self._places.end, key)
            self._ends[key].atexit = False
        return key

    def _make_room(self, kept: set[str]) -> None:
        """Give up the places of all requests but these."""
        for key in set(self._ends) - kept:
            self._places.end(key)


def _end(
    ends: dict[str, "weakref.finalize[Any, Request]"], end: Callable[[str], None], key: str
) -> None:
    ends.pop(key, None)
    end(key)
