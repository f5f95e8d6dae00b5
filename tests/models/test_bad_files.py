"""A model's folder whose files are wrong: one sentence that names the file, and the field."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.plain_ops import PlainOps
from tests.models.test_loader import change_json, load, shard
from tests.models.tiny import FAMILIES, HAND_WRITTEN, VOCAB
from yaie.core.config import EngineConfig
from yaie.core.errors import ModelError, YaieError
from yaie.models import ModelLoader
from yaie.models.hub import find_model

Checkpoint = Callable[[str], Path]

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
FILES = ("config.json", "generation_config.json", "tokenizer_config.json")
INDEX = "model.safetensors.index.json"
DEEP = "[" * 900 + "]" * 900
BAD = (
    "-1", "0", "1", "7", "1000000000", "9223372036854775808", "1" + "0" * 400, "9" * 5000, "true",
    "false", "1.5", "1e999", "-1e999", "NaN", '"x"', '""', "[]", "[1]", "[[1]]", "null", "{}",
    '{"a": [{}]}', '"\\ud800"', DEEP,
)  # fmt: skip
FIELDS = {
    "config.json": (
        "sliding_window", "rope_scaling", "layer_types", "quantization_config", "text_config",
        "auto_map", "torch_dtype", "use_sliding_window",
    ),
    "generation_config.json": ("pad_token_id", "temperature", "top_k", "do_sample"),
    "tokenizer_config.json": (
        "added_tokens_decoder", "additional_special_tokens", "model_max_length", "padding_side",
        "extra_special_tokens", "fast_tokenizer_files", "model_input_names", "pad_token", "auto_map",
    ),
}  # fmt: skip
"""Beside those that the tiny models' files have."""


@pytest.fixture
def llama(checkpoint: Checkpoint, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(checkpoint("llama"), tmp_path / "my-llama")


def cases(family: str) -> Iterator[tuple[str, str, str]]:
    """(file, field, value as JSON)"""
    config = FAMILIES[family]().to_dict()
    tokens = ("tokenizer_class", "bos_token", "eos_token", "chat_template")
    known = {
        "config.json": (*config, "architectures", "model_type"),
        "generation_config.json": ("bos_token_id", "eos_token_id"),
        "tokenizer_config.json": tokens,
    }
    for file in FILES:
        for field in dict.fromkeys((*known[file], *FIELDS[file])):
            yield from ((file, field, value) for value in BAD)


def refused(folder: Path, file: str, field: str, value: str) -> str | None:
    """What is said of a folder with this value; None if it loads. Fails on any other exception."""
    path = folder / file
    before = path.read_text()
    fields = {name: json.dumps(given) for name, given in json.loads(before).items()}
    told = ", ".join(f'"{name}": {given}' for name, given in (fields | {field: value}).items())
    path.write_text(f"{{{told}}}")
    try:
        load(folder)
    except YaieError as error:
        return error.message
    finally:
        path.write_text(before)
    return None


def check_told(said: str | None, file: str, field: str, value: str) -> None:
    """It names this field, or the other one that does not go with it, and a file."""
    if said is None:
        return
    case = (file, field, value[:30], said)
    said.encode()
    others = ("vocab_size", "eos_token", "num_", "do not fit the model that config.json describes")
    assert any(name in said for name in (*FILES, "tokenizer.json")), case
    assert any(name in said for name in (field, *others)), case
    assert len(said) < 1000, case


def test_any_value_in_any_field_loads_or_is_told(llama: Path) -> None:
    """One case in 15, others of each field's values; nightly takes all of them."""
    for number, (file, field, value) in enumerate(cases("llama")):
        if number % 15 == number // len(BAD) % 15:
            check_told(refused(llama, file, field, value), file, field, value)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2", "phi3"])
def test_every_value_in_every_field_loads_or_is_told(
    family: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoint(family), tmp_path / family)
    for file, field, value in cases(family):
        said = refused(folder, file, field, value)
        if family in HAND_WRITTEN:  # of others, transformers' own code says what it fails on
            check_told(said, file, field, value)


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("value", ["384", "-1", "true", "1.5", "[1, 384]", "[[1]]", '"1"'])
def test_an_end_token_that_the_model_cannot_draw(llama: Path, file: str, value: str) -> None:
    said = refused(llama, file, "eos_token_id", value)
    assert said is not None
    assert file in said
    assert "eos_token_id" in said


@pytest.mark.parametrize("field", ["bos_token_id", "pad_token_id"])
def test_other_special_tokens_are_checked_and_may_be_none(llama: Path, field: str) -> None:
    wanted = f"null or a token id from 0 to {VOCAB - 1}"
    assert wanted in str(refused(llama, "generation_config.json", field, str(VOCAB)))
    assert wanted in str(refused(llama, "generation_config.json", field, "false"))
    for value in ("-1", "null", "0"):
        assert refused(llama, "generation_config.json", field, value) is None


def test_an_end_token_that_the_tokenizer_had_to_add(llama: Path) -> None:
    said = refused(llama, "tokenizer_config.json", "eos_token", '"<|over|>"')
    assert said is not None
    assert 'tokenizer_config.json: eos_token is "<|over|>"' in said
    assert "384" in said


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vocab_size", 1 << 23),
        ("hidden_size", 1 << 23),
        ("intermediate_size", 1 << 23),
        ("num_hidden_layers", 9999),
        ("num_attention_heads", 1 << 16),
        ("num_key_value_heads", 1 << 16),
        ("head_dim", 1 << 16),
    ],
)
def test_sizes_beyond_the_weights_are_told_before_memory_is_taken(
    llama: Path, field: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "empty", lambda *_, **__: pytest.fail("memory was asked for"))
    said = refused(llama, "config.json", field, str(value))
    assert said is not None
    assert "config.json" in said
    assert field in said


def test_a_context_without_end(llama: Path) -> None:
    change_json(llama / "config.json", max_position_embeddings=1 << 30)
    with pytest.raises(ModelError, match=r"config.json: max_position_embeddings.*--max-model-len"):
        load(llama)
    assert load(llama, max_model_len=64).max_length == 64


@pytest.mark.parametrize("file", [*FILES, "special_tokens_map.json", "added_tokens.json"])
@pytest.mark.parametrize(
    "content", [b"{", b"[1]", b'"x"', b"\xff\xfe{\x00}\x00", DEEP.encode(), POINTER, b""]
)
def test_a_file_that_is_no_json_object(llama: Path, file: str, content: bytes) -> None:
    (llama / file).write_bytes(content)
    with pytest.raises(ModelError) as caught:
        load(llama)
    assert file in caught.value.message


@pytest.mark.parametrize(
    "value", ["1", "null", "[]", "{}", '{"x": 1}', '{"x": ""}', DEEP, '{"x": "\\u0000"}']
)
def test_an_index_that_names_no_files(llama: Path, value: str) -> None:
    shard(llama)
    (llama / INDEX).write_text(f'{{"weight_map": {value}}}')
    with pytest.raises(ModelError, match=rf"{INDEX}: .?weight_map"):
        load(llama)


def test_a_stale_index_beside_the_whole_file(llama: Path) -> None:
    """As transformers: what is whole is taken."""
    (llama / INDEX).write_text('{"weight_map": {"x": "model-00001-of-00009.safetensors"}}')
    assert load(llama).num_parameters > 0


def test_a_tensor_in_two_shards(llama: Path) -> None:
    shard(llama)
    first, second = sorted(llama.glob("*.safetensors"))
    save_file({**load_file(second), "model.norm.weight": torch.ones(64)}, second)
    save_file({**load_file(first), "model.norm.weight": torch.zeros(64)}, first)
    with pytest.raises(ModelError, match=rf"model.norm.weight is in two shards, {first.name} and"):
        load(llama)


@pytest.mark.parametrize("family", ["llama", "qwen2", "phi3"])
def test_a_kind_of_rope_that_is_not_known(
    family: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoint(family), tmp_path / family)
    rope = {"rope_type": "mrope", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    change_json(folder / "config.json", rope_parameters=rope)
    with pytest.raises(ModelError, match="mrope") as caught:
        load(folder)
    assert "config.json" in caught.value.message


def test_an_activation_that_is_not_known(checkpoint: Checkpoint, tmp_path: Path) -> None:
    for family, field in (("gpt2", "activation_function"), ("phi3", "hidden_act")):
        folder = shutil.copytree(checkpoint(family), tmp_path / family)
        change_json(folder / "config.json", **{field: "swishy"})
        with pytest.raises(ModelError, match=rf'config.json.*{field}.*"swishy"'):
            load(folder)


def test_pointers_of_git_lfs_are_told(llama: Path) -> None:
    for name in ("model.safetensors", "tokenizer.json"):
        whole = (llama / name).read_bytes()
        (llama / name).write_bytes(POINTER)
        with pytest.raises(ModelError, match=rf"{name} is a Git LFS pointer.*git lfs pull"):
            load(llama)
        (llama / name).write_bytes(whole)
    (llama / "pytorch_model.bin").write_bytes(POINTER)  # which nothing reads
    load(llama)
    with pytest.raises(ModelError, match="is a Git LFS pointer"):
        find_model(str(llama / "pytorch_model.bin"), None)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["model-q4.gguf"], "model-q4.gguf is called .gguf and is none"),
        (["MODEL.GGUF", "README.md"], "MODEL.GGUF is called .gguf and is none"),
        (["a.gguf", "b.gguf"], "has 2 GGUF models: name one"),
        (["adapter_config.json", "adapter_model.safetensors"], "is a LoRA adapter, not a model"),
        (["adapter_config.json", "adapter_model.bin"], "is a LoRA adapter, not a model"),
        (["pytorch_model.bin"], "only as pickle"),
        (["model.onnx"], "only as ONNX"),
        (["model_index.json"], "is a pipeline of diffusers"),
        ([], "has no config.json"),
    ],
)
@pytest.mark.parametrize("has_config", [False, True])
def test_what_a_folder_is_instead_of_a_model(
    llama: Path, names: list[str], told: str, has_config: bool
) -> None:
    (llama / "model.safetensors").unlink()
    if not has_config:
        (llama / "config.json").unlink()
    for name in names:
        (llama / name).write_bytes(b"")
    if has_config and told.startswith(("has no", "is a pipeline")):
        told = "has no weights"
    with pytest.raises(ModelError, match=told):
        load(llama)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("model.gguf", b"GGUF\x03", "is not a whole GGUF file"),
        ("model.q4", b"GGUF\x03", "is not a whole GGUF file"),
        ("model.gguf", POINTER, "is a Git LFS pointer"),
        ("pytorch_model.bin", b"x", "is a pickle, and loading a pickle runs"),
        ("adapter_model.safetensors", b"x", "is of a LoRA adapter"),
        ("adapter_config.json", b"{}", "is of a LoRA adapter"),
        ("model.safetensors", b"x", "is a file. Give the folder"),
        ("model.safetensors", POINTER, "is a Git LFS pointer"),
    ],
)
def test_a_file_in_the_place_of_a_folder(
    tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=told):
        find_model(str(tmp_path / name), None)


def test_the_folder_inside_that_is_the_model(llama: Path) -> None:
    with pytest.raises(ModelError, match="Its folder my-llama has one"):
        load(llama.parent)


@pytest.mark.parametrize("name", ["~nobody-of-this-name", "x" * 5000, "a\0b"])
def test_names_that_no_folder_can_have(name: str) -> None:
    with pytest.raises(ModelError, match="no hub id either"):
        find_model(name, None)


@pytest.mark.parametrize(
    "told",
    [
        {"quant_method": "gptq", "bits": True, "group_size": 16},
        {"quant_method": "fp8", "weight_block_size": 1},
        {"quant_method": "fp8", "weight_block_size": [1, "x"]},
        {"quant_method": "fp8", "weight_block_size": [0, -1]},
        {"quant_method": "compressed-tensors", "config_groups": [1]},
        {"quant_method": "compressed-tensors", "config_groups": {"a": 1}, "format": []},
        {
            "quant_method": "compressed-tensors",
            "format": "int-quantized",
            "config_groups": {"a": 1},
        },
        {"quant_method": ["gptq"]},
    ],
)
def test_a_quantization_that_nobody_writes(llama: Path, told: dict[str, Any]) -> None:
    change_json(llama / "config.json", quantization_config=told)
    with pytest.raises(ModelError) as caught:
        ModelLoader(EngineConfig(model=str(llama), device="cpu"), False).load(PlainOps())
    assert "config.json" in caught.value.message
    assert "quantization_config" in caught.value.message
