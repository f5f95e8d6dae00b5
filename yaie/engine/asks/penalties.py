"""Presence, frequency and repetition penalty."""

from collections.abc import Sequence
from typing import ClassVar

from yaie.core.request import Request
from yaie.core.step import Arrays
from yaie.engine.asks.arrays import floats, ints
from yaie.engine.asks.base import Ask, Vocabulary


class Penalties(Ask):
    name: ClassVar[str] = "penalties"

    def enter(self, asking: Sequence[tuple[int, Request]], vocabulary: Vocabulary) -> Arrays | None:
        params = [request.params for _, request in asking]
        return {
            "rows": ints([position for position, _ in asking]),
            "presence": floats([one.presence_penalty for one in params]),
            "frequency": floats([one.frequency_penalty for one in params]),
            "repetition": floats([one.repetition_penalty for one in params]),
        }
