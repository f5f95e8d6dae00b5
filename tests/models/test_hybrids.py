"""Which hybrids have an adapter, and what it says of a checkpoint that does not fit."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.plain_ops import PlainOps
from tests.models.tiny import STATEFUL
from yaie.core.config import EngineConfig
from yaie.core.errors import ModelError
from yaie.models import ModelAdapter, ModelLoader
from yaie.models.hybrid import HybridAdapter
from yaie.models.qwen3_5 import unit

Checkpoint = Callable[[str], Path]


def load(folder: Path) -> ModelAdapter:
    config = EngineConfig(model=str(folder), device="cpu")
    return ModelLoader(config, progress=False).load(PlainOps()).adapter


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


@pytest.mark.parametrize(
    ("family", "changes", "told"),
    [
        ("lfm2", {"conv_L_cache": 4}, "conv_L_cache gives 4, and the weights have 3"),
        ("lfm2", {"num_attention_heads": 8, "head_dim": 16}, "num_attention_heads times head_dim"),
        ("qwen3_5", {"hidden_size": 32}, "hidden_size gives 32"),
        ("granite4-h", {"shared_intermediate_size": 64}, "intermediate_size gives 128"),
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
        ("qwen3_5", {"hidden_act": "gelu"}),
    ],
    ids=str,
)
def test_what_an_adapter_does_not_compute_is_refused_by_its_layers(
    family: str, changes: dict[str, Any], checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = changed(checkpoint(family), tmp_path / "changed", **changes)
    with pytest.raises(ModelError, match=r"(Mamba-2|gated DeltaNet), which keep a state"):
        load(folder)


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


def test_a_vector_of_nothing_has_no_length() -> None:
    assert torch.equal(unit(torch.zeros(2, 3)), torch.zeros(2, 3))
    lengths = unit(torch.randn(5, 8, dtype=torch.bfloat16)).norm(dim=-1)
    assert torch.allclose(lengths, torch.ones(5), atol=1e-4)
