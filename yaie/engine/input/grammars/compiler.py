"""Grammars that an output must belong to: compiled once, followed token by token.

Lab 21's part compiles the JSON schemas of its subset, llguidance all the others. That is done before a
request is admitted and off the engine's thread; each request then follows a copy of its own
(`matchers.py`). Schemas come from clients, so everything here has a limit.
"""

import contextlib
import json
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from yaie.core.constraint import Constraint
from yaie.core.errors import InvalidRequestError
from yaie.core.request import Request
from yaie.engine.input.grammars.gbnf import lark_of
from yaie.engine.input.grammars.matchers import (
    Bits,
    Compiled,
    Follower,
    ForcedRun,
    Matcher,
    mask_seconds,
)
from yaie.engine.input.grammars.own_grammars import OwnGrammars
from yaie.engine.input.grammars.schema_limits import (
    NAMES,
    PARAM,
    check_shape,
    check_size,
    circular_ref,
    name_of,
    schemas_in,
)
from yaie.models.tokenizer import Tokenizer
from yaie.parts import Parts

MOST_REASON = 240
MOST_LEXER_STATES = 50_000  # 1 to 2 kB each
WALK_STEPS = 128
WALK_SECONDS = 0.3
"""How far a new grammar is followed before it is taken: see `_walk`."""

MOST_KEPT = 64
MOST_KEPT_CHARS = 1 << 20
"""Of their texts. A grammar of 128 kB may hold 100 MB, so eight of these are kept and no more."""
OVERHEAD = 256

# Without a bound, a small model may put nothing but blanks between two tokens until it is cut off.
WHITESPACE = r"( {0,2}|\r?\n[ \t]{0,64})"


class LibraryGrammar:
    """What llguidance has compiled. See `matchers.Compiled`."""

    def __init__(self, matcher: Any) -> None:
        """matcher: an LLMatcher at its start."""
        self._matcher = matcher
        self.is_spent = False

    def follower(self) -> Follower:
        return LibraryFollower(self._matcher.deep_copy())


class LibraryFollower:
    """An LLMatcher that one output is followed with. See `matchers.Follower`.

    Within a run of certain text it is not asked: it would cut all of the run into tokens each time.
    """

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher
        self._width = 0  # of a mask, in bytes
        self._run = ForcedRun(lambda most: list(matcher.compute_ff_tokens()), 1)

    def begin(self, deadline: float) -> None:
        """It has limits of its own, which end a mask after some 20 ms."""

    def spend(self) -> None:
        """Nothing else could follow them."""

    def accept(self, token: int) -> bool:
        if not self._matcher.consume_token(token):
            return False
        self._run.accepted(token)
        return True

    def mask(self) -> tuple[Bits, str | None]:
        if self._width and (known := self._run.known) is not None:
            bits = np.zeros(self._width, np.uint8)
            bits[known // 8] = 1 << known % 8
            return bits, None
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            return bits, self.why_refused()
        if self._matcher.is_stopped() and not self._matcher.is_accepting():
            return bits, "it leaves no token to go on with"
        self._width = len(bits)
        return bits, None

    def rollback(self, count: int) -> None:
        if count:
            self._matcher.rollback(count)
            self._run.rolled_back(count)

    def forced(self, most: int) -> list[int]:
        return self._run.next(most)

    def why_refused(self) -> str:
        return _reason(self._matcher)


class Grammars:
    """Compiles constraints for one model's tokenizer. May be called on several threads."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        eos_token_ids: frozenset[int],
        parts: Parts,
        *,
        library_only: bool = False,
    ) -> None:
        """vocab_size: width of the logits, which may be more than the tokenizer has. parts: with lab
        18's, and with lab 21's, which follows the schemas of its subset. library_only: it does not."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = sorted(eos_token_ids)
        self._masks_ahead = parts["speculative"].masks_ahead
        self._own: OwnGrammars | None = None
        if not library_only:
            self._own = OwnGrammars(parts, tokenizer, vocab_size, self._eos_token_ids)
        self._kept = KeptGrammars(self._compile)

    def prepare(self) -> None:
        """Read the vocabulary now. Else the first constraint does, and holds up whoever else generates.

        What fails here fails there too, and is said to its client.
        """
        with contextlib.suppress(InvalidRequestError):
            _ = self._vocabulary
        if self._own:
            self._own.prepare()

    def check(self, constraint: Constraint) -> None:
        """Compile it, or know that it was. Raises InvalidRequestError if that cannot be done, and
        PartError if a learner's part fails on it."""
        self._kept.get(constraint)

    def matcher(self, request: Request) -> Matcher:
        """A matcher for a request with a constraint. Raises as `check` does."""
        assert request.params.constraint is not None
        compiled = self._kept.get(request.params.constraint)
        seconds = mask_seconds(self._vocab_size)
        ends = self._eos_token_ids
        return Matcher(compiled.follower(), request, ends, self._masks_ahead, seconds)

    @cached_property
    def _vocabulary(self) -> Any:
        """What llguidance knows of the tokenizer; takes up to a second for a large one."""
        import llguidance.hf

        if not self._eos_token_ids:
            raise InvalidRequestError(
                "this model has no end-of-sequence token, without which no output can be kept to a "
                "grammar",
                param=PARAM,
            )
        size = max(self._vocab_size, self._tokenizer.vocab_size)
        try:
            return llguidance.hf.from_tokenizer(
                self._tokenizer.of_transformers, size, self._eos_token_ids
            )
        except Exception as error:  # whatever it finds strange about a tokenizer
            raise InvalidRequestError(
                "this model's tokenizer is of a kind whose output cannot be kept to a grammar: "
                f"{_capped(str(error))}. Ask without one.",
                param=PARAM,
            ) from error

    def _compile(self, constraint: Constraint, by_library: bool) -> Compiled:
        check_size(constraint)
        grammar = _grammar(constraint)
        own = self._own.compiled(constraint) if self._own and not by_library else None
        return own or LibraryGrammar(self._by_library(constraint, grammar))

    def _by_library(self, constraint: Constraint, grammar: str) -> Any:
        """An LLMatcher for a grammar, at its start."""
        import llguidance

        limits = llguidance.LLParserLimits(max_lexer_states=MOST_LEXER_STATES, verbose_errors=False)
        matcher = llguidance.LLMatcher(self._vocabulary, grammar, log_level=0, limits=limits)
        if not matcher.is_error():
            matcher.compute_bitmask()  # some of what it cannot do shows only now
        if matcher.is_error():
            raise InvalidRequestError(
                f"{name_of(constraint)} cannot be compiled: {_reason(matcher)}", param=PARAM
            )
        if (reason := _walk(matcher, self._eos_token_ids)) is not None:
            what = reason if reason == IN_A_CIRCLE else f"{TOO_LARGE} ({reason})"
            raise InvalidRequestError(f"{name_of(constraint)} {what}", param=PARAM)
        return matcher


def _walk(matcher: Any, eos_token_ids: Sequence[int]) -> str | None:
    """Why the grammar overflows on the way of an output drawn at random; None if it does not.

    A grammar of a few lines may need more states than memory holds, which compiling does not show.
    A walk that is not over in WALK_SECONDS, of processor time, proves nothing.
    """
    rng = random.Random(0)
    deadline = time.thread_time() + WALK_SECONDS
    walker = matcher.deep_copy()
    for _ in range(WALK_STEPS):
        if time.thread_time() > deadline:
            break
        bits = np.frombuffer(walker.compute_bitmask(), np.uint8)
        if walker.is_error():
            return _reason(walker)
        allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        allowed = allowed[~np.isin(allowed, eos_token_ids)]
        if not len(allowed):  # the output is complete
            walker = matcher.deep_copy()
        elif not walker.consume_token(int(rng.choice(allowed))):
            return _reason(walker)
    return None


IN_A_CIRCLE = "has a $ref that leads back to itself without a property or an item in between"
TOO_LARGE = (
    "needs too many states to be followed token by token. Make its patterns simpler: fewer and shorter "
    "repetitions, above all behind .*"
)


def _grammar(constraint: Constraint) -> str:
    """What LLMatcher takes."""
    import llguidance

    if constraint.kind in ("lark", "gbnf"):
        lark = lark_of(constraint.text) if constraint.kind == "gbnf" else constraint.text
        for schema in schemas_in(lark):
            check_shape(schema)
        return llguidance.LLMatcher.grammar_from_lark(lark)
    if constraint.kind not in NAMES:
        raise InvalidRequestError(
            f"the engine does not know constraints of kind {constraint.kind!r}", param="tool_choice"
        )
    schema = constraint.text if constraint.kind == "json_schema" else '{"type": "object"}'
    try:
        parsed = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"the schema is not valid JSON: {_capped(str(error))}", param=PARAM
        ) from error
    if parsed is True:  # the schema that anything fits
        schema = "{}"
    elif not isinstance(parsed, dict):
        raise InvalidRequestError("the schema must be a JSON object", param=PARAM)
    elif (ref := circular_ref(parsed)) is not None:
        raise InvalidRequestError(
            f"the schema cannot be compiled: its $ref {_capped(ref)!r} leads back to itself, so it says "
            "nothing about the value. Let a property or an item stand in between",
            param=PARAM,
        )
    check_shape(parsed)
    try:
        return llguidance.LLMatcher.grammar_from_json_schema(
            schema, defaults={"whitespace_pattern": WHITESPACE}
        )
    except ValueError as error:  # Python's parser takes 1e999, and half a surrogate pair
        raise InvalidRequestError(
            f"the schema is not valid JSON: {_capped(str(error))}", param=PARAM
        ) from error


def _reason(matcher: Any) -> str:
    reason: str = matcher.get_error()
    if "NoExtensionBias" in reason:  # the compiler's word for it
        return IN_A_CIRCLE
    return _capped(reason.replace("<non-verbose/>", ""))


def _capped(text: str) -> str:
    """On one line, and not all of what a client sent back to it."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_REASON else line[: MOST_REASON - 1] + "…"


class KeptGrammars:
    """The grammars that were asked for last, and those that could not be compiled. May be called on
    several threads."""

    def __init__(self, compile: Callable[[Constraint, bool], Compiled]) -> None:
        """compile: a constraint; without lab 21's part if the second argument says so. Raises
        InvalidRequestError for one that never can be."""
        self._compile = compile
        self._kept: OrderedDict[Constraint, Compiled | InvalidRequestError] = OrderedDict()
        self._num_chars = 0
        self._lock = threading.Lock()

    def get(self, constraint: Constraint) -> Compiled:
        """A grammar, compiled now if it is not kept, or if the one that is has taken too long.

        Raises what compiling it raises. What was refused is refused again at once.
        """
        with self._lock:
            found = self._kept.get(constraint)
            if found is not None:
                self._kept.move_to_end(constraint)
        if isinstance(found, InvalidRequestError):
            raise type(found)(found.message, param=found.param)
        if found is not None and not found.is_spent:
            return found
        try:
            compiled = self._compile(constraint, found is not None)
        except InvalidRequestError as error:
            self._keep(constraint, error.with_traceback(None))
            raise
        self._keep(constraint, compiled)
        return compiled

    def _keep(self, constraint: Constraint, what: Compiled | InvalidRequestError) -> None:
        with self._lock:
            if constraint not in self._kept:
                self._num_chars += len(constraint.text) + OVERHEAD
            self._kept[constraint] = what
            while len(self._kept) > MOST_KEPT or self._num_chars > MOST_KEPT_CHARS:
                dropped, _ = self._kept.popitem(last=False)
                self._num_chars -= len(dropped.text) + OVERHEAD
