"""Drafts that cost no model: what a grammar leaves no choice about (jump-forward, Zheng et al. 2024).

A record's keys are given by its schema. Computed as drafts of one step, all of their tokens cost one
forward pass; the masks behind each of them accept them, whatever the model would have said.
"""

from yaie.core.request import Request


class JumpForward:
    """Proposes drafts for requests with a grammar."""

    def propose(self, request: Request, most: int) -> list[int]:
        """At most `most` tokens that come next behind the request's known ones; none for a request
        without a grammar."""
        if request.matcher is None or most < 1:
            return []
        tokens: list[int] = request.matcher.forced(most)
        return tokens
