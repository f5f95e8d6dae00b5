"""Lab 18: guesses at the next tokens of requests, and what becomes of them (speculative decoding)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from yaie.core.request import Request


# ANCHOR: proposer
class Proposer(Protocol):
    """Given. Guesses how requests go on. A guess is called a draft; the step that verifies it samples
    a token after each, so a wrong one costs time and never changes an output.

    is_free: whether drafts cost so little that they may be asked for before it is known how many are
        wanted. Otherwise their number is settled first.
    """

    is_free: bool

    def propose(self, asked: "Sequence[tuple[Request, int]]") -> Sequence[Sequence[int]]:
        """For each request, at most so many tokens that may follow its `token_ids`, all of which are
        known.

        Called between steps with the requests that are about to sample. Nothing in it may look through
        a whole text each time. A request may be asked about after any number of new tokens, or never.
        State that belongs to a request goes when the request does.
        """
        ...


# ANCHOR_END: proposer


# ANCHOR: ngram_index
class NgramIndex(Protocol):
    """Lab 18. Where each n-gram of a growing text stood last: `NgramIndex(longest, shortest)`.

    An n-gram is n tokens in a row. Those of `shortest` to `longest` tokens are looked up. Whatever the
    length of the text, a new token costs O(longest - shortest) look-ups and no scan.
    """

    def read(self, text: Sequence[int], most: int) -> bool:
        """Take in up to `most` more tokens of the text. Returns whether all but its last are taken in.

        text: that of the last call, with any number of tokens appended. Its last token is not taken in
        yet: an n-gram counts only once the token after it is known.
        """
        ...

    def place(self, text: Sequence[int]) -> int | None:
        """Of the n-grams that the text ends in, take the longest that occurs earlier. Returns the index
        just after its latest earlier occurrence, where its continuation `text[place:]` begins; None if
        none occurs earlier.

        text: `read` has returned True for it.
        """
        ...


# ANCHOR_END: ngram_index


# ANCHOR: accepted
class Accepted(Protocol):
    """Lab 18. The tokens that a request gains in a step with drafts: `accepted(drafts, samples)`."""

    def __call__(self, drafts: Sequence[int], samples: Sequence[int]) -> list[int]:
        """drafts: k of them. samples: k + 1 tokens, the first sampled after the text, each further one
        as if the drafts before it were right; -1 where sampling failed.

        Sample i counts if the first i drafts equal the first i samples. Returns those that count, in
        order, up to the first -1. So the output is that of sampling one by one, and k accepted drafts
        give k + 1 tokens.
        """
        ...


# ANCHOR_END: accepted


# ANCHOR: rejection
class Residual(Protocol):
    """Lab 18. What to sample from in place of a rejected draft: `residual(target, draft)`."""

    def __call__(
        self, target: "NDArray[np.float64]", draft: "NDArray[np.float64]"
    ) -> "NDArray[np.float64]":
        """target, draft: [vocab] probabilities. Returns max(target - draft, 0), divided by its sum;
        `target` if that sum is 0. Neither argument is changed."""
        ...


class RejectionSample(Protocol):
    """Lab 18. Rejection sampling for drafts that were sampled from probabilities (Leviathan et al. 2023,
    algorithm 1; Chen et al. 2023, algorithm 2): `rejection_sample(drafts, draft, target, rng)`."""

    def __call__(
        self,
        drafts: Sequence[int],
        draft: "NDArray[np.float64]",
        target: "NDArray[np.float64]",
        rng: "np.random.Generator",
    ) -> list[int]:
        """The tokens that a step gains, 1 to k + 1, as if sampled one by one from the target.

        drafts: k tokens, the i-th sampled from row i of `draft`. draft: [k, vocab]; target: [k + 1,
        vocab]; rows sum to 1. rng: a source of random numbers; no other is used.

        A draft x is accepted with probability min(1, target(x) / draft(x)). The first that is not is
        replaced by a sample from the residual, which is the last token. If all are accepted, one more is
        sampled from the target's last row. `draft(x)` is above 0 for each draft.
        """
        ...


# ANCHOR_END: rejection


# ANCHOR: draft_places
class DraftPlaces(Protocol):
    """Lab 18. How far a draft model has come in each text, and in which blocks: `DraftPlaces(blocks)`.

    blocks: a BlockManager (lab 3) of the draft model's own pool. Each text has a table there under its
    key. For each text it is noted which tokens have their K and V in the table, position by position.
    A token *holds* if the text has the same token at its position, and so has every one before. The
    others are rejected drafts and what was computed after them.
    """

    def begin(self, key: str, text: Sequence[int], num_drafts: int) -> int | None:
        """Prepare to draft after `text`; returns how many of its leading tokens need no computing.

        That is as many as hold, and at most len(text) - 1: the last token must be computed, for its
        logits. The table then has ceil((len(text) + num_drafts - 1) / block_size) blocks, since the last
        draft needs no slot: it grows, or loses blocks at its end. The blocks before stay the same, in
        the same order. Tokens that do not hold are forgotten.

        text: that of the last call with this key, with any number of tokens appended. Returns None, with
        nothing changed, if there are too few free blocks. Costs O(new tokens + drafts), not O(text).
        """
        ...

    def wrote(self, key: str, tokens: Sequence[int]) -> None:
        """The K and V of these tokens have been written: at the positions after those that `begin`
        returned, and after those written since."""
        ...

    def table(self, key: str) -> Sequence[int]:
        """The blocks of a text; none if it has no table."""
        ...

    def end(self, key: str) -> None:
        """Forget a text and free its blocks; harmless for one that is not known."""
        ...


# ANCHOR_END: draft_places


# ANCHOR: taking_back
@dataclass(frozen=True, slots=True)
class Kept:
    """What holds after a step with drafts.

    num_computed: leading tokens of the request whose K and V hold. num_blocks: blocks that contain them.
    num_full: blocks full of them: those, and no others, may be filed in the prefix tree.
    num_rejected: drafts of the step that are taken back, all of them if it failed.
    """

    num_computed: int
    num_blocks: int
    num_full: int
    num_rejected: int


class KeptOf(Protocol):
    """Lab 18. What holds of a step: `kept(start, num_tokens, num_drafts, num_gained, block_size)`."""

    def __call__(
        self, start: int, num_tokens: int, num_drafts: int, num_gained: int, block_size: int
    ) -> Kept:
        """The step computed the tokens [start, start + num_tokens) of a request, the last `num_drafts`
        of them drafts, and gained `num_gained` tokens (see `Accepted`), 0 if it failed.

        The token gained last has not been computed. Nothing that a failed step computed holds; what was
        computed before it does.
        """
        ...


class GrammarPlace(Protocol):
    """A place in a grammar that can go forth and back, as lab 21's `Matcher` does."""

    def fill(self, bits: "NDArray[np.uint8]") -> None:
        """Overwrite `bits` [width]: set for the tokens that may come next, clear for all others. Token t
        is bit t % 8 of byte t // 8, counted from the lowest."""
        ...

    def accept(self, token: int) -> bool:
        """Advance by a token. Returns False, and stays where it is, if that token may not come."""
        ...

    def rollback(self, count: int) -> None:
        """Take back the last `count` tokens that were accepted."""
        ...


class MasksAhead(Protocol):
    """Lab 18. The masks of a step with drafts: `masks_ahead(place, drafts, rows)`."""

    def __call__(
        self, place: GrammarPlace, drafts: Sequence[int], rows: "NDArray[np.uint8]"
    ) -> None:
        """Fill `rows` [len(drafts) + 1, width]: what may come next, and what may come after each draft.
        Afterwards `place` is where it was.

        Draft i may come if its bit is set in row i. After the first that may not, every bit of every row
        is set: no sample there counts. Such a draft is not given to `accept`.

        A mask takes long to compute: each row is filled once at most, and each draft accepted once.
        """
        ...


# ANCHOR_END: taking_back


# ANCHOR: worth
class Acceptance(Protocol):
    """Lab 18. How often a request's drafts are right: `Acceptance(decay)`.

    Each sample that was compared with a draft counts, old ones less. It begins as if one of two samples
    had been right.
    """

    def add(self, right: int, asked: int) -> None:
        """`asked` samples were compared with a draft, `right` of them were equal to it.

        Both counts so far are multiplied by decay ** asked. Then these samples are added, each in full.
        """
        ...

    @property
    def rate(self) -> float:
        """The share of samples that were equal to their draft."""
        ...

    def expected(self, num_drafts: int) -> float:
        """Tokens that a step with so many drafts brings, if each is right at this rate, whatever the
        others are: 1 + a + a^2 + ... + a^k (Leviathan et al. 2023, equation 1)."""
        ...


class MostWorth(Protocol):
    """Lab 18. How many drafts to verify: `most_worth(offers, num_others, seconds, drafting, most)`."""

    def __call__(
        self,
        offers: Sequence[tuple[Acceptance, int]],
        num_others: int,
        seconds: Callable[[int], float],
        drafting: Callable[[int], float],
        most: int,
    ) -> int:
        """The number of drafts, 0 to `most`, that brings the most expected tokens a second; of two that
        bring as many, the smaller.

        offers: for each request, how often its drafts are right and how many it has. With number n it
        verifies n of them, or all if it has fewer. num_others: requests that decode in the same step
        without drafts. seconds(t): what a step of t tokens takes. drafting(n): what it takes to make n
        drafts for these requests. Both are in seconds, and their sum is above 0.
        """
        ...


# ANCHOR_END: worth
