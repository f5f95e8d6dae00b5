"""Schemas that lab 21's part follows: those of its subset, with a tokenizer whose tokens are bytes."""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from yaie.core.contracts import constraining
from yaie.core.errors import PartError, UnsupportedSchemaError
from yaie.core.params import Constraint
from yaie.engine.intake.matchers import Bits, Follower
from yaie.models.tokenizer import Tokenizer
from yaie.parts import Parts
from yaie.worker.faults import fault_of

LAB = "structured_output"
MOST_PREPARED = 32_768
"""Tokens of a vocabulary whose trie is made before a request asks for it: some tenths of a second."""
MOST_STATES = 8_000
"""Of an automaton that goes on being used; each has a row of a kilobyte. A larger one is begun anew."""
MOST_MASK_BYTES = 8 << 20
"""Of masks that are kept for one schema."""


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
            or not self._eos_token_ids
            or not self._tokenizer.has_byte_tokens
        ):
            return None
        with blaming(self._parts):
            try:
                grammar = OwnGrammar(
                    self._parts, json.loads(constraint.text), self._trie, self._eos_token_ids
                )
            except UnsupportedSchemaError:
                return None
            except RecursionError:
                if self._parts.is_yours(LAB):  # it may not come to an end on any schema
                    raise
                return None  # nested too deep
        return grammar if grammar.can_begin else None


class OwnGrammar:
    """See `matchers.Compiled`.

    can_begin: whether there is a token that an output may begin with.
    """

    def __init__(
        self, parts: Parts, schema: Any, trie: Any, eos_token_ids: Collection[int]
    ) -> None:
        """Raises UnsupportedSchemaError, or whatever the part raises."""
        self._parts = parts
        self._trie = trie
        self._eos_token_ids = eos_token_ids
        self._width = -(-len(trie.tokens) // 8)
        self._grammar = parts[LAB].schema_grammar(schema)
        self._begin()
        self.can_begin = bool(self._masks.mask(self._automaton.start).any())

    def _begin(self) -> None:
        part, most = self._parts[LAB], max(64, MOST_MASK_BYTES // self._width)
        self._automaton: constraining.ByteAutomaton = part.ByteAutomaton(self._grammar)
        self._masks: constraining.TokenMasks = part.TokenMasks(
            self._automaton, self._trie, self._eos_token_ids, most=most
        )

    def follower(self) -> Follower:
        """A place at the start, for one output. Raises PartError if a learner's part fails."""
        with blaming(self._parts):
            if self._automaton.num_states > MOST_STATES:
                self._begin()
            return OwnFollower(self._parts[LAB].Matcher(self._automaton, self._masks), self._width)


@contextmanager
def blaming(parts: Parts) -> Iterator[None]:
    """Raise PartError, with the line, for what a learner's part raises."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if not parts.is_yours(LAB):
            raise
        fault = fault_of(error, parts)
        raise PartError(f"your part {LAB} failed: {fault.message} ({fault.where})") from error


class OwnFollower:
    """See `matchers.Follower`."""

    def __init__(self, matcher: constraining.Matcher, width: int) -> None:
        """width: of a mask, in bytes."""
        self._matcher = matcher
        self._width = width

    def accept(self, token: int) -> bool:
        return self._matcher.accept(token)

    def mask(self) -> tuple[Bits, str | None]:
        bits = np.zeros(self._width, np.uint8)
        if forced := self._matcher.forced(1):
            bits[forced[0] // 8] = 1 << forced[0] % 8
        else:
            self._matcher.fill(bits)
        return bits, None if bits.any() else "it leaves no token to go on with"

    def rollback(self, count: int) -> None:
        self._matcher.rollback(count)

    def forced(self, most: int) -> list[int]:
        return self._matcher.forced(most)

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
