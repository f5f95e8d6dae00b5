"""A GGUF has the logits of the checkpoint that it was converted from, in every family that is read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.models.gguf.tiny_ggufs import write_gguf
from tests.models.test_adapters import assert_same_logits, load
from tests.models.tiny import _LLAMA, FAMILIES, _of, write_model
from yaie.models.generic import GenericAdapter
from yaie.models.gguf.families import FAMILIES as READ

_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
MADE: dict[str, Callable[[], Any]] = {
    **{
        name: FAMILIES[name]
        for name in (
            "llama", "llama-tied", "llama-biases", "llama3-rope", "llama-linear", "llama-yarn",
            "mistral-full", "qwen3", "gpt2", "gemma2", "phi3", "phi3-longrope", "olmo2", "stablelm",
            "granite", "gpt_oss-20b", "gpt_oss-120b",
        )
    },
    "qwen2": _of("Qwen2Config", _LLAMA),
    "gemma": _of("GemmaConfig", _LLAMA, head_dim=32),
    "gemma3": _of(
        "Gemma3TextConfig", _LLAMA, num_hidden_layers=7, head_dim=32, sliding_window=24,
        query_pre_attn_scalar=32,
    ),
    "smollm3": _of("SmolLM3Config", _LLAMA, num_hidden_layers=4, no_rope_layer_interval=4),
    "starcoder2": _of("Starcoder2Config", _LLAMA),
    "qwen3moe": _of("Qwen3MoeConfig", _LLAMA, _MOE, head_dim=32, norm_topk_prob=True),
}  # fmt: skip
BY_HAND = (
    "llama", "mistral", "qwen2", "qwen3", "gpt2", "gemma2", "gemma3_text", "olmo2", "granite",
    "gpt_oss",
)  # fmt: skip


@pytest.mark.parametrize("family", MADE)
def test_logits_are_those_of_the_original(family: str, tmp_path: Path) -> None:
    config = MADE[family]()
    if family == "gemma2":  # a file does not say it
        config.query_pre_attn_scalar = config.head_dim
    original = write_model(config, tmp_path / "original")
    model = load(write_gguf(original, tmp_path / "tiny.gguf"))
    assert_same_logits(model.adapter, original)
    is_generic = isinstance(model.adapter, GenericAdapter)
    assert is_generic == (config.model_type not in BY_HAND)


def test_every_family_that_is_read_is_tried() -> None:
    called = {MADE[family]().model_type for family in MADE} - {"mistral"}
    assert called == {family.model_type for family in READ.values()}
