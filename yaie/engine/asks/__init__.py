"""What requests ask of the worker besides tokens: a file for each technique, and a line here.

Beside each technique in `RULED` and `READ` is what tells whether a request wants it. One that no request
wants is not called.
"""

from collections.abc import Callable

from yaie.core.request import Request
from yaie.engine.asks.base import Ask
from yaie.engine.asks.biases import Biases
from yaie.engine.asks.logprobs import Logprobs
from yaie.engine.asks.min_tokens import MinTokens
from yaie.engine.asks.penalties import Penalties
from yaie.engine.asks.pooling import Pooling
from yaie.engine.asks.prompt_logprobs import PromptLogprobs

Asks = Callable[[Request], object]
"""Whether a request wants a technique; any value that is true or false."""


def _has_penalties(request: Request) -> bool:
    one = request.params
    return (one.presence_penalty, one.frequency_penalty, one.repetition_penalty) != (0, 0, 1)


def _has_least(request: Request) -> bool:
    """Of a constrained request its matcher sees to that."""
    return request.params.min_tokens > request.num_output_tokens and request.matcher is None


def _tells_of_its_prompt(request: Request) -> bool:
    return request.params.prompt_logprobs is not None and request.fork_of is None


RULED: list[tuple[Asks, Ask]] = [
    (lambda request: request.params.logit_bias, Biases()),
    (_has_least, MinTokens()),
    (_has_penalties, Penalties()),
]
"""What the worker is told once, when a request enters."""
READ: list[tuple[Asks, Ask]] = [
    (_tells_of_its_prompt, PromptLogprobs()),
    (lambda request: request.params.pooling is not None, Pooling()),
    (lambda request: request.params.logprobs is not None, Logprobs()),
]
"""What the worker is asked for in its steps."""


def of(request: Request, among: list[tuple[Asks, Ask]]) -> list[Ask]:
    """What a request asks for."""
    return [ask for asks, ask in among if asks(request)]
