"""Follows the output of a request through its grammar: what may come next, and what must."""

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

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

    def __init__(self, follower: Follower, request: Request, eos_token_ids: Sequence[int]) -> None:
        """follower: at its start, for nobody else."""
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
        has_ended, taken = self._has_ended, 0
        self._fill(rows[0], self._num_followed, has_ended)
        for index, token in enumerate(drafts, start=1):
            if not rows[index - 1][token // 8] >> token % 8 & 1:
                rows[index:] = 0xFF
                break
            if token in self._eos_token_ids:
                has_ended = True
            else:
                self._follower.accept(token)
                taken += 1
            self._fill(rows[index], self._num_followed + index, has_ended)
        self._follower.rollback(taken)

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


def leave_out(bits: Bits, tokens: Collection[int]) -> None:
    """Clear the bits of these tokens, unless no other is set."""
    rest = bits.copy()
    for token in tokens:
        if 0 <= token < 8 * len(rest):
            rest[token // 8] &= ~(1 << token % 8) & 0xFF
    if rest.any():
        bits[:] = rest
