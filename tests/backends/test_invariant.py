"""Kernels of `deterministic` on a GPU: right against float64, and the same for any number of rows."""

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from solutions.sampler import Sampler
from tests.backends.test_gemm import DEVICE, EPS, Case, assert_rounded_alike
from tests.marks import nightly_but
from yaie.backends import choose_backend
from yaie.backends.invariant import InvariantBackend
from yaie.backends.invariant import attention as queries
from yaie.backends.invariant.attention import InvariantAttention
from yaie.backends.invariant.ops import added, norm
from yaie.backends.invariant.products import FEW, MANY, InvariantGemm
from yaie.backends.invariant.sampler import ROWS, TiledSampler
from yaie.core.batch import AttentionBatch, AttentionSpec, KVLayerSpec, SamplingBatch
from yaie.core.config import EngineConfig

SHAPES = [(1, 48, 64), (3, 66, 96), (16, 130, 64), (17, 20, 48), (130, 140, 72)]
BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}


def assert_same_bits(one: Tensor, other: Tensor) -> None:
    assert torch.equal(one.view(BITS[one.dtype]), other.view(BITS[other.dtype]))


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_product_after_a_norm(rows: int, n: int, k: int, bias: bool) -> None:
    case = Case(rows, n, k, bias=bias)
    found = InvariantGemm().after_norm(case.x, case.gain, EPS, case.product)
    assert_rounded_alike(found, case.times(case.normed()))


@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_gated_product(rows: int, n: int, k: int) -> None:
    case = Case(rows, n, k, dtype=torch.float16)
    found = InvariantGemm().gated(case.x, case.gain, EPS, case.product)
    gate, up = case.times(case.normed()).double().chunk(2, dim=1)
    expected = ((gate / (1 + (-gate).exp())).half().double() * up).half()
    assert_rounded_alike(found, expected)


@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_product_onto_a_residual_and_in_float32(rows: int, n: int, k: int) -> None:
    case = Case(rows, n, k)
    products, before = InvariantGemm(), case.residual.clone()
    assert_rounded_alike(
        products.onto(case.x, case.product, case.residual), before + case.times(case.x)
    )
    wide = products.in_float32(case.x, case.product)
    assert wide.dtype == torch.float32
    expected = case.x.double() @ case.product.weight.double().T
    torch.testing.assert_close(wide.double(), expected, atol=1e-4, rtol=1e-4)


def test_no_row_makes_no_launch() -> None:
    case = Case(1, 48, 64)
    products = InvariantGemm()
    assert products.product(case.x[:0], case.product).shape == (0, 48)
    assert norm(case.x[:0], case.gain, EPS).shape == (0, 64)


def test_few_rows_are_computed_as_many_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    from yaie.backends.invariant import products as module

    seen: list[int] = []

    class Kernel:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **meta: seen.append(meta["ROWS"])

    monkeypatch.setattr(module, "invariant_kernel", Kernel())
    case, products = Case(3, 48, 64), InvariantGemm()
    products.product(case.x, case.product)
    products.use_one_tile()
    products.product(case.x, case.product)
    assert seen == [FEW.rows, MANY.rows]


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "k"), [(4096, 1024), (1024, 3072), (6144, 4096), (151936, 1024)])
def test_a_row_has_the_same_bits_among_any_number(n: int, k: int) -> None:
    case, products = Case(700, n, k, dtype=torch.bfloat16), InvariantGemm()
    whole = products.in_float32(case.x, case.product)
    for count in (1, 2, 8, 16, 17, 64, 128, 129, 500):
        assert_same_bits(products.in_float32(case.x[:count], case.product), whole[:count])
        part = products.in_float32(case.x[700 - count :], case.product)
        assert_same_bits(part, whole[700 - count :])


@pytest.mark.parametrize("shape", [(5, 64), (3, 4, 48)])
def test_norm_of_a_row_does_not_know_how_many_there_are(shape: tuple[int, ...]) -> None:
    x = torch.randn(*shape, 1).to(DEVICE, torch.float16)[..., 0]
    gain = torch.randn(shape[-1]).to(DEVICE, torch.float16)
    whole = norm(x, gain, EPS)
    assert_same_bits(norm(x[:1], gain, EPS), whole[:1])
    wide = x.double()
    scaled = (wide * (wide.square().mean(-1, keepdim=True) + EPS).rsqrt()).half().double()
    torch.testing.assert_close(whole.double(), scaled * gain.double(), atol=2e-3, rtol=2e-3)
    normed, total = added(x, x, gain, EPS)
    assert torch.equal(total, 2 * x)
    assert_same_bits(normed, norm(2 * x, gain, EPS))


# --- attention ---

SPECS = {
    "plain": AttentionSpec(0.3),
    "window": AttentionSpec(0.3, window=5),
    "softcap": AttentionSpec(0.3, softcap=2.0),
}


def make_attention() -> tuple[InvariantAttention, Any]:
    config = EngineConfig(backend="triton", deterministic=True, mine="none", device=DEVICE.type)
    backend = choose_backend(config, DEVICE)
    assert isinstance(backend, InvariantBackend)
    pool = backend.make_pool([KVLayerSpec(2, 16)], 12, 4, torch.float16, DEVICE, 0)
    attention: Any = backend.make_attention(pool)
    return attention, pool


def batch_of(query_lens: list[int], kv_lens: list[int], tables: Tensor) -> AttentionBatch:
    """Sequences i with the blocks of row i, cut off where each ends."""
    positions = [
        position
        for queries, keys in zip(query_lens, kv_lens, strict=True)
        for position in range(keys - queries, keys)
    ]
    owners = [i for i, count in enumerate(query_lens) for _ in range(count)]
    slots = [
        int(tables[i, position // 4]) * 4 + position % 4
        for i, position in zip(owners, positions, strict=True)
    ]

    def on_device(numbers: list[int], dtype: torch.dtype) -> Tensor:
        return torch.tensor(numbers, dtype=dtype, device=DEVICE)

    starts = [sum(query_lens[:i]) for i in range(len(query_lens) + 1)]
    return AttentionBatch(
        query_lens=query_lens,
        kv_lens=kv_lens,
        query_start_loc=on_device(starts, torch.int32),
        seq_lens=on_device(kv_lens, torch.int32),
        block_tables=tables,
        slot_mapping=on_device(slots, torch.int64),
        positions=on_device(positions, torch.int64),
    )


@pytest.mark.parametrize("name", nightly_but(["plain"], SPECS))
def test_a_query_attends_alike_in_a_prompt_in_a_chunk_and_as_a_decode(name: str) -> None:
    spec = SPECS[name]
    length = 11
    g = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(length, n, 16, generator=g).to(DEVICE, torch.float16) for n in (4, 2, 2))
    order = list(range(12))
    random.Random(0).shuffle(order)
    tables = torch.tensor([order[:5], order[5:10]], dtype=torch.int32, device=DEVICE)

    def steps(cuts: list[int]) -> Tensor:
        attention, _ = make_attention()
        outputs, done = [], 0
        for count in cuts:
            here = slice(done, done + count)
            batch = batch_of([count], [done + count], tables[:1])
            plan = attention.plan(batch)
            outputs.append(attention.run(0, q[here], k[here], v[here], spec, plan))
            done += count
        return torch.cat(outputs)

    whole = steps([length])
    assert_same_bits(steps([4, 1, 1, 5]), whole)
    assert_same_bits(steps([1] * length), whole)
    wide = [x.double().repeat_interleave(4 // x.shape[1], dim=1) for x in (q, k, v)]
    scores = torch.einsum("qhd,khd->hqk", wide[0], wide[1]) * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * (scores / spec.softcap).tanh()
    distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    hidden = (distance < 0) | (distance >= (spec.window or length))
    scores = scores.masked_fill(hidden.to(DEVICE), float("-inf"))
    expected = torch.einsum("hqk,khd->qhd", scores.softmax(-1), wide[2])
    torch.testing.assert_close(whole.double(), expected, atol=3e-3, rtol=3e-3)


def test_neighbours_padding_and_slices_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(12, n, 16, generator=g).to(DEVICE, torch.float16) for n in (4, 2, 2))
    tables = torch.tensor([[3, 1], [7, 2]], dtype=torch.int32, device=DEVICE)
    attention, _ = make_attention()
    plan = attention.plan(batch_of([5], [5], tables[:1]))
    alone = attention.run(0, q[:5], k[:5], v[:5], SPECS["plain"], plan)

    # A padded step: chunks of which the host knows no length, and rows behind them that are nobody's.
    batch = batch_of([5, 5], [5, 5], tables)
    batch.query_lens, batch.kv_lens, batch.num_decodes = [12, 0], [8, 8], 0
    nobody = torch.tensor([-1, -1], device=DEVICE)
    batch.slot_mapping = torch.cat([batch.slot_mapping, nobody])
    batch.positions = torch.cat([batch.positions, torch.zeros_like(nobody)])
    monkeypatch.setattr(queries, "MOST_ROWS", 4)
    attention, _ = make_attention()
    beside = attention.run(0, q, k, v, SPECS["plain"], attention.plan(batch))
    assert_same_bits(beside[:5], alone)
    assert not beside[10:].any()


# --- the sampler ---


def test_sampler_is_given_as_many_rows_in_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(3)
    logits = torch.randn(35, 50, generator=g)
    rows = torch.arange(35)
    batch = SamplingBatch(
        temperature=torch.ones(35), top_k=rows % 7, top_p=1 - rows / 70, min_p=torch.zeros(35),
        seeds=rows, steps=rows * 3, all_greedy=False, any_top_k=True, any_top_p=True,
        any_min_p=False,
    )  # fmt: skip
    part, seen = Sampler(), []
    sample = part.sample
    monkeypatch.setattr(
        part, "sample", lambda logits, batch: (seen.append(len(logits)), sample(logits, batch))[1]
    )
    drawn = TiledSampler(part).sample(logits.clone(), batch)
    assert seen == [ROWS] * 3
    assert drawn.tolist() == Sampler().sample(logits, batch).tolist()
    assert TiledSampler(part).sample(logits[:0], batch).shape == (0,)
