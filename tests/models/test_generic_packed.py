"""Packed weights under the generic adapter: each model gives the logits of what its codes stand for."""

import json
import re
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
from tests.models.halves import HALVES, tiny_half, whole_model
from tests.models.test_adapters import logits_in_two_chunks, random_sequences
from tests.models.test_formats import (
    ACTIVATIONS,
    FP8,
    GPTQ,
    INT4,
    INT8,
    Tensors,
    Writer,
    by_the_package,
    in_another_order,
    in_fp8,
)
from tests.models.test_packed import as_awq, load, model_of
from yaie.core.errors import ModelError
from yaie.models.generic import GenericAdapter
from yaie.models.generic_packed import PackedLinear

Checkpoint = Callable[[str], Path]
PRODUCT = re.compile(r"layers\..*_proj\.weight$")


def write(
    source: Path, target: Path, told: dict[str, Any], writer: Writer, which: Any = PRODUCT
) -> tuple[Path, Path]:
    """(the model in `source` with the products packed whose names match `which`, the same with the
    weights that these stand for)."""
    weights = load_file(source / "model.safetensors")
    packed: Tensors = {}
    for name, weight in list(weights.items()):
        if which.search(name) and weight.dim() == 2:
            tensors, right = writer(weight)
            product = name.removesuffix(".weight")
            packed |= {f"{product}.{suffix}": one.contiguous() for suffix, one in tensors.items()}
            weights[name] = right.contiguous()
        else:
            packed[name] = weight
    folders = target / "packed", target / "right"
    for folder, values in zip(folders, (packed, weights), strict=True):
        shutil.copytree(source, folder)
        save_file(values, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text()) | {"quantization_config": told}
    (folders[0] / "config.json").write_text(json.dumps(config))
    return folders


def check(packed: Path, right: Path, *, held: bool = True) -> Any:
    """held: whether products stay packed, or some do."""
    config = json.loads((right / "config.json").read_text())
    model = whole_model(right) if "vision_config" in config else model_of(right)
    loaded = load(packed)
    if isinstance(loaded.adapter, GenericAdapter):
        modules = loaded.adapter.model.body.modules()
        assert any(isinstance(one, PackedLinear) for one in modules) == held
    sequences = random_sequences((1, 17, 40))
    with torch.inference_mode():
        expected = [model(input_ids=one[None], use_cache=False).logits[0] for one in sequences]
    for ours, wanted in zip(logits_in_two_chunks(loaded.adapter, sequences), expected, strict=True):
        assert torch.allclose(ours, wanted, atol=2e-3, rtol=1e-4), (ours - wanted).abs().max()
    return loaded


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm"}
BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [48, 24]}


def in_awq(weight: Tensor) -> tuple[Tensors, Tensor]:
    int4 = part.Int4()
    packed = int4.quantize(weight, 16, symmetric=False)
    codes, zeros = int4.unpack(packed)
    tensors = {"qweight": as_awq(codes.t()), "qzeros": as_awq(zeros), "scales": packed.scales}
    return tensors, int4.dequantize(packed)


CHANNEL8 = {**FP8, "strategy": "channel"}
WRITERS: dict[str, tuple[dict[str, Any], Writer]] = {
    "gptq": (GPTQ, in_another_order),
    "awq": (AWQ, in_awq),
    "fp8-blocks": (BLOCKS, in_fp8(48, 24)),
    "fp8-channel": by_the_package("float-quantized", CHANNEL8, ACTIVATIONS),
    "fp8-tensor": by_the_package("float-quantized", {**FP8, "strategy": "tensor"}, ACTIVATIONS),
    "int4": by_the_package("pack-quantized", {**INT4, "symmetric": False}),
    "int8-words": by_the_package("pack-quantized", INT8),
    "int8": by_the_package("int-quantized", INT8, {**ACTIVATIONS, "type": "int"}),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("family", ["cohere", "gemma3"])
def test_every_format_is_read(
    checkpoint: Checkpoint, tmp_path: Path, name: str, family: str
) -> None:
    """By the generic adapter, and by one of ours with other norms than Llama has."""
    told, writer = WRITERS[name]
    loaded = check(*write(checkpoint(family), tmp_path, told, writer))
    assert loaded.num_parameters == load(checkpoint(family)).num_parameters


FAMILIES = (
    "phi3", "gemma2", "granite", "granite4", "olmo2", "olmo3", "cohere", "stablelm", "gpt_oss",
    "moe-qwen2",
)  # fmt: skip


@pytest.mark.parametrize("family", nightly_but(["phi3"], FAMILIES))
def test_other_families(checkpoint: Checkpoint, tmp_path: Path, family: str) -> None:
    told, writer = WRITERS["fp8-channel"]
    check(*write(checkpoint(family), tmp_path, told, writer))


@pytest.mark.parametrize(
    "name", nightly_but(["int4"], ["gptq", "awq", "int4", "int8", "fp8-blocks"])
)
def test_experts_are_multiplied_out(checkpoint: Checkpoint, tmp_path: Path, name: str) -> None:
    """transformers stacks them, so none of them is a module."""
    source = checkpoint("moe-qwen2")
    assert any(".experts.0.up_proj" in one for one in load_file(source / "model.safetensors"))
    told, writer = WRITERS[name]
    check(*write(source, tmp_path, told, writer))
    experts = re.compile(r"\.experts\.\d+\..*_proj\.weight$")
    check(*write(source, tmp_path / "alone", told, writer, experts), held=False)


@pytest.mark.parametrize(
    "family", nightly_but(["qwen3-vl", "qwen3-vl-moe"], [one for one in HALVES if one != "gemma3n"])
)
def test_text_halves(tmp_path: Path, family: str) -> None:
    source = tiny_half(family, tmp_path / "source")
    told, writer = by_the_package("float-quantized", CHANNEL8, ACTIVATIONS)
    told["ignore"] = ["lm_head", "re:.*vision.*", "re:.*visual.*", "re:.*audio.*"]
    inner = re.compile(r"^(?!.*(vision|visual|audio)).*layers\..*_proj\.weight$")
    check(*write(source, tmp_path, told, writer, inner))


def test_experts_of_one_tensor_are_multiplied_out(tmp_path: Path) -> None:
    """As Qwen3-VL's are published in FP8."""
    source = tiny_half("qwen3-vl-moe", tmp_path / "source")

    def stacked(weights: Tensor) -> tuple[Tensors, Tensor]:
        pairs = [in_fp8(48, 24)(one) for one in weights]
        tensors = {key: torch.stack([one[key] for one, _ in pairs]) for key in pairs[0][0]}
        return tensors, torch.stack([right for _, right in pairs])

    packed, right = write(source, tmp_path, BLOCKS, in_fp8(48, 24), re.compile(r"text.*self_attn"))
    for folder, is_packed in ((packed, True), (right, False)):
        weights = load_file(folder / "model.safetensors")
        for name in [one for one in weights if ".experts." in one]:
            tensors, dense = stacked(weights[name])
            weights[name] = tensors["weight"] if is_packed else dense
            if is_packed:
                weights[f"{name}_scale_inv"] = tensors["weight_scale_inv"]
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    check(packed, right, held=False)


def test_fp8_as_ministral_3_is_published(tmp_path: Path) -> None:
    """One scale for a product, called as the scales of blocks are, and one for what it reads."""
    source = tiny_half("ministral3", tmp_path / "source")
    told = {
        "quant_method": "fp8",
        "activation_scheme": "static",
        "weight_block_size": None,
        "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head"],
    }

    def writer(weight: Tensor) -> tuple[Tensors, Tensor]:
        tensors, right = in_fp8(10**6, 10**6)(weight)
        scale = tensors.pop("weight_scale_inv").reshape(())
        scales = {"weight_scale_inv": scale, "activation_scale": torch.tensor(0.5)}
        return tensors | scales, right

    names = re.compile(r"language_model.*layers\..*_proj\.weight$")
    check(*write(source, tmp_path, told, writer, names))


def test_gpt2_stores_its_weights_the_other_way_round(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    def turned(weight: Tensor) -> tuple[Tensors, Tensor]:
        tensors, right = in_another_order(weight.t().contiguous())
        return tensors, right.t()

    names = re.compile(r"h\.\d+\.(attn|mlp)\.c_\w+\.weight$")
    check(*write(checkpoint("gpt2"), tmp_path, GPTQ, turned, names), held=False)


LISTS: list[tuple[str, dict[str, Any], str]] = [
    ("awq", {"modules_to_not_convert": ["self_attn.o_proj"]}, "o_proj"),
    ("fp8-blocks", {"modules_to_not_convert": ["model.layers.0.self_attn.o_proj"]}, "o_proj"),
    ("fp8-channel", {"ignore": ["lm_head", "re:.*o_proj"]}, "o_proj"),
    ("gptq", {"dynamic": {r"-:.*down_proj": {}}}, "down_proj"),
    ("gptq", {"modules_in_block_to_quantize": [["self_attn.q_proj"]]}, "up_proj"),
]


@pytest.mark.parametrize(("name", "fields", "left"), LISTS)
def test_products_may_be_left_out(
    checkpoint: Checkpoint, tmp_path: Path, name: str, fields: dict[str, Any], left: str
) -> None:
    """Of a family with an adapter of ours: transformers' own serves it then."""
    told, writer = WRITERS[name]
    which = re.compile(rf"layers\.(?!.*{left}).*_proj\.weight$")
    if "layers.0" in str(fields):
        which = re.compile(rf"layers\.(?!0.*{left}).*_proj\.weight$")
    loaded = check(*write(checkpoint("llama"), tmp_path, told | fields, writer, which))
    assert isinstance(loaded.adapter, GenericAdapter)


def test_lists_of_nothing_in_a_layer_leave_our_adapter_in_its_place(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    told, writer = WRITERS["fp8-blocks"]
    told = told | {"modules_to_not_convert": ["lm_head", "model.embed_tokens", "visual"]}
    loaded = check(*write(checkpoint("llama"), tmp_path, told, writer))
    assert not isinstance(loaded.adapter, GenericAdapter)


def test_a_packed_head_is_read(checkpoint: Checkpoint, tmp_path: Path) -> None:
    which = re.compile(r"(_proj|lm_head)\.weight$")
    folders = write(
        checkpoint("llama"), tmp_path, GPTQ | {"lm_head": True}, in_another_order, which
    )
    check(*folders)


def test_what_is_missing_of_a_product_is_named(checkpoint: Checkpoint, tmp_path: Path) -> None:
    packed, _ = write(checkpoint("cohere"), tmp_path, AWQ, in_awq)
    path = packed / "model.safetensors"
    weights = load_file(path)
    lost = "model.layers.1.mlp.up_proj.scales"
    del weights[lost]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=f"1 missing .{re.escape(lost)}"):
        load(packed)


def test_codes_without_scales_are_named(checkpoint: Checkpoint, tmp_path: Path) -> None:
    packed, _ = write(checkpoint("cohere"), tmp_path, BLOCKS, in_fp8(48, 24))
    path = packed / "model.safetensors"
    weights = load_file(path)
    del weights["model.layers.1.mlp.up_proj.weight_scale_inv"]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(
        ModelError, match=r"up_proj.weight is stored as float8_e4m3fn, and the scales"
    ):
        load(packed)
