"""The limit beside a throughput: what must be read and multiplied, by hand on small numbers."""

from dataclasses import astuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from yaie.bench import limits
from yaie.bench.limits import Ceilings, Limit, ModelCost, measure_ceilings
from yaie.bench.throughput.drawn import nano_jobs
from yaie.bench.workload import Job, Lengths
from yaie.core.batch import KVLayerSpec
from yaie.core.contracts.states import StateTensor

READS = Limit(ModelCost(1000, 10, 5, 2, 4), Ceilings(1.0, 1e9, "")).step_seconds
MULTIPLIES = Limit(ModelCost(1000, 10, 5, 2, 4), Ceilings(1e9, 1.0, ""))


def test_a_step_reads_the_weights_once_and_the_keys_and_values_of_all() -> None:
    assert READS(3, 50) == 1000 + 2 * 50


def test_a_step_reads_and_writes_the_states_of_all() -> None:
    hybrid = Limit(ModelCost(1000, 10, 5, 2, 4, state_bytes=7), Ceilings(1.0, 1e9, ""))
    assert hybrid.step_seconds(3, 50) == 1000 + 2 * 50 + 2 * 7 * 3


def test_a_step_that_multiplies_longer_than_it_reads_takes_as_long_as_that() -> None:
    assert MULTIPLIES.step_seconds(3, 50) == 2 * 15 * 3 + 4 * 4 * 50


def test_a_prefill_multiplies_each_token_and_half_of_all_pairs() -> None:
    assert MULTIPLIES.prefill_seconds([7, 3]) == 2 * 10 * 10 + 2 * 5 * 2 + 2 * 4 * (49 + 9)


def test_steps_are_as_many_as_the_requests_that_run_together_need() -> None:
    only_weights = Limit(ModelCost(1, 0, 0, 0, 0), Ceilings(1.0, 1.0, ""))
    jobs = [Job([0], length) for length in (5, 1, 3, 3)]
    prefill = only_weights.prefill_seconds([1] * 4)
    # The prompt gives the first token. Two at a time: the first's four steps beside two and two.
    assert only_weights.workload_seconds(jobs, 2) - prefill == 4
    assert only_weights.workload_seconds(jobs, 1) - prefill == 4 + 2 + 2
    assert only_weights.workload_seconds(jobs, 9) - prefill == 4


def test_a_request_reads_its_whole_context_in_each_of_its_steps() -> None:
    only_cache = Limit(ModelCost(0, 0, 0, 1, 0), Ceilings(1.0, 1.0, ""))
    assert only_cache.workload_seconds([Job([0] * 10, 4)], 1) == 11 + 12 + 13


def test_the_limit_of_known_shapes_is_the_published_one() -> None:
    """36,200 and 13,600 tokens/s at 4.3 TB/s and 790 TFLOP/s, computed before this file was written."""
    jobs = nano_jobs(256, Lengths((100, 1024), (100, 1024)), 151936, 0)
    machine = Ceilings(4.3e12, 790e12, "")
    small, large = 151936 * 1024, 128256 * 4096
    qwen = ModelCost(2 * 596_049_920, 596_049_920 - small, small, 4 * 28 * 8 * 128, 28 * 16 * 128)
    left = 8_030_261_248 - large
    llama = ModelCost(2 * left, left - large, large, 4 * 32 * 8 * 128, 32 * 32 * 128)
    for cost, rate in ((qwen, 36_200), (llama, 13_600)):
        seconds = Limit(cost, machine).workload_seconds(jobs, 256)
        assert 133_966 / seconds == pytest.approx(rate, rel=0.01)


def model(**config: Any) -> Any:
    values: dict[str, Any] = {
        "vocab_size": 100, "hidden_size": 8, "num_attention_heads": 4, "tie_word_embeddings": False,
    }  # fmt: skip
    known = SimpleNamespace(**(values | config))
    known.get_text_config = lambda: known
    adapter = SimpleNamespace(config=known, kv_layers=[KVLayerSpec(2, 16)] * 3, state_layers=[])
    return SimpleNamespace(
        adapter=adapter, num_parameters=5000, weight_bytes=10000, dtype=torch.bfloat16
    )


def test_an_embedding_is_read_and_multiplied_only_where_it_is_the_head_as_well() -> None:
    apart, tied = (ModelCost.of(model(tie_word_embeddings=tied), 99) for tied in (False, True))
    assert apart == ModelCost(10000 - 1600, 5000 - 1600, 800, 2 * 3 * 2 * 16 * 2, 4 * 3 * 16)
    assert tied == ModelCost(10000, 5000 - 800, 800, 2 * 3 * 2 * 16 * 2, 4 * 3 * 16)


def test_what_a_model_keeps_of_a_sequence_is_counted_by_its_layers() -> None:
    hybrid = model()
    layer = (StateTensor((6, 3), torch.bfloat16), StateTensor((2, 4, 4), torch.float32))
    hybrid.adapter.state_layers = [layer] * 5
    cost = ModelCost.of(hybrid, 99)
    assert isinstance(cost, ModelCost)
    assert cost.state_bytes == 5 * (6 * 3 * 2 + 2 * 4 * 4 * 4)


def test_a_rank_reads_and_multiplies_its_part() -> None:
    """Its model tells the bytes and key heads that it has, and all parameters."""
    whole, rank = model(), model()
    rank.weight_bytes //= 2
    rank.adapter.kv_layers = [KVLayerSpec(1, 16)] * 3
    cost, part = ModelCost.of(whole, 99), ModelCost.of(rank, 99, ranks=2)
    assert isinstance(cost, ModelCost)
    assert isinstance(part, ModelCost)
    assert astuple(part) == tuple(number // 2 for number in astuple(cost))


def test_no_limit_is_claimed_where_a_step_need_not_read_everything() -> None:
    assert "experts" in str(ModelCost.of(model(num_local_experts=4), 99))
    assert "windows" in str(ModelCost.of(model(sliding_window=50), 99))
    assert isinstance(ModelCost.of(model(sliding_window=50), 40), ModelCost)
    assert isinstance(
        ModelCost.of(model(sliding_window=50, use_sliding_window=False), 99), ModelCost
    )


def test_the_ceilings_of_a_cpu_are_measured_in_the_models_dtype(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MOST_SECONDS", 0.01)
    monkeypatch.setattr(limits, "READ_BYTES", 1 << 20)
    monkeypatch.setattr(limits, "SIDES", (16,))
    found = measure_ceilings("cpu", torch.bfloat16)
    assert found.bytes_per_second > 1e6
    assert found.operations_per_second > 1e5
    assert "bfloat16 products of (16,)" in found.what


def test_a_ceiling_is_the_fastest_of_as_many_calls_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_SECONDS", 1.0)
    clock = iter(range(1000))
    monkeypatch.setattr(limits.time, "perf_counter", lambda: next(clock) / 10)
    calls: list[int] = []
    assert limits._best(lambda: calls.append(1)) == pytest.approx(0.1)
    assert len(calls) > 4
