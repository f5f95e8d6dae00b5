"""Given so far: what guesses at the next tokens of requests (speculative decoding)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from yaie.core.request import Request


# ANCHOR: proposer
class Proposer(Protocol):
    """Guesses how requests go on. A guess is called a draft; the step that verifies it draws a token
    after each, so a wrong one costs time and never changes an output."""

    def propose(self, request: "Request", most: int) -> Sequence[int]:
        """Up to `most` tokens that may follow the request's `token_ids`, all of which are known.

        Called between steps for each request that is about to draw, so it must be cheap: nothing in it
        may look through the whole text each time. A request may be asked about after any number of new
        tokens, and not at all. State that belongs to a request goes when the request does.
        """
        ...


# ANCHOR_END: proposer
