"""`logprobs`, and `logprob_token_ids` in the place of the most likely tokens."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from yaie.core.batch import ScheduledRequest
from yaie.core.logprobs import TokenLogprob
from yaie.core.step import Arrays
from yaie.core.told import entries
from yaie.engine.asks.arrays import ints
from yaie.engine.asks.base import Ask


class Logprobs(Ask):
    name: ClassVar[str] = "logprobs"

    def wants(self, item: ScheduledRequest) -> bool:
        return item.samples

    def ask(self, asking: Sequence[tuple[int, ScheduledRequest]]) -> Arrays:
        params = [item.request.params for _, item in asking]
        named = [one.logprob_token_ids for one in params]
        padded = np.zeros((len(named), max(map(len, named))), np.int32)
        for position, own in enumerate(named):
            padded[position, : len(own)] = own
        return {
            "rows": ints([row for row, _ in asking]),
            "num_top": ints([one.logprobs or 0 for one in params]),
            "named": padded,
            "num_named": ints([len(own) for own in named]),
        }

    def told(self, asked: Arrays, told: Arrays | None) -> Iterator[tuple[int, list[TokenLogprob]]]:
        return iter(by_row(told).items())

    def note(self, item: ScheduledRequest, value: list[TokenLogprob]) -> None:
        """Append those of the tokens that a step drew."""
        if not item.request.is_finished:
            item.request.logprobs += value


def by_row(told: Arrays | None) -> dict[int, list[TokenLogprob]]:
    """What was told, row by row."""
    found: dict[int, list[TokenLogprob]] = {}
    for row, entry in entries(told) if told is not None else ():
        found.setdefault(row, []).append(entry)
    return found
