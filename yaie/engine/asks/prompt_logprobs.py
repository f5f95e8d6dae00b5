"""`prompt_logprobs`."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from yaie.core.batch import ScheduledRequest
from yaie.core.logprobs import TokenLogprob
from yaie.core.step import Arrays
from yaie.engine.asks.arrays import ints
from yaie.engine.asks.base import Ask
from yaie.engine.asks.logprobs import by_row
from yaie.engine.asks.too_late import started_too_late


class PromptLogprobs(Ask):
    name: ClassVar[str] = "prompt_logprobs"

    def wants(self, item: ScheduledRequest) -> bool:
        """While its prompt is computed. Of a prompt of one token nothing is told, but that is, too."""
        return item.start < max(1, item.request.num_prompt_tokens - 1)

    def ask(self, asking: Sequence[tuple[int, ScheduledRequest]]) -> Arrays:
        return {
            "rows": ints([row for row, _ in asking]),
            "num_top": ints([item.request.params.prompt_logprobs or 0 for _, item in asking]),
        }

    def told(self, asked: Arrays, told: Arrays | None) -> Iterator[tuple[int, list[TokenLogprob]]]:
        found = by_row(told)
        for row in asked["rows"].tolist():
            yield row, found.get(row, [])

    def note(self, item: ScheduledRequest, value: list[TokenLogprob]) -> None:
        """Append what a step told of a prompt; recomputed positions tell nothing new.

        Raises RuntimeError if the request was started from a cached prefix.
        """
        known = item.request.prompt_logprobs
        if not known:
            known.append(None)
        new = len(known) - 1 - item.start
        if new < 0:
            raise started_too_late(item, "the log-probabilities of its prompt")
        known += value[new:]
