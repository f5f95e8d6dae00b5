"""`min_tokens`."""

from collections.abc import Sequence
from typing import ClassVar

from yaie.core.ranges import MAX_TOKENS
from yaie.core.request import Request
from yaie.core.step import Arrays
from yaie.engine.asks.arrays import ints, longs
from yaie.engine.asks.base import Ask, Vocabulary


class MinTokens(Ask):
    name: ClassVar[str] = "min_tokens"

    def enter(self, asking: Sequence[tuple[int, Request]], vocabulary: Vocabulary) -> Arrays | None:
        found = [
            # No output is longer, whatever was asked for.
            (position, min(request.params.min_tokens, MAX_TOKENS), token)
            for position, request in asking
            for token in too_early(request, vocabulary)
        ]
        if not found:
            return None
        return {
            "rows": ints([position for position, _, _ in found]),
            "least": longs([least for _, least, _ in found]),
            "tokens": longs([token for _, _, token in found]),
        }


def too_early(request: Request, vocabulary: Vocabulary) -> list[int]:
    """What would end its output, and may not be drawn before `min_tokens`."""
    tokens = {*vocabulary.ends, *request.params.stop_token_ids}
    return sorted(token for token in tokens if 0 <= token < vocabulary.size)
