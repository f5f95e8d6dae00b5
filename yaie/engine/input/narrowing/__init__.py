"""What a request does not want drawn, beyond a grammar: a file for each technique, and a line here.

As with a grammar, which tokens may come next depends on those that have come, so control says it with
each step (`StepMasks`). A request that wants none of it has none of it.
"""

from yaie.core.request import Request
from yaie.engine.input.narrowing.bad_words import BadWords
from yaie.engine.input.narrowing.base import Narrowing
from yaie.engine.input.narrowing.thought_limit import LimitedThought
from yaie.models.tokenizer import Tokenizer

__all__ = ["Narrowing", "narrowings"]


def narrowings(request: Request, tokenizer: Tokenizer) -> list[Narrowing]:
    """Those that a request asks for."""
    found: list[Narrowing] = []
    if request.params.bad_words:
        found.append(BadWords(request.params.bad_words, tokenizer))
    if request.params.thought is not None:
        found.append(LimitedThought(request.params.thought, tokenizer))
    return found
