"""Drafts that are never wrong: what a grammar leaves no choice about (jump-forward, Zheng et al. 2024).

A record's keys are given by its schema. As drafts of one step all of their tokens cost one forward pass,
and the masks behind each of them let nothing else through.
"""

from collections.abc import Sequence

from yaie.core.contracts import Proposer
from yaie.core.request import Request


class JumpForward:
    """Proposes what must come; where that is nothing, what another proposer guesses."""

    def __init__(self, otherwise: Proposer) -> None:
        self._otherwise = otherwise

    def propose(self, request: Request, most: int) -> Sequence[int]:
        """See the contract."""
        if request.matcher is not None and (certain := request.matcher.forced(most)):
            drafts: list[int] = certain
            return drafts
        return self._otherwise.propose(request, most)
