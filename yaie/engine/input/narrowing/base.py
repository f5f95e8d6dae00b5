"""`Narrowing`: takes tokens away from those that may come next in one output."""

from collections.abc import Collection, Sequence
from typing import Protocol

from yaie.engine.input.grammars.matchers import Bits


class Narrowing(Protocol):
    """Follows one output."""

    def follow(self, tokens: Sequence[int]) -> None:
        """The output has gone on with these."""
        ...

    def narrow(self, bits: Bits, drafts: Sequence[int]) -> None:
        """Clear bits [width / 8] of tokens that may not come behind the output and these drafts, the
        lowest bit first. At least one of those that were set stays so."""
        ...


def keep_only(bits: Bits, token: int) -> None:
    """Clear all bits but this one; none if it is not set itself."""
    place, bit = token // 8, 1 << token % 8
    if place < len(bits) and bits[place] & bit:
        bits[:] = 0
        bits[place] = bit


def is_tail(ending: Sequence[int], output: Sequence[int], drafts: Collection[int]) -> bool:
    """Whether output and drafts, one behind the other, end so."""
    if not ending:
        return True
    known = [*output[-len(ending) :], *drafts]
    return known[-len(ending) :] == list(ending)
