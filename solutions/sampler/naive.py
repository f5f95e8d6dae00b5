# ORACLE
"""The sampler one row at a time, in the order of the definitions. Slow and plain: the oracle."""

import math

from yaie.core.params import SamplingParams


def probabilities(logits: list[float], params: SamplingParams) -> list[float]:
    """The distribution that a token is sampled from, penalties aside. Greedy puts all on one token."""
    best = max(logits)
    if params.is_greedy:
        winner = logits.index(best)
        return [1.0 if token == winner else 0.0 for token in range(len(logits))]
    scaled = [value / params.temperature for value in logits]
    for keep in (_top_k, _top_p, _min_p):
        scaled = keep(scaled, params)
    return _softmax(scaled)


def _softmax(logits: list[float]) -> list[float]:
    best = max(logits)
    weights = [math.exp(value - best) for value in logits]
    total = sum(weights)
    return [weight / total for weight in weights]


def _top_k(logits: list[float], params: SamplingParams) -> list[float]:
    if params.top_k <= 0 or params.top_k >= len(logits):
        return logits
    threshold = sorted(logits, reverse=True)[params.top_k - 1]
    return [value if value >= threshold else -math.inf for value in logits]


def _top_p(logits: list[float], params: SamplingParams) -> list[float]:
    if params.top_p == 1:
        return logits
    kept, total = set(), 0.0
    probs = _softmax(logits)
    for token in sorted(range(len(logits)), key=lambda token: -probs[token]):
        kept.add(token)
        total += probs[token]
        if total >= params.top_p:
            break
    return [value if token in kept else -math.inf for token, value in enumerate(logits)]


def _min_p(logits: list[float], params: SamplingParams) -> list[float]:
    probs = _softmax(logits)
    floor = params.min_p * max(probs)
    kept = [prob >= floor for prob in probs]
    return [value if keep else -math.inf for value, keep in zip(logits, kept, strict=True)]
