"""Ranks together compute what one computes, and none reads a weight that it does not hold."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.models.sharded import load, on_all, shards
from tests.models.test_adapters import load as load_whole
from tests.models.test_adapters import logits_in_two_chunks, overwriting, random_sequences
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, ModelError
from yaie.models import ModelAdapter, ModelLoader
from yaie.models import weights as reading
from yaie.models.layout import Cut, Destination, stacked, whole
from yaie.models.naive_kv import ContiguousKV
from yaie.models.shard import Shard

Checkpoint = Callable[[str], Path]
LENGTHS = (1, 17, 33)
FAMILIES = (
    "llama", "llama-tied", "llama-biases", "mistral", "qwen2", "qwen3", "gpt2", "gpt2-scaled",
    "gemma2", "gemma3-linear", "granite-wide", "gpt_oss-20b", "gpt_oss-120b",
)  # fmt: skip
NEAR = {"atol": 2e-4, "rtol": 1e-4}


def one_pass(adapter: ModelAdapter, incoming: Tensor | None, sequences: list[Tensor]) -> Tensor:
    """Logits of the last stage, or what it passes on."""
    kv = ContiguousKV()
    attend = overwriting(kv.attend([(str(index), len(one)) for index, one in enumerate(sequences)]))
    positions = torch.cat([torch.arange(len(one)) for one in sequences])
    if incoming is None:
        incoming = adapter.embedded(torch.cat(sequences), positions)
    states = adapter.continued(incoming, positions, attend)
    return adapter.logits(states) if adapter.shard.is_last else states


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_ranks_logits_are_those_of_one_rank(
    checkpoint: Checkpoint, family: str, size: int
) -> None:
    folder, sequences = checkpoint(family), random_sequences(LENGTHS)
    expected = torch.cat(logits_in_two_chunks(load_whole(folder).adapter, sequences))

    def rank(shard: Shard) -> Tensor:
        adapter = load(folder, shard)
        found = torch.cat(logits_in_two_chunks(adapter, sequences))
        states = torch.randn(7, 64, generator=torch.Generator().manual_seed(1))
        assert torch.equal(adapter.first_choice(states), adapter.logits(states).argmax(dim=1))
        return found

    found = on_all([partial(rank, shard) for shard in shards(size, 1)])
    torch.testing.assert_close(found[0], expected, **NEAR)
    assert all(torch.equal(found[0], one) for one in found[1:])


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    "family",
    [
        "llama",
        "llama-tied",
        "qwen2",
        "qwen3",
        "gpt2-scaled",
        "gemma3-linear",
        "granite-wide",
        "gpt_oss-20b",
        "gpt_oss-120b",
    ],
)
def test_stages_pass_on_what_the_next_one_needs(
    checkpoint: Checkpoint, family: str, size: int
) -> None:
    folder, sequences = checkpoint(family), random_sequences(LENGTHS)
    expected = torch.cat(logits_in_two_chunks(load_whole(folder).adapter, sequences))
    incoming: list[Tensor | None] = [None] * size
    ranks = shards(size, 2)
    for stage in range(2):
        adapters = [load(folder, one) for one in ranks[stage * size : (stage + 1) * size]]
        calls = [
            partial(one_pass, adapter, states, sequences)
            for adapter, states in zip(adapters, incoming, strict=True)
        ]
        incoming = on_all(calls)
    found = torch.cat([part for part in incoming if part is not None][:1])
    torch.testing.assert_close(found, expected, **NEAR)


@pytest.mark.parametrize("family", ["llama", "llama-biases", "gpt2", "qwen3", "gpt_oss-20b"])
@pytest.mark.parametrize(("size", "stages"), [(2, 1), (4, 1), (1, 2), (2, 2)])
def test_no_rank_reads_what_it_does_not_hold(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, family: str, size: int, stages: int
) -> None:
    folder, read = checkpoint(family), [0]
    true = reading.StoredTensor.__getitem__

    def counted(self: reading.StoredTensor, index: Any) -> Tensor:
        part = true(self, index)
        read[0] += part.nbytes
        return part

    monkeypatch.setattr(reading.StoredTensor, "__getitem__", counted)
    total = sum(tensor.nbytes for tensor in load_file(folder / "model.safetensors").values())
    shares = []
    for shard in shards(size, stages):
        read[0] = 0
        adapter = load(folder, shard)
        assert read[0] == sum(one.target.nbytes for one in adapter.destinations().values())
        assert adapter.num_parameters == total // 4
        shares.append(read[0])
    # Norms, biases behind a sum, position embeddings and repeated KV heads are held more than once.
    assert max(shares) < total * (0.8 if size * stages == 2 else 0.6)
    assert sum(shares) >= total * 0.99


def test_a_rank_holds_its_heads_of_the_pool_and_repeats_kv_heads_that_are_too_few(
    checkpoint: Checkpoint,
) -> None:
    folder = checkpoint("llama")  # 4 heads, 2 KV heads
    kinds = {size: [load(folder, one).kv_layers for one in shards(size, 1)] for size in (2, 4)}
    assert {spec.num_kv_heads for rank in kinds[2] for spec in rank} == {1}
    assert {spec.num_kv_heads for rank in kinds[4] for spec in rank} == {1}
    keys = [dict(load(folder, one).destinations()) for one in shards(4, 1)]
    name = "layers.0.self_attn.k_proj.weight"
    first, second, third, _ = (places[name].target for places in keys)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_a_bias_behind_a_sum_is_whole_on_every_rank_and_added_once(checkpoint: Checkpoint) -> None:
    folder = checkpoint("llama-biases")
    stored = load_file(folder / "model.safetensors")
    for shard in shards(2, 1):
        places = load(folder, shard).destinations()
        bias = places["layers.1.mlp.down_proj.bias"].target
        assert torch.equal(bias, stored["model.layers.1.mlp.down_proj.bias"])


def test_a_tensor_of_another_shape_is_refused_by_its_whole_shape(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = checkpoint("llama")
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    stored = load_file(folder / "model.safetensors")
    stored["model.layers.0.mlp.down_proj.weight"] = torch.zeros(64, 100)
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"down_proj.weight has shape \[64, 100\].*\[64, 112\]"):
        load(tmp_path, shards(2, 1)[0])


@pytest.mark.parametrize("stage", [0, 1])
def test_a_stage_misses_its_own_layers_and_no_others(
    checkpoint: Checkpoint, tmp_path: Path, stage: int
) -> None:
    folder = checkpoint("llama")
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    stored = load_file(folder / "model.safetensors")
    stored = {name: tensor for name, tensor in stored.items() if ".layers.1." not in name}
    save_file(stored, tmp_path / "model.safetensors")
    shard = shards(1, 2)[stage]
    if stage == 0:
        load(tmp_path, shard)
    else:
        with pytest.raises(ModelError, match="9 missing"):
            load(tmp_path, shard)


def test_a_destination_of_several_runs_takes_them_in_order(tmp_path: Path) -> None:
    given = torch.arange(48.0).view(4, 12)
    save_file({"qkv": given}, tmp_path / "one.safetensors")
    rows = Cut(12, (range(2, 4), range(6, 8), range(10, 12)))
    place = Destination(torch.empty(6, 4), transposed=True, cuts=(rows, None))
    assert place.shape == (4, 12)
    with safe_open(tmp_path / "one.safetensors", framework="pt") as file:
        stored = reading.StoredTensor(tmp_path, file, "qkv", lambda _: None)
        place.fill(stored)
    assert torch.equal(place.target, given.t()[[2, 3, 6, 7, 10, 11]])


def test_a_layout_says_what_it_holds_and_what_the_checkpoint_has() -> None:
    half = Cut(8, (range(4, 8),))
    both = stacked(6, [half, 3])
    weight, bias = both.empty(torch.float32, torch.device("cpu"))
    assert (weight.shape, bias, both.sizes) == ((7, 6), None, (4, 3))
    places = both.destinations(["a", "b"], weight, bias)
    assert [place.shape for place in places.values()] == [(8, 6), (3, 6)]
    split = whole(half, 5)
    weight, _ = split.empty(torch.float32, torch.device("cpu"))
    assert weight.shape == (5, 4)
    assert split.destinations(["w"], weight, None)["w.weight"].shape == (5, 8)


@pytest.mark.parametrize(
    ("family", "settings", "told"),
    [
        ("llama", {"tensor_parallel": 3}, "3 does not divide the 4 attention heads"),
        ("llama", {"tensor_parallel": 8}, "choose one of 1, 2, 4"),
        ("llama", {"pipeline_parallel": 3}, "3 is more than the 2 layers .* at most 2"),
        ("phi3", {"tensor_parallel": 2}, "Phi3ForCausalLM runs on one rank as yet"),
        ("olmo2", {"pipeline_parallel": 2}, "leave out tensor_parallel and pipeline_parallel"),
    ],
)
def test_what_cannot_be_split_is_refused_with_the_numbers(
    checkpoint: Checkpoint, family: str, settings: dict[str, int], told: str
) -> None:
    config = EngineConfig(model=str(checkpoint(family)), device="cpu", **settings)
    with pytest.raises(ConfigError, match=told) as refused:
        ModelLoader(config, progress=False).check_ranks(config)
    assert refused.value.param in ("tensor_parallel", "pipeline_parallel")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"speculate": "draft"}, "take speculate 'ngram'"),
        ({"speculate": "mtp"}, "runs on one rank as yet: leave out tensor_parallel"),
        ({"deterministic": True}, "deterministic runs on one rank"),
        ({"pipeline_parallel": 2, "graphs": "on"}, "leave graphs to auto"),
        ({"rank_timeout": 0.0}, "must be above 0"),
    ],
)
def test_what_runs_on_one_rank_alone_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        EngineConfig(**{"tensor_parallel": 2, **settings})


def test_vocabularies_that_do_not_divide_are_shared_out_unevenly() -> None:
    cuts = [shard.vocab(10) for shard in shards(4, 1)]
    assert [len(cut) for cut in cuts if isinstance(cut, Cut)] == [3, 3, 2, 2]
