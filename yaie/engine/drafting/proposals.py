"""Asks the worker's own head for drafts, behind what a step draws."""

from collections.abc import Sequence
from typing import ClassVar

from yaie.core.batch import ScheduledRequest
from yaie.core.step import Arrays
from yaie.engine.asks.arrays import ints
from yaie.engine.asks.base import Ask


class Proposals(Ask):
    """Of every row: the head also stores keys and values of those that draft nothing. What it made, the
    drafter reads off the result."""

    name: ClassVar[str] = "proposals"

    def wants(self, item: ScheduledRequest) -> bool:
        return True

    def ask(self, asking: Sequence[tuple[int, ScheduledRequest]]) -> Arrays:
        return {
            "rows": ints([row for row, _ in asking]),
            "most": ints([item.ahead or 0 for _, item in asking]),
        }
