"""Checkpoints whose weights are packed: rounded here, written, and served again."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import solutions.quantization as part
from tests.marks import nightly_but
from tests.models.plain_ops import PlainOps
from tests.models.test_adapters import logits_in_two_chunks, random_sequences
from yaie.core.config import EngineConfig
from yaie.core.errors import ModelError
from yaie.core.gemm import PackedGemm
from yaie.models import LoadedModel, ModelLoader
from yaie.models.packed_checkpoint import write_checkpoint
from yaie.models.rounding import Recipe, round_model, windows

Checkpoint = Callable[[str], Path]
PRODUCTS = PackedGemm(part.Int8().product, part.Int4().product)
LENGTHS = (1, 17, 40)
OFTEN = ("llama", "llama-biases", "mistral", "qwen2", "qwen3", "gemma3", "granite4-rope")


def load(folder: Path) -> LoadedModel:
    config = EngineConfig(model=str(folder), device="cpu")
    return ModelLoader(config, progress=False).load(PlainOps(), products=lambda: PRODUCTS)


def model_of(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def calibration() -> Tensor:
    return torch.stack(random_sequences((48,) * 9))


def rounded(source: Path, target: Path, recipe: Recipe) -> Any:
    """Written to `target`; transformers' model with the numbers that the codes stand for."""
    model = model_of(source)
    packed = round_model(model, part, recipe, calibration() if recipe.gptq else None)
    write_checkpoint(source, target, packed, recipe)
    for name, parameter in model.named_parameters():  # the rest is written in float16
        if not any(name == f"{product}.weight" for product in packed):
            parameter.data = parameter.data.half().float()
    return model


@pytest.mark.parametrize(("bits", "symmetric"), [(4, True), (4, False), (8, True)])
@pytest.mark.parametrize("family", nightly_but(OFTEN, [*OFTEN, "gemma2", "olmo3", "granite"]))
def test_a_written_checkpoint_gives_the_logits_of_its_codes(
    checkpoint: Checkpoint, tmp_path: Path, family: str, bits: int, symmetric: bool
) -> None:
    recipe = Recipe(bits, 16, gptq=bits == 4, symmetric=symmetric)
    model = rounded(checkpoint(family), tmp_path / "q", recipe)
    loaded = load(tmp_path / "q")
    sequences = random_sequences(LENGTHS)
    with torch.inference_mode():
        expected = [model(one[None], use_cache=False).logits[0] for one in sequences]
    for got, right in zip(logits_in_two_chunks(loaded.adapter, sequences), expected, strict=True):
        assert torch.allclose(got, right, atol=2e-3), (got - right).abs().max()


def test_it_counts_the_models_parameters_and_the_bytes_that_are_there(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    rounded(checkpoint("llama"), tmp_path / "q", Recipe(4, 16, gptq=False))
    original, packed = load(checkpoint("llama")), load(tmp_path / "q")
    assert packed.num_parameters == original.num_parameters
    inner = sum(p.numel() for p in model_of(checkpoint("llama")).model.layers.parameters())
    saved = original.weight_bytes - packed.weight_bytes
    assert 0.75 * 4 * inner < saved < 0.875 * 4 * inner


def test_zeros_of_the_second_format_are_stored_as_they_are(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = tmp_path / "q"
    rounded(checkpoint("llama"), folder, Recipe(4, 16, gptq=False))
    sequences = random_sequences((20,))
    first = logits_in_two_chunks(load(folder).adapter, sequences)[0]
    weights = load_file(folder / "model.safetensors")
    for name in weights:
        if name.endswith("qzeros"):
            assert (weights[name] == 0x77777777).all()
            weights[name] = torch.full_like(weights[name], 0x88888888 - 2**32)
    save_file(weights, folder / "model.safetensors")
    change(folder, checkpoint_format="gptq_v2")
    assert torch.equal(logits_in_two_chunks(load(folder).adapter, sequences)[0], first)


def change(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] |= fields
    path.write_text(json.dumps(config))


AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def as_awq(codes: Tensor) -> Tensor:
    """[rows, out] as AWQ's packer does it: [rows, out / 8] int32."""
    packed = torch.zeros(len(codes), codes.shape[1] // 8, dtype=torch.int64)
    for column in range(packed.shape[1]):
        for place, output in enumerate(AWQ_ORDER):
            packed[:, column] |= codes[:, 8 * column + output].long() << (4 * place)
    return torch.where(packed >= 2**31, packed - 2**32, packed).int()


def as_compressed(codes: Tensor) -> Tensor:
    """[out, in] as compressed-tensors packs them: [out, in / 8] int32."""
    packed = torch.zeros(len(codes), codes.shape[1] // 8, dtype=torch.int64)
    for place in range(8):
        packed |= codes[:, place::8].long() << (4 * place)
    return torch.where(packed >= 2**31, packed - 2**32, packed).int()


COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "input_activations": None,
            "weights": {
                "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
                "group_size": 16, "actorder": None,
            },
        }
    },
}  # fmt: skip


@pytest.mark.parametrize("method", ["awq", "compressed-tensors"])
def test_other_formats_give_the_logits_of_their_codes(
    checkpoint: Checkpoint, tmp_path: Path, method: str
) -> None:
    folder, int4 = tmp_path / "q", part.Int4()
    model = rounded(checkpoint("llama"), folder, Recipe(4, 16, gptq=False))
    weights = load_file(folder / "model.safetensors")
    for name, module in model.named_modules():
        if f"{name}.qweight" not in weights:
            continue
        for suffix in ("qweight", "qzeros", "scales", "g_idx"):
            del weights[f"{name}.{suffix}"]
        symmetric = method != "awq"
        packed = int4.quantize(module.weight, 16, symmetric=symmetric)
        module.weight.data = int4.dequantize(packed)
        codes, zeros = int4.unpack(packed)
        if symmetric:
            weights[f"{name}.weight_packed"] = as_compressed(codes)
            weights[f"{name}.weight_scale"] = packed.scales.t().contiguous()
            weights[f"{name}.weight_shape"] = torch.tensor(module.weight.shape)
        else:
            weights[f"{name}.qweight"] = as_awq(codes.t())
            weights[f"{name}.qzeros"] = as_awq(zeros)
            weights[f"{name}.scales"] = packed.scales
    save_file(weights, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    awq = {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm"}
    config["quantization_config"] = awq if method == "awq" else COMPRESSED
    (folder / "config.json").write_text(json.dumps(config))
    sequences = random_sequences(LENGTHS)
    with torch.inference_mode():
        expected = [model(one[None], use_cache=False).logits[0] for one in sequences]
    got = logits_in_two_chunks(load(folder).adapter, sequences)
    for ours, right in zip(got, expected, strict=True):
        assert torch.allclose(ours, right, atol=2e-3), (ours - right).abs().max()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"quant_method": "bitsandbytes"}, r"quantized \(bitsandbytes\), which is not supported"),
        ({"quant_method": "awq", "version": "gemv"}, "whose version 'gemv' is not supported"),
        ({"quant_method": "awq", "modules_to_not_convert": "q_proj"}, "quantization_config"),
        ({"quant_method": "compressed-tensors"}, "whose format None"),
        ({"bits": 3}, "in 3 bits"),
        ({"group_size": 12}, "in groups of 12"),
        ({"bits": 8}, "in 8 bits and in groups"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "nvfp4"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "whose fmt 'e5m2'"),
        ({"dynamic": {"+:.*": {"bits": 8}}}, "'dynamic'"),
        ({"checkpoint_format": "marlin"}, "'marlin'"),
    ],
)
def test_what_is_not_read_is_named(
    checkpoint: Checkpoint, tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    rounded(checkpoint("llama"), tmp_path / "q", Recipe(4, 16, gptq=False))
    change(tmp_path / "q", **fields)
    with pytest.raises(ModelError, match=reason):
        load(tmp_path / "q")


def test_a_checkpoint_without_packed_tensors_is_refused(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoint("gpt2"), tmp_path / "gpt2")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"quantized \(gptq\), and none of its tensors"):
        load(folder)
    with pytest.raises(ModelError, match="is not quantized: its layers"):
        round_model(model_of(checkpoint("gpt2")), part, Recipe(8), None)


def test_gptq_comes_nearer_to_the_model_than_the_nearest_codes(
    checkpoint: Checkpoint,
) -> None:
    original, lost = model_of(checkpoint("llama")), []
    tokens = calibration()[:4]
    with torch.inference_mode():
        right = original(tokens).logits
        for gptq in (True, False):
            model = model_of(checkpoint("llama"))
            round_model(model, part, Recipe(4, 16, gptq), calibration() if gptq else None)
            lost.append(float((model(tokens).logits - right).square().mean()))
    assert lost[0] < 0.9 * lost[1], lost


def test_calibration_text_is_cut_into_windows() -> None:
    def tokenizer(text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [ord(letter) for letter in text]}

    assert windows(tokenizer, ["abc", "defg"], 3, 9).tolist() == [[97, 98, 99], [100, 101, 102]]
    assert windows(tokenizer, ["abcdefg"], 3, 1).tolist() == [[97, 98, 99]]
    with pytest.raises(ModelError, match="has 2 tokens; one window has 3"):
        windows(tokenizer, ["ab"], 3, 1)
