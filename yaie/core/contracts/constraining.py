"""Lab 21: outputs that are kept to a JSON schema, token by token."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from yaie.core.grammar import Grammar

DEAD = -1
"""The state that nothing leads out of: no document begins with these bytes."""


# ANCHOR: schema_grammar
class SchemaGrammar(Protocol):
    """Lab 21. A JSON schema as a grammar: `schema_grammar(schema)`.

    A document that the grammar accepts parses and is valid. Its properties stand in the order of
    `properties`, its keys and constants as `json.dumps(ensure_ascii=False)` writes them; between two
    tokens of JSON there may be `WHITESPACE`, before the first and behind the last none.

    The subset: `type` (one, or a list) of object (`properties`, `required`, `additionalProperties`,
    which must be false), array (`items`, `minItems`, `maxItems`), string (`minLength`, `maxLength`),
    integer, number, boolean, null; `enum`, `const` of any value, with or without `type`; `anyOf`; a
    `$ref` into this schema that does not lead back to itself. Words that say nothing of the value
    (`title`, `description`, `default`, `examples`, `$defs`, `definitions`, `$schema`, `$comment`) are
    passed over. What is counted goes up to 64.

    The engine asks for schemas of up to 16,384 characters, and follows a grammar with this lab's parts
    if no more than 256 places are open at once (an `enum` of 256 values, 20 strings in an `anyOf`, 60
    properties that may be left out), no more than 1,024 bytes in a row are certain, and it has no more
    than 32,768 places in all, each repetition counted. llguidance follows the others. There is nothing
    to check here.
    """

    def __call__(self, schema: Any) -> "Grammar":
        """schema: as `json.loads` gives it. The work grows as its length does.

        Raises UnsupportedSchemaError, with the keyword, for what is outside the subset, and for a schema
        that no value fits.
        """
        ...


# ANCHOR_END: schema_grammar


# ANCHOR: byte_automaton
class ByteAutomaton(Protocol):
    """Lab 21. A deterministic automaton over the bytes of a grammar: `ByteAutomaton(grammar)`.

    States are small integers, numbered from 0 as they are found. They are made when a step first leads
    there, so a grammar costs what is walked of it. The same bytes always lead to the same state.

    The engine ends a request for which more than 65,536 states would be made.
    """

    @property
    def start(self) -> int:
        """The state before the first byte."""
        ...

    @property
    def num_states(self) -> int:
        """How many states have been made, DEAD not counted."""
        ...

    def step(self, state: int, byte: int) -> int:
        """The state after one more byte, 0 to 255, or DEAD. From DEAD every byte leads to DEAD. The
        second time it is a look-up."""
        ...

    def live_bytes(self, state: int) -> bytes:
        """The bytes that lead on from a state, ascending: those whose `step` is not DEAD."""
        ...

    def is_final(self, state: int) -> bool:
        """Whether a document may end here. DEAD is not final."""
        ...


# ANCHOR_END: byte_automaton


# ANCHOR: token_masks
class TokenMasks(Protocol):
    """Lab 21. Which tokens may come next: `TokenMasks(automaton, trie, eos_token_ids, most=...)`.

    trie: a `TokenTrie` of the vocabulary, shared by all grammars. most: of masks that are kept; the one
    that was asked for longest ago goes first.

    tokens: the bytes of each token by its id; b"" for one that adds no text, such as a special one.
    """

    @property
    def tokens(self) -> Sequence[bytes]: ...

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    def allowed(self, state: int) -> "NDArray[np.bool_]":
        """[vocab], whether a token has text and all of its bytes lead on from this state. By a walk over
        the trie: bytes that tokens begin with alike are stepped through once.

        Only your own `mask` may ask for DEAD, where no token is allowed."""
        ...

    def mask(self, state: int) -> "NDArray[np.uint8]":
        """[ceil(vocab / 8)] uint8, not to be written to: bit `token % 8` of byte `token // 8` says
        whether a token may come in this state of the automaton.

        It may if it is `allowed`; an end-of-sequence token if the state is final, whatever its text. In
        DEAD none may. Computed once for a state as long as it is kept.

        All other requests wait meanwhile: the engine ends a request whose mask takes more than 0.1 s of
        processor time and 3 µs for each token of the vocabulary.
        """
        ...


# ANCHOR_END: token_masks


# ANCHOR: matcher
class Matcher(Protocol):
    """Lab 21. Follows one output through its grammar: `Matcher(automaton, masks)`. A token costs its
    bytes, behind any output. Requests with the same schema share automaton and masks."""

    @property
    def is_complete(self) -> bool:
        """Whether the output is a whole document as it stands, with or without an end-of-sequence
        token behind it."""
        ...

    def accept(self, token: int) -> bool:
        """Follow one more token. Returns False, and stays where it is, if the token may not come here.

        An end-of-sequence token may come when the document is complete, and nothing behind it.
        """
        ...

    def fill(self, bits: "NDArray[np.uint8]") -> None:
        """Set bits [width] to the tokens that may come next, the lowest first. width: at least
        ceil(vocab / 8); the bits behind the vocabulary are cleared."""
        ...

    def rollback(self, count: int) -> None:
        """Take back the last `count` tokens that were accepted. Raises ValueError if there are fewer."""
        ...

    def forced(self, most: int) -> list[int]:
        """At most `most` tokens that come next whatever the model says: jump-forward. Changes nothing.

        The bytes up to the first place where there is a choice, or where the document may end, are
        certain. They are cut into tokens from the left, each the longest that may come there. A token
        that might reach beyond the certain bytes is not certain: where the longest allowed one does, the
        run ends before it. So whatever text follows, cut from the left it begins with these tokens. Of
        tokens with the same bytes the one with the lowest id is taken.
        """
        ...


# ANCHOR_END: matcher
