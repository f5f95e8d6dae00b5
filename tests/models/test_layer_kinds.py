"""What is refused for its layers, and how that is said."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from yaie.core.config import EngineConfig
from yaie.core.errors import ModelError
from yaie.models import ModelLoader
from yaie.models.layer_kinds import unheld_layers

Checkpoint = Callable[[str], Path]
STATE = "which keep a state beside keys and values; a paged cache cannot hold it"
LINEAR, FULL = "linear_attention", "full_attention"


def told(model_type: str, kinds: list[str] | None, wanted: int | None = None, **more: Any) -> str:
    config = SimpleNamespace(model_type=model_type, layer_types=kinds, **more)
    return unheld_layers(config, wanted)


@pytest.mark.parametrize(
    ("model_type", "kinds", "reason"),
    [
        ("granitemoehybrid", [LINEAR] * 3 + [FULL], f"layers 1-3 are Mamba-2, {STATE}"),
        (
            "qwen3_5_moe_text",
            [LINEAR, LINEAR, LINEAR, FULL] * 4,
            f"12 of its 16 layers (1-3, 5-7, 9-11, ...) are gated DeltaNet, {STATE}",
        ),
        ("mamba", [LINEAR] * 4, f"its layers are Mamba, {STATE}"),
        ("jamba", [FULL, LINEAR], f"1 of its 2 layers (2) are Mamba, {STATE}"),
        ("rwkv", None, f"its layers are RWKV, {STATE}"),
        ("lfm2", ["conv", "conv", FULL], f"layers 1-2 are short convolutions, {STATE}"),
        ("falcon_h1", ["hybrid"] * 2, f"its layers have Mamba-2 beside attention, {STATE}"),
        ("new", [LINEAR], f"its layers are linear attention, {STATE}"),
        ("newer", ["spiral"], "its layers are of the kind spiral"),
        ("minimax_m2", None, ""),
        ("granitemoehybrid", [FULL] * 4, ""),
        ("gemma3_text", ["sliding_attention", FULL], ""),
    ],
)
def test_layers_are_named_with_what_they_keep(
    model_type: str, kinds: list[str] | None, reason: str
) -> None:
    said = told(model_type, kinds)
    assert said.startswith(reason)
    assert bool(said) == bool(reason)


@pytest.mark.parametrize(("wanted", "is_served"), [(None, False), (64, True), (65, False)])
def test_an_indexer_of_blocks_that_leaves_none_out_is_no_matter(
    wanted: int | None, is_served: bool
) -> None:
    sizes = {"index_topk_blocks": 4, "index_block_size": 16, "max_position_embeddings": 1024}
    said = told("minimax_m3_vl_text", ["minimax_m3_sparse"], wanted, **sizes)
    assert bool(said) != is_served
    assert is_served or "--max-model-len) to 64" in said


def test_an_indexer_is_refused() -> None:
    assert "by an indexer" in told("deepseek_v32", ["indexed_attention"] * 2, 16, index_topk=2048)


def test_what_has_a_place_for_states_serves_what_the_generic_adapter_refuses(
    checkpoint: Checkpoint,
) -> None:
    config = EngineConfig(model=str(checkpoint("lfm2")), device="cpu")
    assert ModelLoader(config, progress=False).keeps_states
    with pytest.raises(ModelError, match=r"layers \(1-2, 4\) are short convolutions, which keep"):
        ModelLoader(config, progress=False, force_generic=True)


def test_an_attention_of_its_own_is_named(checkpoint: Checkpoint) -> None:
    with pytest.raises(
        ModelError, match=r"its attention \(BloomAttention\) is computed in its own"
    ):
        ModelLoader(EngineConfig(model=str(checkpoint("bloom")), device="cpu"), progress=False)
