"""What the functions of the stub are asked by themselves, and which rule each question is about."""

import math
from dataclasses import dataclass
from typing import Any

INF = math.inf
NO_TOKEN = 2**31 - 1
LOG2_E = math.log2(math.e)
LOWEST = -3.4028234663852886e38
CHUNK = 16
"""Tokens of a chunk in these calls."""


@dataclass(frozen=True, slots=True)
class Asked:
    """call: as a report shows it. numbers: the arguments. is_open: of `judge`, whether it stays open.
    only: the one result that is looked at, if not all are."""

    call: str
    numbers: tuple[Any, ...]
    rule: str = ""
    is_open: bool | None = None
    only: str = ""


def _least(min_p: float, rule: str) -> Asked:
    return Asked(f"least_exponent({min_p:g})", (min_p,), rule)


SHARE = "Any min_p above 0 is a share of the most likely token's probability, a tiny one too."
LEASTS = [
    _least(0.25, "A token with this exponent of 2 has a quarter of the most likely one's probability: "
           "min_p is relative to the most likely token."),
    _least(1.0, "At 1 just the most likely token is left, whose exponent is 0."),
    _least(0.0, "0 is off: log(0) is -inf, which keeps all."),
    _least(1e-4, SHARE),
    _least(1e-9, SHARE),
]  # fmt: skip

GREW = (
    "The logit is the new maximum, of weight 1. What was summed and what leads is relative to the old "
    "one, and must be brought to the new one."
)


def _short(number: float) -> str:
    return "LOWEST" if number == LOWEST else f"{number:g}"


def _absorb(
    value: float, maximum: float, total: float, lead: float, rule: str, *, only: str = ""
) -> Asked:
    lane = f"value {_short(value)}, maximum {_short(maximum)}, sum {total:g}, lead_weight {lead:g}"
    return Asked(f"absorb({lane}, scale 1)", (value, maximum, total, lead), rule, only=only)


ABSORBED = [
    _absorb(3.0, 1.0, 2.0, 0.5, GREW),
    _absorb(1.0, 3.0, 2.0, 0.5, "The logit is below the maximum, which stays: its weight is 2 ** -2."),
    _absorb(5.0, LOWEST, 0.0, 0.0, "The first logit is the maximum, of weight 1."),
    _absorb(-INF, 3.0, 2.0, 0.5, "A logit of -inf has weight 0 and changes nothing."),
    _absorb(3.0, 3.0, 2.0, 0.5, "A logit that equals the maximum has weight 1, and the sum grows by 1."),
    _absorb(-97.0, 3.0, 0.0, 0.0, "Small weights count as well: this one is 2 ** -100."),
    _absorb(103.0, 3.0, 1.0, 1.0, f"{GREW} By 2 ** -100 here."),
    _absorb(LOWEST, LOWEST, 0.0, 0.0,
            "Only -inf has no chance: LOWEST is a logit like any other, of weight 1 as the maximum."),
    _absorb(math.nan, 3.0, 2.0, 0.5,
            "A NaN must reach the sum, which alone shows that the row has one: a maximum leaves it out.",
            only="sums"),
]  # fmt: skip


def _take(weight: float, lead: float, time: float, lead_token: int, rule: str) -> Asked:
    leader = f"lead_weights {lead:g}, lead_times {time:g}, lead_tokens {_token(lead_token)}"
    call = f"take_lead(weights {weight:g}, tokens 7, key 9, {leader})"
    return Asked(call, (weight, 7, lead, time, lead_token), rule)


def _token(number: int) -> str:
    return "NO_TOKEN" if number == NO_TOKEN else str(number)


FIRST = (
    "Who arrives first leads: time / weight is compared, neither times alone nor weights alone. "
)
EARLIER = "A token leads if its time / weight is the smaller one, however small the weights are."
TAKEN = [
    _take(1.0, 0.0, 1.0, NO_TOKEN, "The first token that may win leads."),
    _take(0.0, 0.0, 1.0, NO_TOKEN, "Weight 0 may not win."),
    _take(1.0, 2.0, 8.0, 3, f"{FIRST}Here 0.65 / 1 is less than 8 / 2."),
    _take(1.0, 0.5, 0.1, 3, f"{FIRST}Here 0.65 / 1 is more than 0.1 / 0.5."),
    _take(0.25, 1.0, 1.0, 3, f"{FIRST}Here 0.65 / 0.25 is more than 1 / 1."),
    _take(1e-30, 0.0, 1.0, NO_TOKEN, "Any weight above 0 may win."),
    _take(1e-30, 1e-30, 1e-3, 3, EARLIER),
    _take(1e-30, 1e-30, 1e3, 3, EARLIER),
]


def _race(weights: list[float], times: list[float], tokens: list[int], rule: str) -> Asked:
    shown = ", ".join(map(_token, tokens))
    call = f"finish_race(lead_weights {weights}, lead_times {times}, lead_tokens [{shown}])"
    return Asked(call, (weights, times, tokens), rule)


RACES = [
    _race([1.0, 0.0, 0.5, 0.0], [3.0, 1.0, 4.0, 1.0], [7, NO_TOKEN, 5, NO_TOKEN],
          "A lane whose leader has weight 0 has none: it takes no part."),
    _race([1.0, 0.5], [2.0, 1.0], [9, 4],
          "Both lanes arrive at 2. The lower token number wins, in whatever lane it lies."),
    _race([0.0, 0.0], [1.0, 1.0], [NO_TOKEN, NO_TOKEN], "No lane has a leader, so none arrives."),
    _race([1e-30, 0.0], [2.0, 1.0], [7, NO_TOKEN],
          "A leader of any weight above 0 arrives, at time / weight."),
    _race([1.0, 1.0], [2.0, 2.0001], [9, 4],
          "Together arrives only what arrives at the same time: token 9 is the first here."),
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
    who, next_one = _token(candidate), _token(following)
    if rule == KEPT:
        most = f"p * total = {p * total:g}"
        rule += f" Here they have {mass:g}, and {most}: it is {'not ' * is_open}less."
    numbers = f"low={low:g}, total={total:g}, p={p:g}, mass={mass:g}"
    call = (
        f"judge(candidate={who}, {numbers}, following={next_one}), where the logit of token i is i,"
    )
    return Asked(call, (candidate, low, total, p, mass, following), rule, is_open)


def _narrow(number: int, least: float, most: float, rule: str, *, only: str = "") -> Asked:
    ends = f"reached=key_of({LEAST_END:g}), missed=key_of({MOST_END:g}) + 1"
    call = f"narrow(number={number}, least={least:g}, most={most:g}, k=2, {ends})"
    return Asked(call, (number, least, most), rule, only=only)


LEAST_END, MOST_END = 0.25, 8.0
NARROWED = [
    _narrow(4, 1.0, 0.5,
            "4 logits reach the pivot, more than k: `reached` becomes the key of the least of them. The "
            "search goes on until just k do, and `missed` stays."),
    _narrow(1, 4.0, 2.0,
            "1 logit reaches the pivot, fewer than k, and no more reach anything above the largest "
            "of the others: `missed` becomes key_of(most) + 1. `reached` stays."),
    _narrow(2, 4.0, 2.0,
            "2 logits reach the pivot, which is k and enough: `reached` becomes the key of the least of "
            "them, the k-th largest.",
            only="reached"),
]  # fmt: skip

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
    _judge(NO_TOKEN, 0.5, 4.0, 0.9995, 1.0, 2, True,
           "The winner is judged at any p below 1."),
    _judge(1, -INF, 1000.0, 0.9995, 999.75, 3, True, KEPT),
    _judge(1, -INF, 1000.0, 0.0025, 3.0, 3, True, KEPT),
    _judge(1, -INF, 4.0, 0.5, 1.9995, 3, False, KEPT),
]  # fmt: skip


def _raced(
    first: int,
    low: float,
    scale: float,
    least: float,
    is_race: bool,
    rule: str,
    *,
    key: int = 9,
    maximum: float = 3.0,
    num_chunks: int = 2,
    only: str = "",
) -> Asked:
    """Without is_race only the mass is looked at, unless `only` names something else."""
    many = "" if num_chunks == 2 else f", num_chunks={num_chunks}, CHUNKS=2"
    call = (
        f"race_above(low={low:.8g}, is_race={is_race}, maximum={maximum:g}, scale={scale:.4g}, "
        f"least={least:g}, first_token={first}{many}), where logits are 0, 0.5, ... 3, 0, 0.5, ...,"
    )
    return Asked(
        call, (first, low, scale, least, is_race, key, maximum, num_chunks), rule,
        only=only or ("" if is_race else "the mass"),
    )  # fmt: skip


RACED = [
    _raced(0, -INF, LOG2_E, -INF, False, "mass is the sum of exp((logit - maximum) / temperature)."),
    _raced(0, 1.5, LOG2_E, -INF, False,
           "mass is of the tokens above low, which is the candidate's logit: the candidate is not above "
           "itself."),
    _raced(0, -INF, LOG2_E / 2, -INF, False,
           "A scale of half the size is a temperature of 2: a weight is exp((logit - maximum) / 2)."),
    _raced(0, 1.5, LOG2_E, -INF, True,
           "A rejected candidate is followed by the winner among those above it, on the same noise, "
           "that of `key`."),
    _raced(0, -INF, LOG2_E, -INF, False,
           "All listed chunks are weighed, CHUNKS of them at a time.", num_chunks=9),
    *(
        _raced(0, -INF, LOG2_E / 4, -INF, True,
               "All listed chunks race, CHUNKS of them at a time: a lane's leader in one tile meets "
               "the lane's token of the next.", num_chunks=9, key=key)
        for key in (2, 4)
    ),
    _raced(CHUNK, 1.5, LOG2_E, -INF, True,
           "The chunks of a split begin at its own first token, and so do the tokens that race."),
    _raced(0, 0.0, LOG2_E / 8, -0.1, True,
           "Min-p comes last: an exponent below least races at weight 0, and counts in the mass.",
           key=10),
    _raced(0, 1.5 - 2.0**-21, LOG2_E, -INF, False,
           "Above low is what is larger by any amount: 1.5 is above 1.4999995."),
    _raced(0, 1.0, 3e38, -INF, False,
           "A temperature of nearly 0 has a huge scale. The difference from the maximum is taken first, "
           "and is 0 for the largest: it weighs 1."),
    _raced(0, -INF, LOG2_E, -INF, False,
           "Small weights count as well: of 150,000 tokens that are a million times less likely than "
           "the first, some is drawn in one row of eight.", maximum=40.0),
    _raced(0, 3.0, LOG2_E, -INF, True,
           "Nothing is above low, and nobody arrives: (inf, NO_TOKEN)."),
    _raced(0, 1.5, LOG2_E, -INF, False,
           "Without is_race nobody races: it is (inf, NO_TOKEN), and no time is computed.",
           only="the token"),
]  # fmt: skip
