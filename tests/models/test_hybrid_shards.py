"""Ranks that split a hybrid compute what one rank computes; each holds its part of the states."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.models.plain_ops import PlainOpsWithGemm
from tests.models.sharded import load, on_all, shards
from tests.models.test_adapters import random_sequences
from tests.models.test_hybrids import load as load_whole
from tests.models.test_hybrids import logits_in_two_chunks
from tests.models.test_shards import NEAR
from tests.models.tiny import AMPLIFIED
from yaie import LLMEngine
from yaie.core.errors import ConfigError
from yaie.models import weights as reading
from yaie.models.hybrid import held_part, joined
from yaie.models.layout import Cut
from yaie.models.shard import Shard

Checkpoint = Callable[[str], Path]
FAMILIES = ("lfm2", "lfm2-wide", "qwen3_5")


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("most", [0, 1000], ids=["apart", "fused"])
def test_every_ranks_logits_are_those_of_one_rank(
    checkpoint: Checkpoint, family: str, size: int, most: int
) -> None:
    folder, sequences = checkpoint(family), random_sequences((1, 17, 33))
    expected = torch.cat(logits_in_two_chunks(load_whole(folder), sequences))

    def rank(shard: Shard) -> Tensor:
        ops = PlainOpsWithGemm()
        ops.fused.most = most
        adapter = load(folder, shard, ops)
        found = torch.cat(logits_in_two_chunks(adapter, sequences))
        states = torch.randn(7, 64, generator=torch.Generator().manual_seed(1))
        assert torch.equal(adapter.first_choice(states), adapter.logits(states).argmax(dim=1))
        assert bool(ops.fused.calls) == bool(most)
        return found

    found = on_all([partial(rank, shard) for shard in shards(size, 1)])
    near = {**NEAR, "atol": AMPLIFIED[family]} if family in AMPLIFIED else NEAR
    torch.testing.assert_close(found[0], expected, **near)
    assert all(torch.equal(found[0], one) for one in found[1:])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [2, 4])
def test_no_rank_reads_what_it_does_not_hold(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, family: str, size: int
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
    for shard in shards(size, 1):
        read[0] = 0
        adapter = load(folder, shard)
        assert read[0] == sum(one.target.nbytes for one in adapter.destinations().values())
        assert adapter.num_parameters == total // 4
        shares.append(read[0])
    assert max(shares) < total * (0.8 if size == 2 else 0.6)
    assert sum(shares) >= total * 0.99


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rank_keeps_its_part_of_every_state(checkpoint: Checkpoint, family: str) -> None:
    folder = checkpoint(family)
    whole = load_whole(folder)
    for shard in shards(2, 1):
        adapter = load(folder, shard)
        for part, full in zip(adapter.state_layers, whole.state_layers, strict=True):
            for one, other in zip(part, full, strict=True):
                assert one.shape == (other.shape[0] // 2, *other.shape[1:])
                assert one.dtype == other.dtype
        assert [one.num_kv_heads for one in adapter.kv_layers] == [
            one.num_kv_heads // 2 for one in whole.kv_layers
        ]


def test_parts_of_several_tensors_in_one_lie_where_each_begins() -> None:
    key, value = Cut(4, (range(2, 4),)), Cut(6, (range(3, 6),))
    assert joined([4, 4, 6]) == 14
    both = joined([key, key, value])
    assert both == Cut(14, (range(2, 4), range(6, 8), range(11, 14)))
    stored = torch.arange(28.0).view(14, 1, 2)
    target = torch.empty(7, 1, 2)
    held_part(target, both).fill(stored)
    assert torch.equal(target, stored[[2, 3, 6, 7, 11, 12, 13]])


@pytest.mark.parametrize(
    ("family", "settings", "told"),
    [
        ("qwen3_5", {"tensor_parallel": 4}, "does not divide the 2 key heads of the delta rule"),
        ("qwen3_5", {"pipeline_parallel": 2}, "take tensor_parallel, which splits each layer"),
        ("lfm2", {"pipeline_parallel": 2}, "whose layers keep a state"),
        ("lfm2", {"tensor_parallel": 3}, "does not divide the 4 attention heads"),
        ("granite4-h", {"tensor_parallel": 2}, "runs on one rank as yet"),
    ],
)
def test_what_cannot_be_split_is_refused(
    checkpoint: Checkpoint, family: str, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        LLMEngine(model=str(checkpoint(family)), device="cpu", num_blocks=16, **settings)
    assert caught.value.param in {*settings, "tensor_parallel"}
