"""Draws from split logits are lab 12's from the joined ones."""

import math

import pytest
import torch
from torch import Tensor

from solutions.tensor_parallel import share
from solutions.triton_sampling import Sampler
from yaie.backends import choose_backend
from yaie.backends.vocab_parallel_sampler import SplitSampler, best_scores, tokens_of
from yaie.core.batch import SamplingBatch
from yaie.core.config import EngineConfig
from yaie.parts import YOURS, Part, Parts

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
INF = math.inf


def batch_of(temperatures: list[float], seed: int = 0, step: int = 0) -> SamplingBatch:
    n = len(temperatures)
    zeros, ones = torch.zeros(n, device=DEVICE), torch.ones(n, device=DEVICE)
    return SamplingBatch(
        temperature=torch.tensor(temperatures, device=DEVICE),
        top_k=zeros.long(),
        top_p=ones,
        min_p=zeros,
        seeds=torch.arange(n, device=DEVICE) * (2**33 + 1) + seed,
        steps=torch.full((n,), step, device=DEVICE),
        all_greedy=False,
        any_top_k=False,
        any_top_p=False,
        any_min_p=False,
    )


def drawn_apart(logits: Tensor, batch: SamplingBatch, size: int) -> Tensor:
    """By `size` ranks, each of its own columns."""
    shares = [share(logits.shape[1], rank, size) for rank in range(size)]
    scores = [best_scores(logits[:, one.start : one.stop], batch, one.start) for one in shares]
    for rank, one in enumerate(shares):
        sampler = SplitSampler(one.start, lambda x, own=rank: gathered(scores, x, own))
        assert torch.equal(
            sampler.sample(logits[:, one.start : one.stop], batch), tokens_of(torch.stack(scores))
        )
    return tokens_of(torch.stack(scores))


def gathered(scores: list[Tensor], x: Tensor, rank: int) -> Tensor:
    assert torch.equal(x, scores[rank])
    return torch.stack(scores)


@pytest.mark.parametrize(
    ("vocab", "size", "step"), [(4096, 2, 7), (1000, 4, 0), (77, 4, 7), (3, 2, 0), (600, 1, 1)]
)
def test_tokens_are_those_of_the_joined_logits(vocab: int, size: int, step: int) -> None:
    temperatures = [0.0, 1.0, 0.6, 1.7, 0.05, 1e-38, 0.0, 3.0]
    generator = torch.Generator().manual_seed(vocab + size)
    logits = 3 * torch.randn(len(temperatures), vocab, generator=generator).to(DEVICE)
    batch = batch_of(temperatures, step=step)
    expected = Sampler().sample(logits.clone(), batch)
    assert drawn_apart(logits, batch, size).tolist() == expected.tolist()


@pytest.mark.nightly
def test_many_seeds_draw_the_same_tokens() -> None:
    """Of tokens that are about as likely, so that the noise decides."""
    generator = torch.Generator().manual_seed(5)
    logits = torch.rand(1, 300, generator=generator).to(DEVICE).expand(100, -1)
    batch = batch_of([0.8] * 100, seed=3)
    expected = Sampler().sample(logits.clone(), batch)
    drawn = drawn_apart(logits, batch, 2)
    assert len(drawn.unique()) > 50
    assert drawn.tolist() == expected.tolist()


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_rows_that_are_not_finite_draw_nothing(temperature: float) -> None:
    logits = torch.zeros(6, 64, device=DEVICE)
    logits[0, 40] = math.nan
    logits[1, 3] = INF
    logits[2] = -INF
    logits[3, :32] = -INF  # all of one rank, which is no fault
    logits[4] = -INF
    logits[4, 50] = -1e30
    drawn = drawn_apart(logits, batch_of([temperature] * 6), 2).tolist()
    assert drawn[:3] == [-1, -1, -1]
    assert drawn[3] >= 32
    assert drawn[4] == 50
    assert drawn[5] >= 0


def test_of_equals_the_first_is_taken() -> None:
    logits = torch.full((2, 40), -3.0, device=DEVICE)
    logits[0, [9, 25, 31]] = 2.0
    logits[1] = -1.0
    logits[1, 7], logits[1, 30] = -0.0, 0.0
    assert drawn_apart(logits, batch_of([0.0, 0.0]), 4).tolist() == [9, 7]


def test_a_learners_sampler_is_given_all_logits() -> None:
    backend = choose_backend(EngineConfig(backend="triton", mine="none"), DEVICE, [64])
    assert isinstance(backend.make_split_sampler(0, lambda x: x[None]), SplitSampler)
    mine = [
        Part(part.lab, YOURS if part.lab == "triton_sampling" else part.owner, part.module, "")
        for part in backend.parts.table()
    ]
    backend.parts = Parts(mine)
    assert backend.make_split_sampler(0, lambda x: x[None]) is None
