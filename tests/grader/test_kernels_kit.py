"""The judge's own kernels agree with the naive siblings of the labs, written by other hands."""

import math

import pytest
import torch

from grader.kit import Mismatch, kernels
from solutions.sampler.naive import probabilities as naive_probabilities
from solutions.sampler.noise import gumbel_noise
from solutions.transformer_ops import TransformerOps
from solutions.transformer_ops.naive import naive_attention
from yaie.core.batch import AttentionSpec
from yaie.core.params import SamplingParams

SPECS = {
    "plain": AttentionSpec(scale=0.25),
    "window": AttentionSpec(scale=0.25, window=3),
    "softcap": AttentionSpec(scale=0.25, softcap=2.0),
    "sinks": AttentionSpec(scale=0.25, sinks=torch.tensor([0.5, -1.0, 2.0, 0.0])),
}


def qkv(tq: int, tk: int) -> list[torch.Tensor]:
    shapes = (2, tq, 4, 8), (2, tk, 2, 8), (2, tk, 2, 8)
    return [kernels.random(*shape, seed=seed) for seed, shape in enumerate(shapes)]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_attention_agrees_with_one_query_at_a_time(spec) -> None:
    q, k, v = qkv(3, 7)
    out, _ = kernels.attention(q, k, v, spec)
    assert torch.allclose(out, naive_attention(q.double(), k, v, spec))


def test_the_log_of_the_denominator_is_the_softmaxs() -> None:
    q, k, v = qkv(4, 4)
    _, lse = kernels.attention(q, k, v, SPECS["plain"])
    first = (q[0, 0, 0] @ k[0, 0, 0]) * 0.25  # the first query sees one key
    assert lse[0, 0, 0] == pytest.approx(float(first))


def test_a_query_that_sees_nothing_gives_0_and_harms_no_gradient() -> None:
    q, k, v = qkv(4, 2)  # queries 0 and 1 stand before every key
    out, lse = kernels.attention(q, k, v, SPECS["plain"])
    assert bool((out[:, :2] == 0).all())
    assert bool((lse[:, :, :2] == -math.inf).all())
    whole = kernels.attention_gradients(out, q, k, v, SPECS["plain"])
    seeing = kernels.attention_gradients(out[:, 2:], q[:, 2:], k, v, SPECS["plain"])
    assert bool((whole[0][:, :2] == 0).all())
    assert torch.allclose(whole[1], seeing[1])
    assert torch.allclose(whole[2], seeing[2])


def test_a_block_mask_hides_whole_tiles() -> None:
    mask = kernels.seen(4, 4, causal=False, block_mask=torch.eye(2).bool(), mask_block=2)
    assert mask.int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_paged_attention_is_attention_over_what_the_tables_name(spec) -> None:
    pool = kernels.paged_pool([5, 1, 9], head_dim=8)
    q = kernels.random(3 + 1 + 2, 4, 8, seed=9)
    got = kernels.paged_prefill(q, pool, [3, 1, 2], spec)
    assert not got.isnan().any()
    for row, (first, last) in enumerate(((0, 3), (3, 4), (4, 6))):
        length = int(pool.seq_lens[row])
        k, v = (
            kernels.paged_gather(blocks, pool.block_tables[row], length)[None]
            for blocks in (pool.key_blocks, pool.value_blocks)
        )
        right = naive_attention(q[None, first:last].double(), k, v, spec)[0]
        assert torch.allclose(got[first:last], right)
    last_of_each = q[[2, 3, 5]]
    assert torch.allclose(kernels.paged_decode(last_of_each, pool, spec), got[[2, 3, 5]])


def test_the_layers_operations_agree_with_lab_2() -> None:
    ops, x, weight = TransformerOps(), kernels.random(3, 8), kernels.random(8, seed=1)
    assert torch.allclose(kernels.rms_norm(x, weight, 1e-5).float(), ops.rms_norm(x, weight, 1e-5))
    assert torch.allclose(kernels.silu_mul(x).float(), ops.silu_mul(x))
    q, positions = kernels.random(3, 2, 8), torch.tensor([4, 0, 9])
    cos, sin = kernels.rotary_tables(10, 3)
    right = ops.rope(q.clone(), q.clone(), positions, cos, sin)[0]
    assert torch.allclose(kernels.rope(q, positions, cos, sin).float(), right, atol=1e-6)
    normed, total = kernels.fused_add_rms_norm(x.bfloat16(), x.bfloat16() / 3, weight, 1e-5)
    assert torch.equal(total, total.bfloat16().double())
    assert torch.allclose(normed, kernels.rms_norm(total, weight, 1e-5))


def test_stored_keys_are_found_again_and_negative_slots_store_nothing() -> None:
    k, v = kernels.random(3, 2, 4), kernels.random(3, 2, 4, seed=1)
    blocks = torch.zeros(2, 2, 2, 4)
    keys, values = kernels.store_kv(k, v, blocks, blocks, torch.tensor([3, -1, 0]))
    assert torch.equal(keys.flatten(0, 1)[[3, 0]], k[[0, 2]])
    assert torch.equal(values.flatten(0, 1)[[3, 0]], v[[0, 2]])
    assert not keys.flatten(0, 1)[[1, 2]].any()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"top_k": 3},
        {"top_p": 0.6},
        {"min_p": 0.2},
        {"temperature": 0.0},
        {"top_k": 5, "top_p": 0.7},
    ],
    ids=str,
)
def test_the_chances_of_tokens_are_those_of_lab_1(given: dict[str, float]) -> None:
    logits = torch.randn(2, 12, generator=torch.Generator().manual_seed(4))
    got = kernels.probabilities(logits, kernels.sampling_batch(2, **given))
    params = SamplingParams(**{"temperature": 1.0, **given})
    for row, values in enumerate(logits.tolist()):
        assert got[row].tolist() == pytest.approx(naive_probabilities(values, params))


def test_the_noise_is_that_of_lab_1() -> None:
    seeds, steps = torch.tensor([7, -3]), torch.tensor([0, 5])
    got, right = kernels.gumbel_noise(seeds, steps, 50), gumbel_noise(seeds, steps, 50)
    assert torch.allclose(got.float(), right, atol=1e-4)


def test_values_that_were_never_written_are_named() -> None:
    with pytest.raises(Mismatch, match=r"1 of 2 values are NaN, the first at \[1\]: never written"):
        kernels.expect_near(
            torch.tensor([0.0, math.nan]), torch.zeros(2), torch.float32, "the norm"
        )
