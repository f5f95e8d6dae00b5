"""`pooling`: hidden states for embeddings, of all of a prompt or of its last token."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from yaie.core.batch import ScheduledRequest
from yaie.core.step import Arrays
from yaie.engine.asks.arrays import ints
from yaie.engine.asks.base import Ask
from yaie.engine.asks.too_late import started_too_late


class Pooling(Ask):
    name: ClassVar[str] = "pooling"

    def wants(self, item: ScheduledRequest) -> bool:
        request = item.request
        is_asked = request.params.pooling == "mean" or item.samples
        return is_asked and item.start < request.num_prompt_tokens

    def ask(self, asking: Sequence[tuple[int, ScheduledRequest]]) -> Arrays:
        firsts = [
            0 if item.request.params.pooling == "mean" else item.num_tokens - 1
            for _, item in asking
        ]
        return {"rows": ints([row for row, _ in asking]), "firsts": ints(firsts)}

    def told(self, asked: Arrays, told: Arrays | None) -> Iterator[tuple[int, NDArray[np.float32]]]:
        return iter(zip(told["rows"].tolist(), told["sums"], strict=True) if told else ())

    def note(self, item: ScheduledRequest, value: NDArray[np.float32]) -> None:
        """Add what a step summed of a prompt; computed anew from its first token, it begins anew.

        Raises RuntimeError if the request was started from a cached prefix.
        """
        request = item.request
        if item.start == 0 or request.params.pooling == "last":
            request.pooled = value
            return
        if request.pooled is None:
            raise started_too_late(item, "the mean of its hidden states")
        request.pooled = request.pooled + value
