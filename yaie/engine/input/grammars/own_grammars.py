"""Schemas that lab 21's part follows: those of its subset, within its limits, with a tokenizer whose
tokens are bytes."""

import json
import logging
import math
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from yaie.core.constraint import Constraint
from yaie.core.contracts import constraining
from yaie.core.errors import PartError, UnsupportedSchemaError
from yaie.engine.input.grammars import work_clock
from yaie.engine.input.grammars.grammar_size import GrammarSize, size_of
from yaie.engine.input.grammars.matchers import (
    Bits,
    Follower,
    ForcedRun,
    OverBudgetError,
    mask_seconds,
)
from yaie.models.tokenizer import Tokenizer
from yaie.parts import Parts
from yaie.worker.faults import fault_of

LAB = "structured_output"
MOST_PREPARED = 32_768
"""Tokens of a vocabulary whose trie is made before a request asks for it: some tenths of a second."""
MOST_STATES = 8_000
"""Of an automaton that goes on being used; each has a row of a kilobyte. A larger one is begun anew."""
MOST_MASK_BYTES = 4 << 20
"""Of masks that are kept for one schema."""

# What the part is given, as `yaie.core.contracts.constraining.SchemaGrammar` says.
MOST_CHARS = 16_384
"""Of a schema. The grammar has a node for each byte of a constant."""
MOST_PLACES = 256
"""That are open at once. A mask takes some 330 steps at the beginning of a constant, and up to 1,000 in
a string of limited length; each looks at every open place, of which 100,000 take 40 ms in Python."""
MOST_RUN = 1_024
"""Bytes in a row that are certain: `forced` steps through all of them, 10 µs each."""
MOST_PLACES_IN_ALL = 32_768
"""Of a grammar, each repetition counted: about as many states are made of it if it is walked through,
and each takes up to two kilobytes."""
MOST_PLACES_OF_ALL = 1 << 18
"""Of all grammars that are kept or followed, together: half a gigabyte if they are walked through."""
RUN_AHEAD = 16
"""Certain tokens that are asked for at once. They are asked for one by one otherwise, each time anew."""

CALLS = 16
"""Between two looks at the clock. A step takes a tenth of a millisecond where 256 places are open."""
MOST_MADE = 1 << 16
"""States that are made, whatever the size of the grammar: twice as many as it may have places."""

TOO_MANY = (
    "it needs more than {states} states to be followed. Make the schema simpler: fewer and shorter "
    "arrays and strings of limited length"
)
IN_TIME = (
    "it took too long to find what may come next, for which all other requests wait. Make the schema "
    "simpler: fewer alternatives, shorter constants"
)

logger = logging.getLogger(__name__)


class BoundedAutomaton:
    """Lab 21's automaton with a limit on its states and on the time that is spent in it.

    Masks are made by a part that may be a learner's, in one call on the engine's thread. But it steps
    through the automaton for each new pair of a state and a byte: there it can be interrupted.

    deadline: when what is asked for now must be done, of `work_time`. is_spent: whether something
    was not done in time, or there are too many states.
    """

    def __init__(self, automaton: constraining.ByteAutomaton) -> None:
        self._automaton = automaton
        self._calls = 0
        self.deadline = math.inf
        self.is_spent = False

    def __getattr__(self, name: str) -> Any:
        """What a learner's masks and matcher know of their own automaton beyond the contract."""
        if name.startswith("__") or name == "_automaton":
            raise AttributeError(name)
        return getattr(self._automaton, name)

    @property
    def start(self) -> int:
        return self._automaton.start

    @property
    def num_states(self) -> int:
        return self._automaton.num_states

    def step(self, state: int, byte: int) -> int:
        """Raises OverBudgetError, as the others do."""
        self._look()
        return self._automaton.step(state, byte)

    def live_bytes(self, state: int) -> bytes:
        self._look()
        return self._automaton.live_bytes(state)

    def is_final(self, state: int) -> bool:
        self._look()
        return self._automaton.is_final(state)

    def _look(self) -> None:
        self._calls += 1
        if self._calls % CALLS:
            return
        if self._automaton.num_states > MOST_MADE:
            self.is_spent = True
            raise OverBudgetError(TOO_MANY.format(states=MOST_MADE))
        if work_clock.work_time() > self.deadline:
            self.is_spent = True
            raise OverBudgetError(IN_TIME)


class OwnGrammars:
    """Compiles schemas with the part of lab 21."""

    def __init__(
        self, parts: Parts, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: Collection[int]
    ) -> None:
        """vocab_size: width of the logits."""
        self._parts = parts
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = [token for token in eos_token_ids if token < vocab_size]
        self._alive: weakref.WeakSet[OwnGrammar] = weakref.WeakSet()

    @cached_property
    def _trie(self) -> Any:
        """Of the vocabulary; made for the first schema."""
        return self._parts[LAB].TokenTrie(text_tokens(self._tokenizer, self._vocab_size))

    def prepare(self) -> None:
        """Make the trie of the vocabulary now, if that is short work and not a learner's."""
        if (
            self._vocab_size <= MOST_PREPARED
            and self._tokenizer.has_byte_tokens
            and not self._parts.is_yours(LAB)
        ):
            _ = self._trie

    def compiled(self, constraint: Constraint) -> "OwnGrammar | None":
        """A schema, ready to be followed; None if it is for another to follow.

        Raises PartError if a learner's part fails on it.
        """
        if (
            constraint.kind != "json_schema"
            or len(constraint.text) > MOST_CHARS
            or not self._eos_token_ids
            or not self._tokenizer.has_byte_tokens
        ):
            return None
        with blaming(self._parts):
            try:
                found = self._parts[LAB].schema_grammar(json.loads(constraint.text))
                size = size_of(found)
                if not self._has_room_for(size):
                    return None
                grammar = OwnGrammar(self._parts, found, size, self._trie, self._eos_token_ids)
            except UnsupportedSchemaError:
                return None
            except OverBudgetError:
                logger.warning(
                    "part %s took more than %.2f s for the first mask of a schema, which llguidance "
                    "follows instead", LAB, mask_seconds(self._vocab_size),
                )  # fmt: skip
                return None
            except RecursionError:
                if self._parts.is_yours(LAB):  # it may not come to an end on any schema
                    raise
                return None  # nested too deep
        if not grammar.can_begin:
            return None
        self._alive.add(grammar)
        return grammar

    def _has_room_for(self, size: GrammarSize) -> bool:
        """Whether the part follows a grammar of this size, beside those that it follows already."""
        if size.places > MOST_PLACES or size.run > MOST_RUN or size.states > MOST_PLACES_IN_ALL:
            return False
        # Twice: one that is begun anew may still be followed in its older form.
        return 2 * (sum(it.size.states for it in self._alive) + size.states) <= MOST_PLACES_OF_ALL


class OwnGrammar:
    """See `matchers.Compiled`.

    size: of its grammar. can_begin: whether there is a token that an output may begin with.
    """

    def __init__(
        self,
        parts: Parts,
        grammar: Any,
        size: GrammarSize,
        trie: Any,
        eos_token_ids: Collection[int],
    ) -> None:
        """grammar: the part's. Raises OverBudgetError if its first mask takes too long, or whatever the
        part raises."""
        self._parts = parts
        self.size = size
        self._trie = trie
        self._eos_token_ids = eos_token_ids
        self._width = -(-len(trie.tokens) // 8)
        self._grammar = grammar
        self._begin()
        self._automaton.deadline = work_clock.work_time() + mask_seconds(len(trie.tokens))
        self.can_begin = bool(self._masks.mask(self._automaton.start).any())
        self._automaton.deadline = math.inf

    @property
    def is_spent(self) -> bool:
        return self._automaton.is_spent

    def _begin(self) -> None:
        part, most = self._parts[LAB], max(64, MOST_MASK_BYTES // self._width)
        self._automaton = BoundedAutomaton(part.ByteAutomaton(self._grammar))
        self._masks: constraining.TokenMasks = part.TokenMasks(
            self._automaton, self._trie, self._eos_token_ids, most=most
        )

    def follower(self) -> Follower:
        """A place at the start, for one output. Raises PartError if a learner's part fails."""
        with blaming(self._parts):
            if self._automaton.num_states > MOST_STATES:
                self._begin()
            matcher = self._parts[LAB].Matcher(self._automaton, self._masks)
            return OwnFollower(self, matcher, self._automaton, self._width)


@contextmanager
def blaming(parts: Parts) -> Iterator[None]:
    """Raise PartError, with the line, for what a learner's part raises."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if not parts.is_yours(LAB) or isinstance(error, OverBudgetError):
            raise
        fault = fault_of(error, parts)
        raise PartError(f"your part {LAB} failed: {fault.message} ({fault.where})") from error


class OwnFollower:
    """See `matchers.Follower`."""

    def __init__(
        self,
        grammar: OwnGrammar,
        matcher: constraining.Matcher,
        automaton: BoundedAutomaton,
        width: int,
    ) -> None:
        """grammar: it counts among those alive for as long as it is followed. automaton: the matcher's.
        width: of a mask, in bytes."""
        self._grammar = grammar
        self._matcher = matcher
        self._automaton = automaton
        self._width = width
        self._run = ForcedRun(matcher.forced, RUN_AHEAD)

    def begin(self, deadline: float) -> None:
        self._automaton.deadline = deadline

    def spend(self) -> None:
        self._automaton.is_spent = True

    def accept(self, token: int) -> bool:
        if not self._matcher.accept(token):
            return False
        self._run.accepted(token)
        return True

    def mask(self) -> tuple[Bits, str | None]:
        bits = np.zeros(self._width, np.uint8)
        if forced := self._run.next(1):
            bits[forced[0] // 8] = 1 << forced[0] % 8
        else:
            self._matcher.fill(bits)
        return bits, None if bits.any() else "it leaves no token to go on with"

    def rollback(self, count: int) -> None:
        self._matcher.rollback(count)
        self._run.rolled_back(count)

    def forced(self, most: int) -> list[int]:
        return self._run.next(most)

    def why_refused(self) -> str:
        return "a token was drawn that may not come"


def text_tokens(tokenizer: Tokenizer, vocab_size: int) -> list[bytes]:
    """The bytes of each token; b"" for special ones, and for those that pad the vocabulary."""
    special = {
        id for id, token in tokenizer.of_transformers.added_tokens_decoder.items() if token.special
    }
    return [
        b"" if token in special else tokenizer.token_bytes(token) or b""
        for token in range(vocab_size)
    ]
