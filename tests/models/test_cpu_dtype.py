"""The dtype that `auto` computes in on a CPU, by size, storage and instructions."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.plain_ops import PlainOps
from yaie.core.config import EngineConfig
from yaie.models import LoadedModel, ModelLoader, loader

Checkpoint = Callable[[str], Path]


def load(folder: Path, **settings: Any) -> LoadedModel:
    config = EngineConfig(model=str(folder), device="cpu", **settings)
    return ModelLoader(config, progress=False).load(PlainOps())


def store_as(folder: Path, dtype: str) -> None:
    """What config.json says."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"dtype": dtype}))


@pytest.fixture
def bfloat16(checkpoint: Checkpoint, tmp_path: Path) -> Path:
    """A checkpoint that is stored in bfloat16."""
    folder = shutil.copytree(checkpoint("llama"), tmp_path / "my-llama")
    weights = load_file(folder / "model.safetensors")
    save_file({k: v.bfloat16() for k, v in weights.items()}, folder / "model.safetensors")
    store_as(folder, "bfloat16")
    return folder


@pytest.mark.parametrize("multiplies", [True, False])
def test_a_small_checkpoint_in_bfloat16_is_served_in_float32_on_any_cpu(
    multiplies: bool, bfloat16: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "multiplies_bfloat16", lambda: multiplies)
    model = load(bfloat16)
    assert (model.dtype, model.dtype_note) == (torch.float32, "")
    assert model.adapter.logits(torch.ones(1, 64)).dtype == torch.float32


@pytest.mark.parametrize(
    ("weights", "multiplies", "stored", "dtypes", "expected"),
    [
        (0, True, "bfloat16", None, torch.bfloat16),
        (1, True, "bfloat16", None, torch.float32),
        (0, False, "bfloat16", None, torch.float32),
        (0, True, "float32", None, torch.float32),
        (0, True, "bfloat16", (torch.float32,), torch.float32),
    ],
)
def test_a_large_one_is_computed_as_it_is_stored_where_that_has_instructions(
    weights: int,
    multiplies: bool,
    stored: str,
    dtypes: tuple[torch.dtype, ...] | None,
    expected: torch.dtype,
    bfloat16: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """weights: how many are missing from a large one."""
    size = (bfloat16 / "model.safetensors").stat().st_size // 2
    monkeypatch.setattr(loader, "FEWEST_IN_BFLOAT16", size + weights)
    monkeypatch.setattr(loader, "multiplies_bfloat16", lambda: multiplies)
    store_as(bfloat16, stored)
    found = ModelLoader(EngineConfig(model=str(bfloat16), device="cpu"))
    if dtypes is None:
        assert found.dtype == expected  # before anything is loaded
    model = found.load(PlainOps(), dtypes)
    assert model.dtype == model.adapter.dtype == expected
    assert ("--dtype float32" in model.dtype_note) is (expected == torch.bfloat16)


def test_a_dtype_that_is_named_is_not_chosen(
    bfloat16: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "FEWEST_IN_BFLOAT16", 1)
    monkeypatch.setattr(loader, "multiplies_bfloat16", lambda: True)
    for name in ("float32", "bfloat16"):
        model = load(bfloat16, dtype=name)
        assert (model.dtype, model.dtype_note) == (getattr(torch, name), "")


def test_weights_that_are_not_there_yet_count_once_they_are(
    bfloat16: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "FEWEST_IN_BFLOAT16", 1)
    monkeypatch.setattr(loader, "multiplies_bfloat16", lambda: True)
    weights = bfloat16 / "model.safetensors"
    weights.rename(bfloat16 / "later")
    found = ModelLoader(EngineConfig(model=str(bfloat16), device="cpu"))
    assert found.dtype == torch.float32
    (bfloat16 / "later").rename(weights)
    assert found.load(PlainOps()).dtype == torch.bfloat16
