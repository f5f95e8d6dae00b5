"""How a request must end, given what the model says: the oracle of tasks 7.3 to 7.5."""

from collections.abc import Sequence
from dataclasses import dataclass

from grader.suites.engine.bench import DOT, EOS, NAN, decode
from grader.suites.engine.naive_stop import first_stop
from grader.suites.engine.spellings import BROKEN
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason


@dataclass(frozen=True, slots=True)
class End:
    """text: all of it. stop_reason: as in Request. tokens: all that were generated."""

    text: str
    reason: FinishReason
    stop_reason: str | int | None
    tokens: tuple[int, ...]


def right_end(said: Sequence[int], params: SamplingParams, max_tokens: int) -> End:
    """Token by token, with everything decoded again at each."""
    tokens: list[int] = []
    while True:
        token = said[len(tokens)] if len(tokens) < len(said) else DOT
        if token == NAN:
            return End(_shown(tokens, params), FinishReason.ERROR, None, tuple(tokens))
        tokens.append(token)
        by_token = token in params.stop_token_ids
        reason: FinishReason | None = None
        if by_token or (token == EOS and not params.ignore_eos):
            reason = FinishReason.STOP
        elif len(tokens) == max_tokens:
            reason = FinishReason.LENGTH
        text = decode(tokens[:-1] if reason is FinishReason.STOP else tokens)
        before, stop = first_stop(text if reason else text.rstrip(BROKEN), params.stop)
        if stop is not None:
            return End(before, FinishReason.STOP, stop, tuple(tokens))
        if reason is not None:
            return End(text, reason, token if by_token else None, tuple(tokens))


def _shown(tokens: Sequence[int], params: SamplingParams) -> str:
    """What can be shown of an answer that breaks off: nothing that may still become a stop string."""
    text = decode(tokens).rstrip(BROKEN)
    undecided = [
        length
        for length in range(1, len(text) + 1)
        if any(stop.startswith(text[-length:]) for stop in params.stop)
    ]
    return text[: len(text) - max(undecided, default=0)]
