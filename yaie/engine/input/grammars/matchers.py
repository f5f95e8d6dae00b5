"""Follows the output of a request through its grammar: what may come next, and what must.

All of it is done on the engine's thread, for one request after the other, so each has a limit on time.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.drafting import MasksAhead
from yaie.core.request import Request
from yaie.engine.input.grammars import work_clock

Bits = NDArray[np.uint8]

MASK_SECONDS = 0.1
"""Of processor time, for the mask of one request. Those of llguidance take a millisecond, and its own
limits end them after twenty; those of lab 21 take up to fifty, by the limits in its contract."""
MORE_FOR_A_DRAFT = 0.1
"""Of that time, for the mask behind each draft."""
MASK_SECONDS_A_TOKEN = 3e-6
"""More for each token of the vocabulary: a mask of lab 21 looks at all of them once, 0.3 µs each."""


def mask_seconds(vocab_size: int) -> float:
    """The processor time that the mask of one request may take in a step without drafts."""
    return MASK_SECONDS + MASK_SECONDS_A_TOKEN * vocab_size


class OverBudgetError(Exception):
    """What is done for a mask takes too much. It ends the request that it is done for: see `Matcher`.

    The message goes on from "the output cannot be kept to its grammar:".
    """


class Follower(Protocol):
    """A place in a compiled grammar, for one output: llguidance's, or lab 21's.

    Whatever it is asked for may raise OverBudgetError.
    """

    def begin(self, deadline: float) -> None:
        """What is asked for from now on must be done when `work_time` says so."""
        ...

    def spend(self) -> None:
        """It was not done by then. Outputs that begin later should be followed in another way."""
        ...

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
    """A grammar that any number of outputs may follow.

    is_spent: whether it has taken too long, and another one should be made for the outputs to come.
    """

    @property
    def is_spent(self) -> bool: ...

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
        seconds: float = MASK_SECONDS,
    ) -> None:
        """follower: at its start, for nobody else. masks_ahead: lab 18's. seconds: of processor time,
        that a mask may take."""
        self._seconds = seconds
        self._deadline = 0.0
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
        with self._in_time():
            self._follow()
            self._fill(bits, self._num_followed, self._has_ended)
        if self.error is not None:
            bits[:] = 0

    def fill_ahead(self, rows: Bits, drafts: Sequence[int]) -> None:
        """Set `rows` [len(drafts) + 1, width / 8]: what may come next, and behind each draft.

        Behind a draft that may not come itself all bits are set: nothing is drawn there.
        """
        with self._in_time(1 + len(drafts) * MORE_FOR_A_DRAFT):
            self._follow()
            self._masks_ahead(_Ahead(self), drafts, rows)
        if self.error is not None:
            rows[:] = 0

    def forced(self, most: int) -> list[int]:
        """At most `most` tokens that come next whatever the model says: drafts that cost no model."""
        tokens: list[int] = []
        with self._in_time():
            self._follow()
            if not self._has_ended and self.error is None:
                tokens = self._follower.forced(most)
        return [] if self.error is not None else tokens

    @contextmanager
    def _in_time(self, share: float = 1.0) -> Iterator[None]:
        """What is done within fails the matcher if it takes too long. It is interrupted where that can
        be done: see `BoundedAutomaton`."""
        self._deadline = work_clock.work_time() + share * self._seconds
        self._follower.begin(self._deadline)
        try:
            yield
            self._look_at_the_clock()
        except OverBudgetError as error:
            self._fail(str(error))

    def _look_at_the_clock(self) -> None:
        if self.error is None and work_clock.work_time() > self._deadline:
            self._follower.spend()
            raise OverBudgetError(TOO_SLOW.format(seconds=self._seconds))

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
        self._look_at_the_clock()
        return mask

    def _fail(self, reason: str) -> None:
        self.error = f"the output cannot be kept to its grammar: {reason}"


TOO_SLOW = (
    "it took more than {seconds:.2f} s of processor time to find what may come next, for which all "
    "other requests wait. Make the schema simpler: fewer alternatives, shorter constants"
)


class ForcedRun:
    """The tokens that are certain, found once: what is certain may be as long as the whole document, and
    is asked for behind each of its tokens."""

    def __init__(self, find: Callable[[int], list[int]], least: int) -> None:
        """find: at most so many tokens that must come where the output stands. least: how many it is
        asked for; fewer are all there are."""
        self._find = find
        self._least = least
        self._tokens: list[int] = []
        self._passed = 0  # of them, which the output has taken
        self._is_whole = False

    def accepted(self, token: int) -> None:
        """The output has gone on."""
        if self._passed < len(self._tokens) and self._tokens[self._passed] == token:
            self._passed += 1
        else:
            self._forget()

    def rolled_back(self, count: int) -> None:
        """It has gone back."""
        if count <= self._passed:
            self._passed -= count
        else:
            self._forget()

    @property
    def known(self) -> int | None:
        """The next token, if it is known without a search."""
        return self._tokens[self._passed] if self._passed < len(self._tokens) else None

    def next(self, most: int) -> list[int]:
        """At most `most` tokens that must come."""
        if not self._is_whole and len(self._tokens) - self._passed < most:
            wanted = max(most, self._least)
            self._tokens, self._passed = self._find(wanted), 0
            self._is_whole = len(self._tokens) < wanted
        return self._tokens[self._passed : self._passed + most]

    def _forget(self) -> None:
        self._tokens, self._passed, self._is_whole = [], 0, False


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
