"""Models that take images or sound beside text: their text halves give transformers' logits on text."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.marks import nightly_but
from tests.models.halves import BY_HAND, HALVES, tiny_half, whole_model
from tests.models.plain_ops import PlainOps
from tests.models.test_adapters import LENGTHS, TOLERANCE, logits_in_two_chunks, random_sequences
from yaie.core.config import EngineConfig
from yaie.core.errors import ModelError
from yaie.models import LoadedModel, ModelLoader
from yaie.models.generic import GenericAdapter
from yaie.models.weights import StoredTensor

Half = Callable[[str], Path]
OFTEN = ("qwen3-vl", "gemma4-shared", "qwen3-vl-moe", "ministral3")
"""By hand, twice; a part of a model; a model of its own."""
of_every_family = pytest.mark.parametrize("family", nightly_but(OFTEN, HALVES))


@pytest.fixture(scope="session")
def half(tmp_path_factory: pytest.TempPathFactory) -> Half:
    """The folder of a family's tiny checkpoint. Read only: copy it to change it."""
    root = tmp_path_factory.mktemp("halves")

    def make(family: str) -> Path:
        folder = root / family
        return folder if folder.exists() else tiny_half(family, folder)

    return make


def load(folder: Path, *, force_generic: bool = False, **settings: Any) -> LoadedModel:
    config = EngineConfig(model=str(folder), device="cpu", **settings)
    loader = ModelLoader(config, progress=False, force_generic=force_generic)
    return loader.load(PlainOps())


def expect_same(loaded: LoadedModel, folder: Path) -> None:
    model, sequences = whole_model(folder), random_sequences(LENGTHS)
    with torch.inference_mode():
        expected = [model(input_ids=one[None], use_cache=False).logits[0] for one in sequences]
    got = logits_in_two_chunks(loaded.adapter, sequences)
    for ours, right in zip(got, expected, strict=True):
        assert (ours - right).abs().max() <= TOLERANCE


@of_every_family
def test_a_text_half_gives_the_logits_of_the_whole_model(family: str, half: Half) -> None:
    loaded = load(half(family))
    assert isinstance(loaded.adapter, GenericAdapter) == (family not in BY_HAND)
    assert "images" in loaded.left_out
    assert loaded.num_parameters == sum(
        one.numel() for name, one in language_part(family, half).items()
    )
    expect_same(loaded, half(family))


def language_part(family: str, half: Half) -> dict[str, torch.Tensor]:
    """The parameters that are held: transformers' model without its other parts."""
    model = whole_model(half(family))
    parts = [model.get_decoder(), model.get_output_embeddings()]
    held = {id(one): one for part in parts for one in part.parameters()}
    return {str(at): one for at, one in enumerate(held.values())}


@pytest.mark.parametrize("family", nightly_but(["qwen3-vl"], sorted(BY_HAND)))
def test_the_generic_adapter_gives_them_too(family: str, half: Half) -> None:
    loaded = load(half(family), force_generic=True)
    assert isinstance(loaded.adapter, GenericAdapter)
    expect_same(loaded, half(family))


@pytest.fixture
def names_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of the tensors whose memory is asked for, as each is: by an engine on several ranks."""
    names: list[str] = []
    take = StoredTensor.__getitem__

    def record(self: StoredTensor, index: tuple[slice, ...]) -> torch.Tensor:
        names.append(self._whole.args[0])
        return take(self, index)

    monkeypatch.setattr(StoredTensor, "__getitem__", record)
    return names


def test_tensors_of_the_tower_are_not_read_on_ranks(half: Half, names_read: list[str]) -> None:
    from yaie.models.whole import Whole

    config = EngineConfig(model=str(half("qwen3-vl")), device="cpu")
    ModelLoader(config, progress=False).load_adapter(PlainOps(), shard=Whole())
    assert names_read
    assert not any("visual" in name for name in names_read)


@pytest.mark.parametrize(
    ("family", "now", "once"),
    [
        ("qwen2.5-vl", "model.language_model.", "model."),
        ("qwen3-vl", "model.language_model.", "model.language_model."),
        ("llava", "model.language_model.", "language_model.model."),
        ("gemma3-image", "model.language_model.", "language_model.model."),
    ],
)
@pytest.mark.nightly
def test_tensors_have_the_names_of_any_year(
    family: str, now: str, once: str, half: Half, tmp_path: Path
) -> None:
    folder = shutil.copytree(half(family), tmp_path / "renamed")
    weights = load_file(folder / "model.safetensors")

    def renamed(name: str, new: str) -> str:
        for prefix in ("model.language_model.", "language_model.model.", "model."):
            if name.startswith((f"{prefix}layers.", f"{prefix}embed_tokens.", f"{prefix}norm.")):
                return new + name.removeprefix(prefix)
        return name

    for new in (now, once):
        changed = {renamed(name, new): tensor for name, tensor in weights.items()}
        assert len(changed) == len(weights)
        save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
        got = logits_in_two_chunks(load(folder).adapter, random_sequences((20,)))
        (right,) = logits_in_two_chunks(load(half(family)).adapter, random_sequences((20,)))
        assert torch.equal(got[0], right)


def test_a_language_tensor_that_is_missing_is_named(half: Half, tmp_path: Path) -> None:
    folder = shutil.copytree(half("qwen3-vl"), tmp_path / "q")
    weights = load_file(folder / "model.safetensors")
    (lost,) = (name for name in weights if name.endswith("layers.1.self_attn.q_proj.weight"))
    del weights[lost]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 missing \(layers.1.self_attn.q_proj.weight\)"):
        load(folder)


def test_a_head_beside_a_tied_table_is_compared_by_its_stored_name(
    half: Half, tmp_path: Path
) -> None:
    """As `tying` does for models of text: it is not tied if it differs."""
    folder = shutil.copytree(half("qwen3-vl"), tmp_path / "q")
    weights = load_file(folder / "model.safetensors")
    (table,) = (name for name in weights if name.endswith("embed_tokens.weight"))
    weights["lm_head.weight"] = weights[table].flip(0).contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    loaded = load(folder)
    tied = load(half("qwen3-vl"))
    assert loaded.num_parameters == tied.num_parameters + weights[table].numel()


def test_a_model_of_chunks_is_served_within_the_first(half: Half, tmp_path: Path) -> None:
    folder = shutil.copytree(half("llama4"), tmp_path / "l4")
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["attention_chunk_size"] = 128
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"first 128 tokens.*--max-model-len\) to 128"):
        load(folder)
    assert load(folder, max_model_len=128).max_length == 128


def test_a_template_of_the_processor_is_the_tokenizers(half: Half, tmp_path: Path) -> None:
    folder = shutil.copytree(half("qwen3-vl"), tmp_path / "q")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    template = config.pop("chat_template")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    assert not load(folder).tokenizer.has_chat_template
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    assert load(folder).tokenizer.chat_template == template
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": 5}))
    with pytest.raises(ModelError, match=r"chat_template.json: chat_template is 5"):
        load(folder)


@pytest.mark.nightly
@pytest.mark.parametrize("decoder", ["gemma", "gemma2"])
def test_a_prompt_that_sees_its_end_is_refused(decoder: str, tmp_path: Path) -> None:
    """PaliGemma, first and second: a prompt's tokens see each other both ways."""
    from transformers import AutoModelForMultimodalLM, PaliGemmaConfig

    from tests.models.halves import _TEXT, _TOWER
    from tests.models.tiny import VOCAB, tiny_tokenizer

    config = PaliGemmaConfig(
        text_config={**_TEXT, "model_type": decoder},
        vision_config={**_TOWER, "model_type": "siglip_vision_model", "projection_dim": 64},
        image_token_index=VOCAB,
    )
    AutoModelForMultimodalLM.from_config(config).save_pretrained(tmp_path)
    tiny_tokenizer(tmp_path)
    with pytest.raises(ModelError, match="its attention is not causal"):
        load(tmp_path)
