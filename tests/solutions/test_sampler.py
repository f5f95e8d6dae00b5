"""Lab 1: the filters are transformers' own, the draws follow the distribution, and rows do not mix."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from solutions.sampler import Sampler
from solutions.sampler.filters import apply_min_p, apply_penalties, apply_top_k, apply_top_p
from solutions.sampler.naive import probabilities
from solutions.sampler.noise import gumbel_noise
from yaie.core.batch import PenaltyBatch, SamplingBatch
from yaie.core.params import SamplingParams

INF = math.inf


def batch_of(params: list[SamplingParams], seeds: list[int], steps: list[int]) -> SamplingBatch:
    def column(name: str) -> Tensor:
        return torch.tensor([float(getattr(one, name)) for one in params])

    top_k = torch.tensor([max(0, one.top_k) for one in params])
    return SamplingBatch(
        temperature=column("temperature"),
        top_k=top_k,
        top_p=column("top_p"),
        min_p=column("min_p"),
        seeds=torch.tensor(seeds),
        steps=torch.tensor(steps),
        all_greedy=all(one.is_greedy for one in params),
        any_top_k=bool(top_k.any()),
        any_top_p=any(one.top_p < 1 for one in params),
        any_min_p=any(one.min_p > 0 for one in params),
    )


def sample(logits: Tensor, params: list[SamplingParams], seed: int = 0, step: int = 0) -> Tensor:
    count = len(params)
    batch = batch_of(params, [seed + i for i in range(count)], [step] * count)
    return Sampler().sample(logits.clone(), batch)


LOGITS = torch.randn(6, 50, generator=torch.Generator().manual_seed(0)) * 3


@pytest.mark.parametrize("k", [1, 2, 17, 50, 90])
def test_top_k_is_transformers(k: int) -> None:
    from transformers import TopKLogitsWarper

    ours = apply_top_k(LOGITS, torch.full((6,), k))
    assert torch.equal(ours, TopKLogitsWarper(k)(None, LOGITS))


def test_top_k_keeps_all_that_tie_with_the_last() -> None:
    kept = apply_top_k(torch.tensor([[3.0, 2.0, 2.0, 1.0]]), torch.tensor([2]))
    assert kept.isfinite().tolist() == [[True, True, True, False]]


@pytest.mark.parametrize("p", [0.01, 0.3, 0.8, 0.99])
def test_top_p_is_transformers(p: float) -> None:
    from transformers import TopPLogitsWarper

    ours = apply_top_p(LOGITS, torch.full((6,), p))
    assert torch.equal(ours, TopPLogitsWarper(p)(None, LOGITS))


def test_top_p_keeps_the_token_that_crosses_p() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    kept = apply_top_p(logits, torch.tensor([0.6]))
    assert kept.isfinite().tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("p", [0.05, 0.5, 1.0])
def test_min_p_is_transformers(p: float) -> None:
    from transformers import MinPLogitsWarper

    ours = apply_min_p(LOGITS, torch.full((6,), p))
    assert torch.equal(ours, MinPLogitsWarper(p)(None, LOGITS))


@pytest.mark.parametrize("filter_", [apply_top_k, apply_top_p, apply_min_p])
def test_a_filter_that_is_off_changes_nothing(filter_) -> None:  # type: ignore[no-untyped-def]
    off = {apply_top_k: 0, apply_top_p: 1.0, apply_min_p: 0.0}[filter_]
    assert torch.equal(filter_(LOGITS, torch.full((6,), off)), LOGITS)


def penalties(**given: float) -> PenaltyBatch:
    """For two rows: one that generated token 1 once and token 2 three times after a prompt of 3, 4."""
    counts, prompt = torch.zeros(2, 50), torch.zeros(2, 50, dtype=torch.bool)
    counts[0, 1], counts[0, 2], prompt[0, 3], prompt[0, 4] = 1, 3, True, True
    values = {"presence": 0.0, "frequency": 0.0, "repetition": 1.0} | given
    rows = {name: torch.tensor([value, value]) for name, value in values.items()}
    return PenaltyBatch(**rows, output_counts=counts, prompt_mask=prompt)


def test_repetition_penalty_is_transformers() -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    ours = apply_penalties(LOGITS[:2], penalties(repetition=1.3))
    seen = torch.tensor([[1, 2, 2, 2, 3, 4]])
    theirs = RepetitionPenaltyLogitsProcessor(1.3)(seen, LOGITS[:1].clone())
    assert torch.equal(ours[:1], theirs)
    assert torch.equal(ours[1], LOGITS[1])


def test_frequency_counts_each_occurrence_and_presence_once_of_the_output_alone() -> None:
    change = LOGITS[:2] - apply_penalties(LOGITS[:2], penalties(frequency=0.5, presence=0.25))
    expected = torch.zeros(2, 50)
    expected[0, 1], expected[0, 2] = 0.75, 1.75
    assert torch.allclose(change, expected, atol=1e-6)


CASES = [
    SamplingParams(),
    SamplingParams(temperature=0.5),
    SamplingParams(temperature=2.0, top_k=5),
    SamplingParams(temperature=1.0, top_p=0.7),
    SamplingParams(temperature=1.3, min_p=0.2),
    SamplingParams(temperature=0.8, top_k=8, top_p=0.9, min_p=0.05),
]


@pytest.mark.parametrize("params", CASES)
def test_draws_follow_the_distribution(params: SamplingParams) -> None:
    """Chi-square over 40,000 draws: as many steps of one seed, and as many seeds at one step."""
    logits = LOGITS[0, :12]
    expected = torch.tensor(probabilities(logits.tolist(), params), dtype=torch.float64)
    count = 20_000
    rows = logits.expand(2 * count, -1)
    seeds = [5] * count + list(range(count))
    batch = batch_of([params] * 2 * count, seeds, list(range(count)) + [9] * count)
    drawn = Sampler().sample(rows.clone(), batch).bincount(minlength=12).double()
    possible = expected > 0
    assert drawn[~possible].sum() == 0
    if possible.sum() > 1:
        wanted = expected[possible] * 2 * count
        assert stats.chisquare(drawn[possible], wanted * drawn.sum() / wanted.sum()).pvalue > 1e-3


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63 - 1])
def test_a_token_whose_number_is_the_step_is_as_lucky_as_others(seed: int) -> None:
    steps = torch.arange(2000)
    noise = gumbel_noise(torch.full_like(steps, seed), steps, 2000).diagonal()
    assert stats.kstest(noise.numpy(), "gumbel_r").pvalue > 1e-4


def test_noise_is_standard_gumbel_and_finite() -> None:
    noise = gumbel_noise(torch.tensor([1, 2]), torch.tensor([0, 0]), 200_000)
    assert noise.isfinite().all()
    assert stats.kstest(noise[0].double(), "gumbel_r").pvalue > 1e-3
    assert abs(float(torch.corrcoef(noise)[0, 1])) < 0.01


@pytest.mark.parametrize("other", [1, 1 << 31, 1 << 32, 1 << 62])
def test_every_bit_of_a_seed_matters(other: int) -> None:
    seeds = torch.tensor([7, 7 ^ other])
    noise = gumbel_noise(seeds, torch.tensor([3, 3]), 1000)
    assert abs(float(torch.corrcoef(noise)[0, 1])) < 0.15


def test_a_draw_does_not_depend_on_the_rows_around_it() -> None:
    generator = torch.Generator().manual_seed(1)
    mine, params = LOGITS[0], CASES[5]
    alone = [
        int(Sampler().sample(mine[None].clone(), batch_of([params], [42], [s]))) for s in range(30)
    ]
    for step in range(30):
        others = torch.randn(63, 50, generator=generator)
        logits = torch.cat([others[:20], mine[None], others[20:]])
        around = [CASES[i % 5] for i in range(64)]
        around[20] = params
        seeds = [42 if i == 20 else i for i in range(64)]
        batch = batch_of(around, seeds, [step] * 64)
        assert int(Sampler().sample(logits, batch)[20]) == alone[step]


def test_greedy_rows_take_the_best_beside_rows_that_draw() -> None:
    params = [SamplingParams(temperature=0 if i % 2 else 1.5) for i in range(6)]
    for step in range(20):
        drawn = sample(LOGITS, params, step=step)
        assert torch.equal(drawn[1::2], LOGITS.argmax(dim=-1)[1::2])


BAD_ROWS = [
    torch.full((50,), math.nan),
    torch.full((50,), -INF),
    torch.zeros(50).index_fill(0, torch.tensor([3]), math.nan),
    torch.zeros(50).index_fill(0, torch.tensor([3]), INF),
]


@pytest.mark.parametrize("bad", BAD_ROWS)
@pytest.mark.parametrize("params", [SamplingParams(temperature=0), CASES[0], CASES[5]])
def test_a_row_that_is_not_finite_gives_minus_one_and_disturbs_no_other(
    bad: Tensor, params: SamplingParams
) -> None:
    clean = sample(LOGITS, [params] * 6)
    logits = LOGITS.clone()
    logits[2] = bad
    drawn = sample(logits, [params] * 6)
    assert drawn[2] == -1
    keep = [0, 1, 3, 4, 5]
    assert torch.equal(drawn[keep], clean[keep])


def test_masked_tokens_are_never_drawn() -> None:
    logits = torch.full((1, 50), -INF)
    logits[0, 7] = 0.0
    drawn = [int(sample(logits, [SamplingParams(temperature=5)], step=step)) for step in range(200)]
    assert set(drawn) == {7}


@pytest.mark.parametrize("temperature", [1e-3, 100.0])
def test_extreme_temperatures_draw_a_token(temperature: float) -> None:
    drawn = sample(LOGITS, [SamplingParams(temperature=temperature)] * 6)
    assert ((drawn >= 0) & (drawn < 50)).all()
    if temperature < 1:
        assert torch.equal(drawn, LOGITS.argmax(dim=-1))


def test_a_vocabulary_of_one_has_one_answer() -> None:
    assert sample(torch.zeros(3, 1), [CASES[5]] * 3).tolist() == [0, 0, 0]
