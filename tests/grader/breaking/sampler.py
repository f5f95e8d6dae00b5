"""What a learner may write after lab 1: each attack asks one sentence of a filter's docstring."""

import math
from typing import Any

import torch
from torch import Tensor

from yaie.core.batch import PenaltyBatch, SamplingBatch

ROWS = torch.tensor([[1.0, 4.0, 2.0, 3.0], [8.0, 5.0, 7.0, -6.0]])


def penalties(
    presence: float = 0.0, frequency: float = 0.0, repetition: float = 1.0
) -> PenaltyBatch:
    """The first row has these, the second none."""
    return PenaltyBatch(
        presence=torch.tensor([presence, 0.0]),
        frequency=torch.tensor([frequency, 0.0]),
        repetition=torch.tensor([repetition, 1.0]),
        output_counts=torch.tensor([[2.0, 0.0, 0.0, 1.0], [2.0, 0.0, 0.0, 1.0]]),
        prompt_mask=torch.tensor([[False, True, False, True], [True, True, False, False]]),
    )


def batch(
    n: int, temperature: float = 1.0, top_p: float = 1.0, min_p: float = 0.0
) -> SamplingBatch:
    return SamplingBatch(
        temperature=torch.full((n,), temperature),
        top_k=torch.zeros(n, dtype=torch.int64),
        top_p=torch.full((n,), top_p),
        min_p=torch.full((n,), min_p),
        seeds=torch.arange(n),
        steps=torch.zeros(n, dtype=torch.int64),
        all_greedy=temperature == 0,
        any_top_k=False,
        any_top_p=top_p < 1,
        any_min_p=min_p > 0,
    )


def kept(logits: Tensor) -> Tensor:
    return logits > -math.inf


def attack_penalties(part: Any) -> Any:
    apply, rows = part.filters.apply_penalties, ROWS - 2.5
    return [
        apply(rows.clone(), penalties(presence=0.5)),
        apply(rows.clone(), penalties(frequency=0.5)),
        apply(rows.clone(), penalties(repetition=2.0)),
        apply(rows.clone(), penalties(0.5, 0.25, 2.0)),
    ]


def attack_penalties_that_encourage(part: Any) -> Any:
    apply, rows = part.filters.apply_penalties, ROWS - 2.5
    return [
        apply(rows.clone(), penalties(presence=-0.5, frequency=-0.25)),
        apply(rows.clone(), penalties(repetition=0.5)),
    ]


def attack_temperature(part: Any) -> Any:
    apply = part.filters.apply_temperature
    given = torch.tensor([0.5, 0.0])
    return apply(ROWS.clone(), given).softmax(1), given, apply(ROWS.clone(), given + 2).softmax(1)


def attack_tiny_temperatures(part: Any) -> Any:
    apply = part.filters.apply_temperature
    close = torch.tensor([[1e4, 1e4 - 1e-2]])
    return [
        apply(close.clone(), torch.tensor([1e-3])).softmax(1),
        apply(close.clone(), torch.tensor([1e-38])).softmax(1),
        apply(torch.tensor([[0.0, -1.0], [100.0, 99.0]]), torch.tensor([1.0, 1.0])).softmax(1),
    ]


def attack_top_k(part: Any) -> Any:
    apply = part.filters.apply_top_k
    ties = torch.tensor([[3.0, 2.0, 2.0, 1.0], [4.0, 3.0, 2.0, 1.0]])
    return [apply(ties.clone(), torch.tensor(k)) for k in ([2, 1], [0, 3], [3, 4], [9, -1])]


def attack_top_p(part: Any) -> Any:
    apply = part.filters.apply_top_p
    rows = torch.tensor([[0.1, 0.5, 0.15, 0.25], [0.05, 0.15, 0.7, 0.1]]).log()
    tail = torch.tensor([[0.99, 0.006, 0.004]]).log()
    return [
        *(kept(apply(rows.clone(), torch.full((2,), p))) for p in (1e-6, 0.4, 0.6, 0.8, 1.0)),
        *(kept(apply(tail.clone(), torch.tensor([p]))) for p in (0.992, 0.999)),
    ]


def attack_top_p_among_equals(part: Any) -> Any:
    flat = part.filters.apply_top_p(torch.zeros(1, 8), torch.tensor([0.7]))
    return bool(kept(flat).sum() >= 6)


def attack_min_p(part: Any) -> Any:
    apply = part.filters.apply_min_p
    row = torch.tensor([[0.3, 0.25, 0.2, 0.15, 0.1]]).log()
    return [kept(apply(row.clone(), torch.tensor([p]))) for p in (0.0, 0.4, 0.6, 1.0)]


def attack_rows_that_are_not_finite(part: Any) -> Any:
    rows = torch.tensor(
        [[0.0, 9.0, 1.0], [math.nan, 1.0, 2.0], [-math.inf, -math.inf, 5.0], [0.0, math.inf, 1.0]]
    )
    return part.Sampler().sample(rows, batch(4, temperature=0.0))


def attack_greedy_rows_among_others(part: Any) -> Any:
    mixed = batch(64)
    mixed.temperature[::2] = 0.0
    tokens = part.Sampler().sample(torch.tensor([[1.0, 1.1, 1.2]]).repeat(64, 1), mixed)
    return tokens[::2], mixed.temperature


def attack_a_row_alone_and_with_others(part: Any) -> Any:
    torch.manual_seed(0)
    rows = torch.randn(4, 20)
    rows[1] = math.nan
    return part.Sampler().sample(rows, batch(4)) == -1
