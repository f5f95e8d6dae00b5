"""Lab 12: tuned and naive draws are those of lab 1, whose distributions have tests of their own."""

import math
import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from grader.kit import kernels
from grader.kit.triton_watch import watching
from solutions.sampler import Sampler as SortingSampler
from solutions.sampler.noise import gumbel_noise as noise_of_lab_1
from solutions.sampler.noise import hash_32
from solutions.triton_sampling import Sampler
from solutions.triton_sampling.naive import NaiveSampler
from solutions.triton_sampling.noise import gumbel_noise
from solutions.triton_sampling.scan import CHUNK, scan_rows, scan_tile
from tests.solutions.properties import effort
from yaie.core.batch import PenaltyBatch, SamplingBatch

INF = math.inf
LAB_1 = SortingSampler()


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    """Every address is checked, and the interpreter is quicker on the way."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        yield
        return
    with watching():
        yield


@pytest.fixture(params=[Sampler(), NaiveSampler()], ids=["tuned", "naive"])
def sampler(request):
    return request.param


def logits_of(n: int, vocab: int, seed: int = 0, scale: float = 3.0) -> Tensor:
    return torch.randn(n, vocab, generator=torch.Generator().manual_seed(seed)) * scale


def on(device: str, batch: SamplingBatch) -> SamplingBatch:
    moved = {name: getattr(batch, name) for name in SamplingBatch.__dataclass_fields__}
    tensors = {name: x.to(device) for name, x in moved.items() if isinstance(x, Tensor)}
    return SamplingBatch(**moved | tensors)


CASES = {
    "greedy": {"temperature": 0.0},
    "plain": {},
    "warm": {"temperature": 1.7},
    "cold": {"temperature": 0.2},
    "k 1": {"top_k": 1},
    "k 7": {"top_k": 7},
    "k 90": {"top_k": 90},
    "k of all": {"top_k": 10**9},
    "p 0.9": {"top_p": 0.9},
    "p 0.3": {"top_p": 0.3, "temperature": 1.5},
    "p 0": {"top_p": 0.0},
    "min-p": {"min_p": 0.1},
    "min-p 1": {"min_p": 1.0},
    "k and p": {"top_k": 20, "top_p": 0.95, "temperature": 0.6},
    "all": {"top_k": 9, "top_p": 0.8, "min_p": 0.05, "temperature": 1.2},
}


@pytest.mark.parametrize("vocab", [5, 700])
@pytest.mark.parametrize("given", CASES.values(), ids=CASES)
def test_draws_are_those_of_lab_1(sampler, given: dict[str, float], vocab: int) -> None:
    batch = kernels.sampling_batch(2, **given, seeds=[3, 2**40 + vocab], steps=[0, 17])
    logits = logits_of(2, vocab, seed=vocab)
    assert sampler.sample(logits.clone(), batch).tolist() == LAB_1.sample(logits, batch).tolist()


@pytest.mark.parametrize("vocab", [1, 129])
def test_a_vocabulary_of_one_and_one_that_no_chunk_divides(sampler, vocab: int) -> None:
    batch = kernels.sampling_batch(2, top_k=[0, 3], top_p=[0.9, 0.5], min_p=[0.1, 0.0])
    logits = logits_of(2, vocab)
    assert sampler.sample(logits.clone(), batch).tolist() == LAB_1.sample(logits, batch).tolist()


@pytest.mark.parametrize("name", ["greedy", "plain", "p 0.3", "min-p", "k and p", "all"])
def test_many_tiles_and_splits(name: str) -> None:
    vocab = 3 * 32 * CHUNK + 5
    assert scan_tile(1, vocab, 1).splits > 1
    batch = kernels.sampling_batch(1, **CASES[name], seeds=[5])
    for logits in (logits_of(1, vocab), torch.linspace(-9, 9, vocab)[None]):
        assert Sampler().sample(logits, batch).tolist() == LAB_1.sample(logits, batch).tolist()


BAD = [
    torch.full((300,), math.nan),
    torch.full((300,), -INF),
    torch.zeros(300).index_fill(0, torch.tensor([290]), math.nan),
    torch.zeros(300).index_fill(0, torch.tensor([3]), INF),
]


@pytest.mark.parametrize("given", [{"temperature": 0.0}, {}, CASES["all"]], ids=str)
def test_a_row_that_is_not_finite_gives_minus_one_and_disturbs_no_other(sampler, given) -> None:
    logits = logits_of(6, 300)
    batch = kernels.sampling_batch(6, **given)
    right = LAB_1.sample(logits.clone(), batch)
    for row, bad in enumerate(BAD):
        logits[row] = bad
    assert sampler.sample(logits, batch).tolist() == [-1] * 4 + right[4:].tolist()


@pytest.mark.parametrize("heat", [1e-6, 1e-30, 1e-44])
def test_a_tiny_temperature_overflows_nothing(sampler, heat: float) -> None:
    logits = logits_of(2, 300) * 1000
    batch = kernels.sampling_batch(2, temperature=heat, top_p=0.9)
    assert sampler.sample(logits, batch).tolist() == logits.argmax(dim=1).tolist()


def test_the_least_of_all_logits_is_a_logit(sampler) -> None:
    logits = torch.full((2, 200), torch.finfo(torch.float32).min)
    batch = kernels.sampling_batch(2, top_k=[0, 5])
    right = LAB_1.sample(logits.clone(), batch)
    assert sampler.sample(logits, batch).tolist() == right.tolist()


def test_fewer_possible_tokens_than_k(sampler) -> None:
    logits = torch.full((3, 300), -INF)
    logits[:, [5, 250]] = torch.tensor([1.0, 1.5])
    batch = kernels.sampling_batch(3, top_k=[10, 2, 2], top_p=[1.0, 1.0, 0.9])
    assert sampler.sample(logits, batch).tolist() == LAB_1.sample(logits, batch).tolist()


def test_ties_with_the_kth_largest_are_kept(sampler) -> None:
    logits = torch.tensor([[0.0, -0.0, -1.0, 0.0, 1.0]]).repeat(20, 1)
    batch = kernels.sampling_batch(20, top_k=2)
    drawn = sampler.sample(logits, batch)
    assert drawn.tolist() == LAB_1.sample(logits, batch).tolist()
    assert set(drawn.tolist()) == {0, 1, 3, 4}


def test_ties_where_top_p_ends_are_all_kept(sampler) -> None:
    """Here lab 1 differs: a stable sort keeps the first two of four."""
    drawn = sampler.sample(torch.zeros(20, 4), kernels.sampling_batch(20, top_p=0.5))
    assert set(drawn.tolist()) == {0, 1, 2, 3}


def test_rows_may_lie_apart(sampler) -> None:
    wide = logits_of(3, 400)
    batch = kernels.sampling_batch(3, top_p=0.8)
    right = LAB_1.sample(wide[:, :333].contiguous(), batch)
    assert sampler.sample(wide[:, :333], batch).tolist() == right.tolist()


def test_no_rows(sampler) -> None:
    drawn = sampler.sample(torch.empty(0, 10), kernels.sampling_batch(0))
    assert drawn.shape == (0,)
    assert drawn.dtype == torch.int64


def test_penalties_come_first(sampler) -> None:
    logits, counts = logits_of(3, 200), torch.zeros(3, 200)
    best = logits.argmax(dim=1)
    counts[torch.arange(3), best] = 2
    penalties = PenaltyBatch(
        presence=torch.tensor([9.0, 0.0, 0.0]),
        frequency=torch.tensor([0.0, 9.0, 0.0]),
        repetition=torch.tensor([1.0, 1.0, 9.0]),
        output_counts=counts,
        prompt_mask=torch.zeros(3, 200, dtype=torch.bool),
    )
    batch = kernels.sampling_batch(3, temperature=[0.0, 1.0, 0.0], top_k=[0, 1, 0])
    batch.penalties = penalties
    drawn = sampler.sample(logits.clone(), batch)
    assert drawn.tolist() == LAB_1.sample(logits, batch).tolist()
    assert not (drawn == best).any()


@effort(8)
@given(st.lists(st.sampled_from(list(CASES.values())), min_size=1, max_size=4), st.integers(0, 999))
def test_every_row_is_a_request_of_its_own(cases: list[dict[str, float]], seed: int) -> None:
    off = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    columns = {name: [(off | case)[name] for case in cases] for name in off}
    seeds = [seed * 7 + row for row in range(len(cases))]
    batch = kernels.sampling_batch(len(cases), **columns, seeds=seeds)
    logits = logits_of(len(cases), 260, seed)
    assert Sampler().sample(logits, batch).tolist() == LAB_1.sample(logits, batch).tolist()


@pytest.mark.nightly
@pytest.mark.slow
def test_draws_follow_the_distribution() -> None:
    logits = logits_of(1, 6, scale=1.0).expand(100, -1).contiguous()
    batch = kernels.sampling_batch(100, top_p=0.8)
    chances = kernels.probabilities(logits[:1], batch)[0]
    drawn = Sampler().sample(logits, batch).bincount(minlength=6).double()
    assert not drawn[chances == 0].any()
    possible = chances > 0
    assert stats.chisquare(drawn[possible], chances[possible] * 100).pvalue > 1e-3


SEEDS = torch.tensor([0, 1, -5, 2**32, 2**63 - 1])


def test_noise_is_that_of_lab_1() -> None:
    steps = torch.tensor([0, 5, 2**31, 7, 7])
    ours, theirs = gumbel_noise(SEEDS, steps, 3000), noise_of_lab_1(SEEDS, steps, 3000)
    assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("bits", [0, 1, 77, 2**32 - 1, 2**32 - 100])
def test_noise_of_the_luckiest_and_the_unluckiest_token(bits: int) -> None:
    """A seed whose key, with token 0, gives these bits: the hash can be turned round."""
    seed = torch.tensor([find_seed(bits)])
    ours, theirs = (make(seed, torch.tensor([0]), 1) for make in (gumbel_noise, noise_of_lab_1))
    assert ours.isfinite().all()
    assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def find_seed(bits: int) -> int:
    """hash_32 is a bijection: undo it for the bits, for the key, and for the halves of a seed."""
    key = unhash(bits) ^ int(hash_32(torch.tensor(0)))
    mixed = unhash(key) ^ 0x9E3779B9
    return unhash(mixed) ^ int(hash_32(torch.tensor(0)))


def unhash(value: int) -> int:
    mask = 2**32 - 1
    value ^= value >> 16
    value = value * pow(0x846CA68B, -1, 2**32) & mask
    value ^= (value >> 15) ^ (value >> 30)
    value = value * pow(0x7FEB352D, -1, 2**32) & mask
    return value ^ (value >> 16)


@pytest.mark.parametrize("n", [1, 3, 256])
@pytest.mark.parametrize("vocab", [1, 128, 50_257, 151_936, 262_208])
@pytest.mark.parametrize("sms", [1, 132])
def test_splits_cover_a_row(n: int, vocab: int, sms: int) -> None:
    tile = scan_tile(n, vocab, sms)
    chunks = -(-vocab // CHUNK)
    assert tile.chunks_per_split % tile.chunks == 0
    assert (tile.splits - 1) * tile.chunks_per_split < chunks <= tile.splits * tile.chunks_per_split


def test_the_scan_reports_what_it_says() -> None:
    logits = logits_of(2, 9000)
    scan = scan_rows(logits, kernels.sampling_batch(2, temperature=0.5))
    maximum = scan.maxima.amax(dim=1)
    assert torch.equal(maximum, logits.amax(dim=1))
    total = (scan.sums * ((scan.maxima - maximum[:, None]) / 0.5).exp()).sum(dim=1)
    exact = ((logits.double() - maximum[:, None]) / 0.5).exp().sum(dim=1)
    assert torch.allclose(total.double(), exact, rtol=1e-5)
    padded = torch.nn.functional.pad(logits, (0, -9000 % CHUNK), value=-INF)
    assert torch.equal(scan.chunk_maxima, padded.view(2, -1, CHUNK).amax(dim=2))


@pytest.mark.gpu
@pytest.mark.parametrize("vocab", [151_936, 50_257, 1000])
@pytest.mark.parametrize("case", [*CASES.values(), {"top_k": 5000, "top_p": 0.9}], ids=str)
def test_draws_on_a_gpu_are_those_of_lab_1(case: dict[str, float], vocab: int) -> None:
    """But for a row or two of 256, where rounding decides what top-p keeps, or between two scores."""
    logits = logits_of(256, vocab).cuda()
    batch = on("cuda", kernels.sampling_batch(256, **case))
    ours, theirs = (s.sample(logits.clone(), batch) for s in (Sampler(), LAB_1))
    assert (ours != theirs).sum() <= 2


@pytest.mark.gpu
def test_draws_on_a_gpu_follow_the_distribution() -> None:
    logits = logits_of(1, 50, scale=1.0).expand(100_000, -1).contiguous()
    batch = kernels.sampling_batch(100_000, top_p=0.8, top_k=40, min_p=0.02)
    chances = kernels.probabilities(logits[:1], batch)[0]
    drawn = Sampler().sample(logits.cuda(), on("cuda", batch)).cpu().bincount(minlength=50).double()
    assert not drawn[chances == 0].any()
    possible = chances > 0
    assert stats.chisquare(drawn[possible], chances[possible] * 100_000).pvalue > 1e-3


@pytest.mark.gpu
def test_a_call_fits_in_a_graph() -> None:
    logits = logits_of(8, 151_936).cuda()
    batch = on("cuda", kernels.sampling_batch(8, top_p=0.9, top_k=50))
    right = Sampler().sample(logits, batch).tolist()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = Sampler().sample(logits, batch)
    graph.replay()
    assert drawn.tolist() == right
