"""Follows the output of a request through its grammar: what may come next, and what must."""

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.drafting import MasksAhead
from yaie.core.request import Request

Bits = NDArray[np.uint8]


class Follower(Protocol):
    """A place in a compiled grammar, for one output: llguidance's, or lab 21's."""

    def accept(self, token: int) -> bool:
        """Go on behind a token that ends nothing; False if it may not come."""
        ...

    def mask(self) -> tuple[Bits, str | None]:
        """(bits of the tokens that may come, why it cannot go on or None).

        Where the text is certain (`forced`) one token may come: the same text in other tokens is worse
        for a model that never saw it so, and drafts would be thrown away.
        """
        ...

    def rollback(self, count: int) -> None:
        """Take back the last `count` accepted tokens."""
        ...

    def forced(self, most: int) -> list[int]:
        """At most `most` tokens that come next whatever the model says."""
        ...

    def why_refused(self) -> str:
        """Why the last token could not come."""
        ...


class Compiled(Protocol):
    """A grammar that any number of outputs may follow."""

    def follower(self) -> Follower:
        """A place at its start, for one output."""
        ...


class Matcher:
    """Follows the output of one request through its grammar.

    error: why it cannot go on; None as long as it can. The request is then to end.
    """

    def __init__(
        self,
        follower: Follower,
        request: Request,
        eos_token_ids: Sequence[int],
        masks_ahead: MasksAhead,
    ) -> None:
        """follower: at its start, for nobody else. masks_ahead: lab 18's."""
        self._masks_ahead = masks_ahead
        self._follower = follower
        self._request = request
        self._eos_token_ids = eos_token_ids
        self._enders = {*eos_token_ids, *request.params.stop_token_ids}
        self._num_followed = 0
        self._has_ended = False
        self.error: str | None = None

    def fill(self, bits: Bits) -> None:
        """Set the bits [width / 8] of the tokens that may come next, the lowest first; none if the
        matcher has failed.

        The end-of-sequence tokens are among them where the output may end. After one (`ignore_eos`)
        nothing else is. Before `min_tokens` what ends an output is left out, as long as something else
        may come.
        """
        self._follow()
        self._fill(bits, self._num_followed, self._has_ended)

    def fill_ahead(self, rows: Bits, drafts: Sequence[int]) -> None:
        """Set `rows` [len(drafts) + 1, width / 8]: what may come next, and behind each draft.

        Behind a draft that may not come itself all bits are set: nothing is drawn there.
        """
        self._follow()
        self._masks_ahead(_Ahead(self), drafts, rows)

    def forced(self, most: int) -> list[int]:
        """At most `most` tokens that come next whatever the model says: drafts that cost no model."""
        self._follow()
        if self._has_ended or self.error is not None:
            return []
        return self._follower.forced(most)

    def _fill(self, bits: Bits, num_tokens: int, has_ended: bool) -> None:
        """The bits where the follower stands, behind so many tokens of output."""
        bits[:] = 0
        if has_ended:
            for token in self._eos_token_ids:
                bits[token // 8] |= 1 << token % 8
        elif self.error is None:
            mask = self._mask()[: len(bits)]
            if self.error is None:
                bits[: len(mask)] = mask
                if num_tokens < self._request.params.min_tokens:
                    leave_out(bits, self._enders)

    def _follow(self) -> None:
        """Take over the tokens that were generated since the last call.

        Not when they are drawn: a draw may yet be thrown away, and after a preemption tokens are
        computed again but not drawn again.
        """
        request = self._request
        new = request.token_ids[request.num_prompt_tokens + self._num_followed :]
        self._num_followed += len(new)
        for token in new:
            if token in self._eos_token_ids:
                self._has_ended = True
            elif not self._has_ended and not self._follower.accept(token):
                self._fail(self._follower.why_refused())
                return

    def _mask(self) -> Bits:
        mask, reason = self._follower.mask()
        if reason is not None:
            self._fail(reason)
        return mask

    def _fail(self, reason: str) -> None:
        self.error = f"the output cannot be kept to its grammar: {reason}"


class _Ahead:
    """Where the output stands, for drafts to go on from: see `GrammarPlace`."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._drafts: list[int] = []

    def fill(self, bits: Bits) -> None:
        matcher = self._matcher
        has_ended = matcher._has_ended or any(map(self._ends, self._drafts))
        matcher._fill(bits, matcher._num_followed + len(self._drafts), has_ended)

    def accept(self, token: int) -> bool:
        if not self._ends(token) and not self._matcher._follower.accept(token):
            return False
        self._drafts.append(token)
        return True

    def rollback(self, count: int) -> None:
        left = len(self._drafts) - count
        gone, self._drafts = self._drafts[left:], self._drafts[:left]
        self._matcher._follower.rollback(sum(not self._ends(token) for token in gone))

    def _ends(self, token: int) -> bool:
        return token in self._matcher._eos_token_ids


def leave_out(bits: Bits, tokens: Collection[int]) -> None:
    """Clear the bits of these tokens, unless no other is set."""
    rest = bits.copy()
    for token in tokens:
        if 0 <= token < 8 * len(rest):
            rest[token // 8] &= ~(1 << token % 8) & 0xFF
    if rest.any():
        bits[:] = rest
