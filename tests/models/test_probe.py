"""The trial run of the generic adapter: it notices what no flag says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.plain_ops import PlainOps
from yaie.core.config import EngineConfig
from yaie.core.errors import ModelError
from yaie.models import ModelLoader
from yaie.models.probe import UNKNOWN, describe_mask

Checkpoint = Callable[[str], Path]
LENGTH = 64


class Config:
    max_position_embeddings = LENGTH


def described(mask_function: Callable[..., Tensor]) -> set[float]:
    mask = describe_mask(mask_function=mask_function, config=Config(), q_length=3, kv_length=5)
    assert mask.shape == (1, 1, 3, 5)
    return set(mask.flatten().tolist())


def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return key <= query


def sliding(window: int) -> Callable[..., Tensor]:
    return lambda batch, head, query, key: (key <= query) & (key > query - window)


def test_a_causal_mask_has_no_window() -> None:
    assert described(causal) == {0.0}


@pytest.mark.parametrize("window", [1, 16, 40])
def test_a_sliding_mask_is_its_window(window: int) -> None:
    assert described(sliding(window)) == {float(window)}


def test_a_window_as_long_as_the_context_is_none() -> None:
    assert described(sliding(LENGTH)) == {0.0}


@pytest.mark.parametrize(
    "mask_function",
    [
        lambda batch, head, query, key: (key <= query) & (key // 10 == query // 10),
        lambda batch, head, query, key: key >= 0,
        lambda batch, head, query, key: (key <= query) & ((key > query - 8) | (key < 4)),
    ],
    ids=["chunked", "bidirectional", "window-with-first-tokens"],
)
def test_other_masks_are_unknown(mask_function: Callable[..., Tensor]) -> None:
    assert described(mask_function) == {UNKNOWN}


def load(folder: Path) -> Any:
    config = EngineConfig(model=str(folder), device="cpu")
    return ModelLoader(config, progress=False, force_generic=True).load(PlainOps()).adapter


def test_a_model_that_counts_positions_itself_is_refused(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    forward = LlamaRotaryEmbedding.forward

    def count(self: Any, x: Tensor, position_ids: Tensor) -> Any:
        return forward(self, x, torch.arange(x.shape[1])[None])

    monkeypatch.setattr(LlamaRotaryEmbedding, "forward", count)
    with pytest.raises(ModelError, match="depends on more than positions, keys and values"):
        load(checkpoint("llama"))


def test_a_model_that_mixes_neighbouring_tokens_is_refused(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.llama.modeling_llama import LlamaMLP

    forward = LlamaMLP.forward

    def shifted(self: Any, x: Tensor) -> Tensor:
        return forward(self, x + torch.roll(x, 1, dims=1))

    monkeypatch.setattr(LlamaMLP, "forward", shifted)
    with pytest.raises(ModelError, match="depends on more than positions, keys and values"):
        load(checkpoint("llama"))


def test_a_model_outside_of_its_adapter_does_not_run(checkpoint: Checkpoint) -> None:
    adapter = load(checkpoint("llama"))
    with pytest.raises(RuntimeError, match="outside of its forward"):
        adapter.model.body(input_ids=torch.tensor([[5, 6]]), use_cache=False)
