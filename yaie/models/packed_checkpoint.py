"""Writes a model whose layers were rounded, as vLLM, SGLang, transformers and YAIE read it: in GPTQ's
format, and where groups have zeros, which not all kernels for that one know, in compressed-tensors'."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from yaie.core.quantized import Int4Weight, Int8Weight
from yaie.models.packing import WHOLE
from yaie.models.rounding import Packed, Recipe
from yaie.models.weights import SINGLE_FILE, checkpoint_files, read_tensors
from yaie.system.files import write_whole

COPIED = (".json", ".txt", ".model", ".jinja")
LEFT_OUT = ("config.json", "model.safetensors.index.json")


def write_checkpoint(
    source: Path, target: Path, packed: Mapping[str, Packed], recipe: Recipe
) -> int:
    """The model in `source`, with `packed` weights in the place of its own, as `target`; returns the
    bytes of its weights. Other weights become float16, which some kernels for this format insist on."""
    from safetensors.torch import save_file

    target.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    for name, tensor in read_tensors(checkpoint_files(source), lambda _: None):
        product = name.removesuffix(".weight")
        if product in packed and name != product:
            stored = words(packed[product], recipe.symmetric)
            tensors |= {f"{product}.{key}": value for key, value in stored.items()}
        else:
            tensors[name] = tensor.half() if tensor.is_floating_point() else tensor
    config: dict[str, Any] = json.loads((source / "config.json").read_text("utf-8"))
    config.pop("torch_dtype", None)
    config |= {"dtype": "float16", "quantization_config": quantization_config(recipe)}
    write_whole(target / "config.json", json.dumps(config, indent=2) + "\n")
    save_file(tensors, target / SINGLE_FILE, metadata={"format": "pt"})
    # safetensors writes for its user's eyes alone; a model is often served by another one.
    shutil.copymode(target / "config.json", target / SINGLE_FILE)
    for path in source.iterdir():
        if path.is_file() and path.suffix in COPIED and path.name not in LEFT_OUT:
            shutil.copyfile(path, target / path.name)
    return sum(tensor.nbytes for tensor in tensors.values())


def quantization_config(recipe: Recipe) -> dict[str, Any]:
    """As the tools of the format write it to config.json."""
    if recipe.bits == 8 or recipe.symmetric:
        return {
            "quant_method": "gptq",
            "bits": recipe.bits,
            "group_size": recipe.group_size if recipe.bits == 4 else WHOLE,
            "sym": True,
            "desc_act": False,
            "lm_head": False,
            "checkpoint_format": "gptq",
            "pack_dtype": "int32",
        }
    weights = {
        "num_bits": recipe.bits,
        "type": "int",
        "symmetric": False,
        "strategy": "group",
        "group_size": recipe.group_size,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


def words(weight: Packed, symmetric: bool = True) -> dict[str, Tensor]:
    """The tensors of one product, by the ends of their names. symmetric: of four bits, whether all zeros
    are in the middle."""
    if isinstance(weight, Int8Weight):
        return _words_of_bytes(weight)
    assert isinstance(weight, Int4Weight)
    if not symmetric:
        return {
            "weight_packed": weight.qweight.t().contiguous(),
            "weight_scale": weight.scales.t().contiguous(),
            "weight_zero_point": weight.qzeros.t().contiguous(),
            "weight_shape": torch.tensor([weight.out_features, weight.in_features]),
        }
    # A zero of 8 in each, which is a 7 as it is stored: GPTQ's format has them less 1.
    qzeros = torch.full_like(weight.qzeros, 0x77777777)
    groups = torch.arange(weight.in_features, dtype=torch.int32) // weight.group_size
    return {
        "qweight": weight.qweight.contiguous(),
        "qzeros": qzeros,
        "scales": weight.scales.contiguous(),
        "g_idx": groups.int(),
    }


def _words_of_bytes(weight: Int8Weight) -> dict[str, Tensor]:
    outputs, inputs = weight.codes.shape
    codes = (weight.codes.short() + 128).to(torch.uint8)
    quads = codes.view(outputs, inputs // 4, 4).transpose(0, 1).contiguous()
    return {
        "qweight": quads.view(torch.int32).squeeze(-1).contiguous(),
        "qzeros": torch.full((1, outputs // 4), 0x7F7F7F7F, dtype=torch.int32),
        "scales": weight.scales[None].contiguous(),
        "g_idx": torch.zeros(inputs, dtype=torch.int32),
    }
