"""Qwen3.5's head for drafts: that its naive sibling reads the layout right, and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.models.qwen3_5 import modeling_qwen3_5 as published

from tests.models.own_heads import LAYER, NaiveHead, random_head, with_head
from yaie import LLMEngine, SamplingParams
from yaie.core.errors import ConfigError, ModelError

Checkpoint = Callable[[str], Path]
Head = dict[str, Tensor]


@pytest.fixture(scope="module")
def folder(checkpoint: Checkpoint) -> Path:
    return checkpoint("qwen3_5")


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def engine(folder: Path, **settings: Any) -> LLMEngine:
    settings = {"num_blocks": 20, "device": "cpu", "speculate": "mtp", **settings}
    return LLMEngine(model=str(folder), **settings)


def test_the_naive_layer_is_the_decoder_layer_of_transformers(model: Any) -> None:
    config, head = model.config, random_head(model.config)
    layer = published.Qwen3_5DecoderLayer(config, config.layer_types.index("full_attention"))
    own = {name.removeprefix(LAYER): one for name, one in head.items() if name.startswith(LAYER)}
    layer.load_state_dict(own)
    count = 23
    x, positions = torch.randn(count, config.hidden_size), torch.arange(count)
    turn = model.model.rotary_emb(x[None], positions[None])
    mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
    with torch.no_grad():
        wanted = layer(x[None], position_embeddings=turn, attention_mask=mask)[0]
    got = NaiveHead(model, head).layer(x, positions)
    assert (got - wanted).abs().max() < 1e-4


def test_the_naive_head_states_the_model_s_own_norm_rule(model: Any) -> None:
    head = random_head(model.config)
    norm = published.Qwen3_5RMSNorm(model.config.hidden_size, model.config.rms_norm_eps)
    norm.load_state_dict({"weight": head["mtp.norm.weight"]})
    x = torch.randn(5, model.config.hidden_size)
    assert (NaiveHead(model, head)._norm(x, "mtp.norm") - norm(x)).abs().max() < 1e-5


def test_a_checkpoint_without_a_head_says_so(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"has none \(its tensors would be called mtp") as caught:
        engine(folder)
    assert caught.value.param == "speculate"


def test_another_head_has_no_effect(folder: Path) -> None:
    with pytest.raises(ConfigError, match="is in its own checkpoint") as caught:
        engine(folder, draft_model="elsewhere")
    assert caught.value.param == "draft_model"


def lacks(head: Head) -> None:
    del head["mtp.norm.weight"]


def lacks_a_product(head: Head) -> None:
    del head[f"{LAYER}self_attn.o_proj.weight"]


def has_a_gate_too_few(head: Head) -> None:
    name = f"{LAYER}self_attn.q_proj.weight"
    head[name] = head[name][: len(head[name]) // 2]


def is_of_another_width(head: Head) -> None:
    head["mtp.fc.weight"] = head["mtp.fc.weight"][:, 1:]


def has_an_embedding(head: Head) -> None:
    head["mtp.embed_tokens.weight"] = torch.zeros(8, 64)


def has_two_layers(head: Head) -> None:
    more = {name.replace("layers.0", "layers.1"): one for name, one in head.items()}
    head |= {name: one.clone() for name, one in more.items()}


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lacks, r"1 missing \(mtp.norm.weight\)"),
        (lacks_a_product, r"1 missing \(mtp.layers.0.self_attn.o_proj.weight\)"),
        (has_a_gate_too_few, r"q_proj.weight has shape \[128, 64\] instead of \[256, 64\]"),
        (is_of_another_width, r"mtp.fc.weight has shape \[64, 127\] instead of \[64, 128\]"),
        (has_an_embedding, r"1 unexpected \(mtp.embed_tokens.weight\)"),
        (has_two_layers, "has 2 layers, and only one of a single layer is read"),
    ],
)
def test_a_head_that_does_not_fit_is_refused_in_words(
    folder: Path, model: Any, tmp_path: Path, spoil: Callable[[Head], None], told: str
) -> None:
    head = random_head(model.config)
    spoil(head)
    spoiled = with_head(folder, tmp_path / "spoiled", head)
    with pytest.raises(ModelError, match=told):
        engine(spoiled)
    engine(spoiled, speculate="ngram")  # where it is passed over


def test_beside_a_model_for_images_it_is_found_where_it_is_published(
    folder: Path, model: Any, tmp_path: Path
) -> None:
    """There the model's tensors are `model.language_model.<...>`, and the head's are `mtp.<...>`."""
    headed = with_head(folder, tmp_path / "headed", random_head(model.config))
    whole = Path(shutil.copytree(headed, tmp_path / "whole"))
    tensors = load_file(whole / "model.safetensors")
    begins = ("model.", "model.language_model.")
    renamed = {
        name.replace(*begins, 1) if name.startswith(begins[0]) else name: tensor
        for name, tensor in tensors.items()
    }
    save_file(renamed, whole / "model.safetensors", {"format": "pt"})
    text = json.loads((headed / "config.json").read_text())
    tower = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48}
    config = published.Qwen3_5Config(
        text_config=text,
        vision_config={**tower, "out_hidden_size": 64},
        tie_word_embeddings=model.config.tie_word_embeddings,
        architectures=["Qwen3_5ForConditionalGeneration"],
    )
    config.save_pretrained(whole)
    asked = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True)
    answers = []
    for one in (headed, whole):
        loaded = engine(one, num_drafts=3)
        answers.append(loaded.generate([[5, 6, 7, 8, 9]], asked))
        assert loaded.stats()["draft_tokens"] > 0
    assert answers[0] == answers[1]
    assert loaded.info.left_out == "images"
