"""A GGUF is served like any model: the same tokens as transformers', in every type of tensors."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type

from tests.marks import nightly_but
from tests.models.gguf.tiny_ggufs import Quantized, all_as, random_blocks, write_gguf
from tests.models.test_adapters import load
from tests.models.tiny import write_model
from yaie import LLMEngine, SamplingParams
from yaie.cli.quantize import quantize
from yaie.core.errors import ModelError
from yaie.models.gguf.stored import TensorList
from yaie.models.lookalikes import GGUF_LIST
from yaie.models.weights import checkpoint_files, read_stored, total_bytes

Checkpoint = Callable[[str], Path]
TYPES: dict[str, Quantized] = {
    **{
        kind.name: all_as(kind)
        for kind in (Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1)
    },
    **{kind.name: random_blocks(kind) for kind in (Type.Q4_K, Type.Q5_K, Type.Q6_K)},
}
PROMPTS = [[5, 6, 7, 8], list(range(20, 61)), list(range(100, 117))]


WIDE: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "gemma3": (
        "Gemma3TextConfig", {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 24}
    ),
    "granite": ("GraniteConfig", {"residual_multiplier": 0.5, "attention_multiplier": 0.2}),
    "olmo2": ("Olmo2Config", {}),
}  # fmt: skip


def wide_model(family: str, folder: Path) -> Path:
    """Rows of 256 and 512 numbers, which are whole blocks of every type."""
    import transformers

    name, more = WIDE[family]
    config = getattr(transformers, name)(
        hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=2, vocab_size=384, max_position_embeddings=1024, bos_token_id=0,
        eos_token_id=1, pad_token_id=None, tie_word_embeddings=False, **more,
    )  # fmt: skip
    return write_model(config, folder)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wide_model("llama", tmp_path_factory.mktemp("wide"))


@torch.inference_mode()
def greedy_by_transformers(path: Path, prompts: list[list[int]], length: int) -> list[list[int]]:
    """By transformers' own loading of the file, in float32."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    loaded = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
    missing = model.load_state_dict(loaded["tensors"], strict=False).missing_keys
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    found = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        for _ in range(length):
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
        found.append(ids[0, len(prompt) :].tolist())
    return found


@pytest.mark.parametrize("kind", nightly_but(("Q4_1", "Q4_K"), tuple(TYPES)))
def test_greedy_tokens_are_transformers(kind: str, wide: Path, tmp_path: Path) -> None:
    path = write_gguf(wide, tmp_path / "tiny.gguf", TYPES[kind])
    engine = LLMEngine(model=str(path), device="cpu", dtype="float32", num_blocks=64)
    params = SamplingParams(temperature=0, max_tokens=17, ignore_eos=True)
    requests = [engine.add_request(prompt, params)[0] for prompt in PROMPTS]
    while engine.has_work:
        engine.step()
    expected = greedy_by_transformers(path, PROMPTS, 17)
    assert [request.output_token_ids for request in requests] == expected


@pytest.mark.parametrize("family", nightly_but(("llama", "gemma3"), tuple(WIDE)))
def test_layers_stay_as_small_as_in_the_file(family: str, tmp_path: Path) -> None:
    """Types may differ within a product, and one that is not multiplied packed is unpacked."""
    mixed = {"attn_v": TYPES["Q6_K"], "ffn_down": TYPES["Q6_K"], "attn_k": TYPES["Q5_K"]}

    def as_q4_k_m(name: str, numbers: np.ndarray) -> tuple[np.ndarray, Type | None]:
        part = name.split(".")[-2]
        if part in ("token_embd", "output"):
            return numbers, None
        return mixed.get(part, TYPES["Q4_K"])(name, numbers)

    path = write_gguf(wide_model(family, tmp_path / "wide"), tmp_path / "tiny.gguf", as_q4_k_m)
    sizes = {}
    for backend in ("cpu", "torch"):
        engine = LLMEngine(
            model=str(path), device="cpu", dtype="float32", num_blocks=64, backend=backend
        )
        [text] = engine.generate([PROMPTS[1]], SamplingParams(temperature=0, max_tokens=17))
        sizes[backend] = engine.info.weight_bytes, text
    assert sizes["cpu"][1] == sizes["torch"][1]
    tables = 2 * 384 * 256 * 4
    assert sizes["cpu"][0] - tables < 0.25 * (sizes["torch"][0] - tables)


def test_the_second_start_reads_what_the_first_wrote(llama_gguf: Path, cache: Path) -> None:
    first = load(llama_gguf)
    before = {path: path.stat().st_mtime_ns for path in first.folder.iterdir()}
    second = load(llama_gguf)
    assert second.folder == first.folder
    assert {path: path.stat().st_mtime_ns for path in first.folder.iterdir()} == before
    assert [path.name for path in cache.iterdir()] == [first.folder.name]


def test_a_file_that_changed_is_read_again(llama_gguf: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    shutil.copyfile(llama_gguf, path)
    first = load(path).folder
    path.touch()
    assert load(path).folder != first
    path.unlink()
    with pytest.raises(ModelError, match=r"x\.gguf is gone"):
        total_bytes(checkpoint_files(first))


def test_a_folder_with_one_gguf_is_a_model(llama_gguf: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    shutil.copyfile(llama_gguf, folder / "llama.gguf")
    (folder / "mmproj-llama.gguf").write_bytes(b"GGUF")
    assert load(folder).name == "my-model"
    (folder / "config.json").write_text("{}")
    assert load(folder).architecture == "LlamaForCausalLM"
    shutil.copyfile(llama_gguf, folder / "other.gguf")
    with pytest.raises(ModelError, match=r"has 2 GGUF models: name one.*llama\.gguf, other\.gguf"):
        load(folder)


def test_what_numbers_are_kept_in(wide: Path, tmp_path: Path) -> None:
    for kind, dtype in (("F16", "float16"), ("BF16", "bfloat16"), ("Q4_0", "bfloat16")):
        folder = load(write_gguf(wide, tmp_path / f"{kind}.gguf", TYPES[kind])).folder
        assert json.loads((folder / "config.json").read_text())["dtype"] == dtype


def test_where_nothing_can_be_written(
    llama_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("YAIE_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"cannot write .*Set YAIE_CACHE"):
        load(llama_gguf)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"general.architecture": "bloom"}, "of the architecture bloom, which is not read"),
        ({"general.architecture": "clip"}, "holds what encodes images"),
        ({"llama.expert_count": 8}, "is a Mixtral"),
        ({"llama.block_count": 0}, "llama.block_count is 0"),
        ({"llama.context_length": None}, "llama.context_length is None"),
        ({"llama.attention.head_count_kv": [2, 2]}, "is a number for each layer"),
        ({"llama.rope.scaling.type": "su"}, "rope.scaling.type is 'su'"),
        ({"llama.rope.dimension_count": 8, "llama.attention.key_length": 16}, "is no whole head"),
        ({"llama.block_count": 1}, "9 tensors that a llama does not have"),
        ({"tokenizer.ggml.tokens": None}, "holds no tokenizer"),
        ({"tokenizer.ggml.model": "bert"}, "of the kind 'bert'"),
        ({"tokenizer.ggml.pre": "chatglm-bpe"}, "cuts its texts in the way 'chatglm-bpe'"),
        ({"tokenizer.ggml.pre": None}, "cuts its texts in the way 'default'"),
        ({"tokenizer.ggml.merges": ["a zzz"]}, "the tokenizer in .* cannot be made"),
    ],
)
def test_what_is_not_read_is_one_sentence(
    checkpoint: Checkpoint, tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    path = write_gguf(checkpoint("llama"), tmp_path / "x.gguf", metadata=changed)
    with pytest.raises(ModelError, match=told) as caught:
        load(path)
    assert str(path) in caught.value.message


def test_the_list_of_tensors_is_read_as_it_was_written(llama_gguf: Path) -> None:
    folder = load(llama_gguf).folder
    listed = TensorList.read(folder / GGUF_LIST)
    listed.write(folder / "again.json")
    assert TensorList.read(folder / "again.json") == listed


def test_rows_and_columns_of_a_tensor_are_read_alone(wide: Path, tmp_path: Path) -> None:
    folder = load(write_gguf(wide, tmp_path / "tiny.gguf", TYPES["Q8_0"])).folder
    read: list[int] = []
    for name, tensor in read_stored(checkpoint_files(folder), read.append):
        whole = tensor[(slice(None),) * len(tensor.shape)]
        assert whole.shape == tensor.shape
        read.clear()
        index = (slice(5, 19), slice(3, 77))[: len(tensor.shape)]
        assert torch.equal(tensor[index], whole[index]), name
        if len(tensor.shape) == 2:
            assert sum(read) == 14 * tensor.shape[1] // 32 * 34


def test_it_is_not_rounded_again(llama_gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a GGUF, which is served as it is"):
        quantize(tmp_path / "q", str(llama_gguf))
    assert not (tmp_path / "q").exists()
