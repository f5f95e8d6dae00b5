"""What the functions of the stub are asked by themselves, and which rule each question is about."""

import math
from dataclasses import dataclass
from typing import Any

INF = math.inf
NO_TOKEN = 2**31 - 1
LOG2_E = math.log2(math.e)
CHUNK = 16
"""Tokens of a chunk in these calls."""


@dataclass(frozen=True, slots=True)
class Asked:
    """call: as a report shows it. numbers: the arguments. is_open: of `judge`, whether it stays open."""

    call: str
    numbers: tuple[Any, ...]
    rule: str = ""
    is_open: bool | None = None


def _least(min_p: float, rule: str) -> Asked:
    return Asked(f"least_exponent({min_p:g})", (min_p,), rule)


LEASTS = [
    _least(0.25, "A token with this exponent of 2 has a quarter of the most likely one's probability: "
           "min_p is relative to the most likely token."),
    _least(1.0, "At 1 just the most likely token is left, whose exponent is 0."),
    _least(0.0, "0 is off: log(0) is -inf, which keeps all."),
]  # fmt: skip

GREW = (
    "The logit is the new maximum, of weight 1. What was summed and what leads is relative to the old "
    "one, and must be brought to the new one."
)


def _short(number: float) -> str:
    return "LOWEST" if number < -1e38 else f"{number:g}"


def _absorb(value: float, maximum: float, total: float, lead: float, rule: str) -> Asked:
    lane = f"value {value:g}, maximum {_short(maximum)}, sum {total:g}, lead_weight {lead:g}"
    return Asked(f"absorb({lane}, scale 1)", (value, maximum, total, lead), rule)


ABSORBED = [
    _absorb(3.0, 1.0, 2.0, 0.5, GREW),
    _absorb(1.0, 3.0, 2.0, 0.5, "The logit is below the maximum, which stays: its weight is 2 ** -2."),
    _absorb(5.0, -3.4028234663852886e38, 0.0, 0.0, "The first logit is the maximum, of weight 1."),
    _absorb(-INF, 3.0, 2.0, 0.5, "A logit of -inf has weight 0 and changes nothing."),
]  # fmt: skip


def _race(weights: list[float], times: list[float], tokens: list[int], rule: str) -> Asked:
    shown = ", ".join("NO_TOKEN" if token == NO_TOKEN else str(token) for token in tokens)
    call = f"finish_race(lead_weights {weights}, lead_times {times}, lead_tokens [{shown}])"
    return Asked(call, (weights, times, tokens), rule)


RACES = [
    _race([1.0, 0.0, 0.5, 0.0], [3.0, 1.0, 4.0, 1.0], [7, NO_TOKEN, 5, NO_TOKEN],
          "A lane whose leader has weight 0 has none: it takes no part."),
    _race([1.0, 0.5], [2.0, 1.0], [9, 4], "Of those that arrive together the first token wins."),
    _race([0.0, 0.0], [1.0, 1.0], [NO_TOKEN, NO_TOKEN], "No lane has a leader, so none arrives."),
]  # fmt: skip


def _judge(
    candidate: int,
    low: float,
    total: float,
    p: float,
    mass: float,
    following: int,
    is_open: bool,
    rule: str,
) -> Asked:
    who, next_one = ("NO_TOKEN" if x == NO_TOKEN else str(x) for x in (candidate, following))
    numbers = f"low={low:g}, total={total:g}, p={p:g}, mass={mass:g}"
    call = (
        f"judge(candidate={who}, {numbers}, following={next_one}), where the logit of token i is i,"
    )
    return Asked(call, (candidate, low, total, p, mass, following), rule, is_open)


KEPT = "A candidate is kept if the tokens above it have less than p of the whole."
JUDGED = [
    _judge(NO_TOKEN, 0.5, -1.0, 0.5, 3.5, 2, True,
           "A total of -1 is not known yet. A round without a candidate weighs it: p is a share of it."),
    _judge(NO_TOKEN, 0.5, 4.0, 0.5, 1.0, 2, True, "A total that is known stays: p is a share of it."),
    _judge(1, -INF, 4.0, 0.5, 3.0, 3, True,
           f"{KEPT} Otherwise low becomes the candidate's logit, and the winner among those above it is "
           "the next candidate."),
    _judge(1, -INF, 4.0, 0.5, 1.0, 3, False, KEPT),
    _judge(1, -INF, 4.0, 0.5, 2.0, 3, True, f"{KEPT} mass >= p * total rejects, not mass > p * total."),
    _judge(3, 1.0, 4.0, 0.0, 0.0, NO_TOKEN, False,
           "Nothing is above this candidate: with nobody left to ask, it is the draw."),
    _judge(NO_TOKEN, 0.5, 4.0, 1.0, 1.0, 2, False, "At p = 1 a winner is not judged: it is the draw."),
]  # fmt: skip


def _raced(
    first: int, low: float, scale: float, least: float, is_race: bool, rule: str, *, key: int = 9
) -> Asked:
    call = (
        f"race_above(low={low:g}, is_race={is_race}, maximum=3, scale={scale:.4g}, least={least:g}, "
        f"first_token={first}), where logits are 0, 0.5, ... 3, 0, 0.5, ...,"
    )
    return Asked(call, (first, low, scale, least, is_race, key), rule)


RACED = [
    _raced(0, -INF, LOG2_E, -INF, False, "mass is the sum of exp((logit - maximum) / temperature)."),
    _raced(0, 1.5, LOG2_E, -INF, False,
           "mass is of the tokens above low, which is the candidate's logit: the candidate is not above "
           "itself."),
    _raced(0, -INF, LOG2_E / 2, -INF, False,
           "A scale of half the size is a temperature of 2, which makes probabilities alike."),
    _raced(0, 1.5, LOG2_E, -INF, True,
           "A rejected candidate is followed by the winner among those above it, on the same noise, "
           "that of `key`."),
    _raced(CHUNK, 1.5, LOG2_E, -INF, True,
           "The chunks of a split begin at its own first token, and so do the tokens that race."),
    _raced(0, 0.0, LOG2_E / 8, -0.1, True,
           "Min-p comes last: an exponent below least races at weight 0, and counts in the mass.",
           key=10),
]  # fmt: skip
