"""What a request does not want drawn, beyond a grammar: a file for each technique, and a line here.

As with a grammar, which tokens may come next depends on those that have come, so control says it with
each step (`StepMasks`). A request that wants none of it has none of it.
"""

from collections.abc import Sequence

from yaie.core.request import Request
from yaie.engine.input.grammars.compiler import Grammars
from yaie.engine.input.grammars.matchers import Matcher
from yaie.engine.input.narrowing.bad_words import BadWords
from yaie.engine.input.narrowing.base import Narrowing
from yaie.engine.input.narrowing.narrowed import NarrowedMatcher
from yaie.engine.input.narrowing.thought_limit import LimitedThought
from yaie.models.tokenizer import Tokenizer

__all__ = ["Narrowing", "matcher", "narrowings"]


def narrowings(request: Request, tokenizer: Tokenizer) -> list[Narrowing]:
    """Those that a request asks for."""
    found: list[Narrowing] = []
    if request.params.bad_words:
        found.append(BadWords(request.params.bad_words, tokenizer))
    if request.params.thought is not None:
        found.append(LimitedThought(request.params.thought, tokenizer))
    return found


def matcher(
    request: Request, grammars: Grammars, tokenizer: Tokenizer, eos_token_ids: Sequence[int]
) -> Matcher | NarrowedMatcher | None:
    """What says in each step which tokens may come next, where not all of them may."""
    grammar = grammars.matcher(request) if request.params.constraint is not None else None
    if not request.params.bad_words and request.params.thought is None:
        return grammar
    return NarrowedMatcher(request, narrowings(request, tokenizer), eos_token_ids, grammar)
