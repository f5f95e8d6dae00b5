"""Which hybrids have an adapter, and what it says of a checkpoint that does not fit."""

import json
import shutil
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from solutions.state_cache import StatePool
from tests.models.plain_ops import PlainOps, PlainOpsWithGemm
from tests.models.test_adapters import TOLERANCE, overwriting, random_sequences, reference_logits
from tests.models.tiny import AMPLIFIED, STATEFUL, VOCAB, write_model
from yaie.backends.states.naive import NaiveStateOps
from yaie.core.config import EngineConfig
from yaie.core.contracts.states import StateBatch, StepStates
from yaie.core.errors import ModelError
from yaie.models import ModelAdapter, ModelLoader
from yaie.models.generic import GenericAdapter
from yaie.models.hybrid import HybridAdapter
from yaie.models.naive_kv import ContiguousKV
from yaie.worker.states import AttendWithStates

Checkpoint = Callable[[str], Path]


def load(folder: Path, ops: PlainOps | None = None) -> ModelAdapter:
    config = EngineConfig(model=str(folder), device="cpu")
    return ModelLoader(config, progress=False).load(ops or PlainOps()).adapter


def changed(folder: Path, to: Path, **changes: Any) -> Path:
    """A copy whose config.json says something else."""
    copy = Path(shutil.copytree(folder, to))
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | changes))
    return copy


@pytest.mark.parametrize("family", STATEFUL)
def test_layers_attend_or_keep_a_state(family: str, checkpoint: Checkpoint) -> None:
    adapter = load(checkpoint(family))
    assert isinstance(adapter, HybridAdapter)
    attends = [kind in ("full_attention", "attention") for kind in adapter.config.layer_types]
    assert len(adapter.kv_layers) == sum(attends)
    assert len(adapter.state_layers) == len(attends) - sum(attends)
    assert adapter.weight_bytes == 4 * adapter.num_parameters


@torch.inference_mode()
def logits_in_two_chunks(adapter: ModelAdapter, sequences: list[Tensor]) -> list[Tensor]:
    """The first half of every sequence, and then the rest of each, in reverse order."""
    kv, pool = ContiguousKV(), StatePool(adapter.state_layers, len(sequences), torch.device("cpu"))
    halves = [(len(sequence) + 1) // 2 for sequence in sequences]
    first = [(index, 0, half) for index, half in enumerate(halves)]
    rest = [(index, half, len(sequences[index])) for index, half in enumerate(halves)][::-1]
    results: dict[int, list[Tensor]] = {index: [] for index in range(len(sequences))}
    for spans in (first, rest):
        lens = [end - start for _, start, end in spans]
        batch = StateBatch(
            lens,
            torch.tensor([0, *accumulate(lens)], dtype=torch.int32),
            torch.tensor([index for index, _, _ in spans]),
            torch.tensor([start == 0 for _, start, _ in spans]),
        )
        attend = AttendWithStates(
            overwriting(kv.attend([(str(index), end - start) for index, start, end in spans])),
            StepStates(NaiveStateOps(), pool.layers, batch),
        )
        hidden = adapter.forward(
            torch.cat([sequences[index][start:end] for index, start, end in spans]),
            torch.cat([torch.arange(start, end) for _, start, end in spans]),
            attend,
        )
        for (index, _, _), part in zip(spans, adapter.logits(hidden).split(lens), strict=True):
            results[index].append(part)
    return [torch.cat(parts) for parts in results.values()]


@pytest.mark.parametrize("family", STATEFUL)
@pytest.mark.parametrize("most", [0, 1000], ids=["apart", "fused"])
def test_logits_are_those_of_transformers(family: str, most: int, checkpoint: Checkpoint) -> None:
    """And products that take norms, gates and residuals along are asked, where all is plain."""
    folder, ops = checkpoint(family), PlainOpsWithGemm()
    ops.fused.most = most
    adapter, sequences = load(folder, ops), random_sequences((2, 17, 60, 33))
    wanted = reference_logits(folder, sequences)
    for got, want in zip(logits_in_two_chunks(adapter, sequences), wanted, strict=True):
        assert got.dtype == torch.float32
        assert (got - want).abs().max() <= AMPLIFIED.get(family, TOLERANCE)
    is_scaled = family.startswith("granite4")
    layers = len(adapter.kv_layers) + len(adapter.state_layers)
    assert ops.fused.calls == (0 if most == 0 or is_scaled else 4 * layers * 2)


@pytest.mark.parametrize(
    ("family", "changes", "told"),
    [
        ("lfm2", {"conv_L_cache": 4}, "conv_L_cache gives 4, and the weights have 3"),
        ("lfm2", {"num_attention_heads": 8, "head_dim": 16}, "num_attention_heads times head_dim"),
        ("qwen3_5", {"hidden_size": 32}, "hidden_size gives 32"),
        ("qwen3_5", {"linear_num_value_heads": 8}, "linear_num_value_heads gives 8"),
        ("qwen3_5", {"num_attention_heads": 8}, "head_dim times 2 gives 512"),
        ("granite4-h", {"mamba_d_state": 32}, "the mamba_ sizes gives"),
        (
            "granite4-h",
            {"shared_intermediate_size": 64},
            "twice shared_intermediate_size gives 128",
        ),
    ],
    ids=str,
)
def test_sizes_that_the_weights_do_not_have_are_told(
    family: str, changes: dict[str, Any], told: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = changed(checkpoint(family), tmp_path / "changed", **changes)
    with pytest.raises(ModelError, match=told):
        load(folder)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("granite4-h", {"num_local_experts": 4}),
        ("granite4-h", {"time_step_limit": [0.001, 0.1]}),
        ("granite4-h", {"layer_types": ["mamba"] * 4}),
        ("lfm2", {"conv_L_cache": 1}),
        ("qwen3_5", {"hidden_act": "gelu"}),
    ],
    ids=str,
)
def test_what_an_adapter_does_not_compute_is_refused_by_its_layers(
    family: str, changes: dict[str, Any], checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = changed(checkpoint(family), tmp_path / "changed", **changes)
    with pytest.raises(
        ModelError, match=r"(Mamba-2|gated DeltaNet|short convolutions), which keep"
    ):
        load(folder)


def test_where_all_layers_attend_the_generic_adapter_serves(tmp_path: Path) -> None:
    from transformers import Lfm2Config

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = Lfm2Config(**sizes, num_key_value_heads=2, intermediate_size=96, vocab_size=VOCAB)
    assert isinstance(load(write_model(config, tmp_path / "lfm2")), GenericAdapter)


def test_a_head_for_drafts_in_a_checkpoint_is_passed_over(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(checkpoint("qwen3_5"), tmp_path / "mtp"))
    tensors = load_file(folder / "model.safetensors")
    tensors["mtp.fc.weight"] = torch.zeros(4, 8)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert load(folder).num_parameters == load(checkpoint("qwen3_5")).num_parameters


def test_norms_of_qwen3_5_multiply_by_one_more_than_is_stored(checkpoint: Checkpoint) -> None:
    folder = checkpoint("qwen3_5")
    stored = load_file(folder / "model.safetensors")["model.norm.weight"]
    adapter = load(folder)
    assert isinstance(adapter, HybridAdapter)
    assert torch.equal(adapter.norm, stored + 1)
