"""`logit_bias`."""

from collections.abc import Sequence
from typing import ClassVar

from yaie.core.request import Request
from yaie.core.step import Arrays
from yaie.engine.asks.arrays import floats, ints, longs
from yaie.engine.asks.base import Ask, Vocabulary


class Biases(Ask):
    name: ClassVar[str] = "biases"

    def enter(self, asking: Sequence[tuple[int, Request]], vocabulary: Vocabulary) -> Arrays | None:
        found = [
            (position, token, bias)
            for position, request in asking
            for token, bias in request.params.logit_bias
        ]
        return {
            "rows": ints([position for position, _, _ in found]),
            "tokens": longs([token for _, token, _ in found]),
            "values": floats([bias for _, _, bias in found]),
        }
