"""Checkpoints in the formats of compressed-tensors, written and read back by that package itself, and
in those of GPTQ and FP8, written here: served, each gives the logits of the weights it stands for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import load_file, save_file
from torch import Tensor

import solutions.quantization as part
from tests.models.test_adapters import logits_in_two_chunks, random_sequences
from tests.models.test_packed import as_compressed, load, model_of
from yaie.core.errors import ModelError
from yaie.models.packed_checkpoint import quantization_config, words
from yaie.models.rounding import Recipe

Checkpoint = Callable[[str], Path]
Tensors = dict[str, Tensor]
Writer = Callable[[Tensor], tuple[Tensors, Tensor]]
"""Of a weight [out, in]: its tensors, by the ends of their names, and the weight that they stand for."""

ACTIVATIONS = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}


def write(source: Path, target: Path, told: dict[str, Any], writer: Writer) -> Any:
    """The model in `source` with the products of its layers written so; transformers' model with the
    weights that these stand for."""
    model = model_of(source)
    weights = load_file(source / "model.safetensors")
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            del weights[f"{name}.weight"]
            tensors, module.weight.data = writer(module.weight.data)
            weights |= {f"{name}.{suffix}": tensor for suffix, tensor in tensors.items()}
    target.mkdir()
    for path in source.glob("*.json"):
        (target / path.name).write_bytes(path.read_bytes())
    save_file(
        {name: one.contiguous() for name, one in weights.items()}, target / "model.safetensors"
    )
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = told
    (target / "config.json").write_text(json.dumps(config))
    return model


def check(model: Any, folder: Path) -> None:
    sequences = random_sequences((1, 17, 40))
    with torch.inference_mode():
        expected = [model(one[None], use_cache=False).logits[0] for one in sequences]
    got = logits_in_two_chunks(load(folder).adapter, sequences)
    for ours, right in zip(got, expected, strict=True):
        assert torch.allclose(ours, right, atol=2e-3), (ours - right).abs().max()


def by_the_package(form: str, weights: dict[str, Any], inputs: Any = None) -> tuple[Any, Writer]:
    """What config.json says, and a writer that asks compressed-tensors."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    scheme = QuantizationScheme(**group)
    compressor = BaseCompressor.get_value_from_registry(form)
    told = {
        "quant_method": "compressed-tensors",
        "format": form,
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }

    def write_one(weight: Tensor) -> tuple[Tensors, Tensor]:
        state: Tensors = {"weight": weight}
        spread = {
            "group": lambda: weight.unflatten(1, (-1, weights["group_size"])),
            "channel": lambda: weight[:, None],
            "tensor": lambda: weight.reshape(1, 1, -1),
            "block": lambda: blocks(weight, *weights["block_structure"]),
        }[weights["strategy"]]()
        scale, zero = calculate_qparams(spread.amin(-1), spread.amax(-1), scheme.weights)
        if weights["strategy"] == "tensor":
            scale, zero = scale.reshape(1), zero.reshape(1)
        state |= {"weight_scale": scale.half().float(), "weight_zero_point": zero}
        tensors = compressor.compress(state, scheme)
        return tensors, compressor.decompress(tensors, scheme)["weight"].float()

    return told, write_one


def blocks(weight: Tensor, rows: int, columns: int) -> Tensor:
    """[out / rows, in / columns, rows * columns]"""
    pieces = weight.unflatten(1, (-1, columns)).unflatten(0, (-1, rows))
    return pieces.transpose(1, 2).flatten(2)


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 16, "symmetric": True}
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}


@pytest.mark.parametrize(
    ("form", "weights", "inputs"),
    [
        ("pack-quantized", INT4, None),
        ("pack-quantized", {**INT4, "symmetric": False}, None),
        ("pack-quantized", {**INT4, "symmetric": False, "actorder": "weight"}, None),
        ("pack-quantized", INT8, None),
        ("pack-quantized", {**INT8, "symmetric": False}, None),
        ("int-quantized", INT8, {**ACTIVATIONS, "type": "int"}),
        ("float-quantized", FP8, ACTIVATIONS),
        ("float-quantized", {**FP8, "strategy": "tensor"}, ACTIVATIONS),
        ("float-quantized", {**FP8, "strategy": "block", "block_structure": [16, 16]}, ACTIVATIONS),
    ],
    ids=lambda value: (
        "-".join(str(one) for one in value.values()) if isinstance(value, dict) else None
    ),
)
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_what_compressed_tensors_writes_is_read(
    checkpoint: Checkpoint, tmp_path: Path, family: str, form: str, weights: Any, inputs: Any
) -> None:
    told, writer = by_the_package(form, weights, inputs)
    check(write(checkpoint(family), tmp_path / "q", told, writer), tmp_path / "q")


def in_another_order(weight: Tensor) -> tuple[Tensors, Tensor]:
    """GPTQ with `desc_act`: the inputs of a group stand apart."""
    codes, scales, zeros, groups, right = mixed(weight)
    return {**words(part.Int4().pack(codes, scales, zeros)), "g_idx": groups}, right


def in_another_order_compressed(weight: Tensor) -> tuple[Tensors, Tensor]:
    """As compressed-tensors wrote it up to 2026, with actorder: group."""
    codes, scales, _, groups, right = mixed(weight)
    tensors = {"weight_packed": as_compressed(codes), "weight_scale": scales.t()}
    return {**tensors, "weight_g_idx": groups, "weight_shape": torch.tensor(weight.shape)}, right


def mixed(weight: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Codes, scales, zeros, the group of each input, and the weight [out, in] that they stand for."""
    int4, size = part.Int4(), 16
    columns = weight.shape[1]
    order = torch.randperm(columns, generator=torch.Generator().manual_seed(columns))
    packed = int4.quantize(weight[:, order], size)
    right = torch.empty_like(weight)
    right[:, order] = int4.dequantize(packed)
    codes = torch.empty_like(weight, dtype=torch.int32)
    codes[:, order] = int4.unpack(packed)[0]
    groups = torch.empty(columns, dtype=torch.int32)
    groups[order] = (torch.arange(columns) // size).int()
    return codes, packed.scales, int4.unpack(packed)[1], groups, right


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": True, "sym": True}


GROUPED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "ignore": ["lm_head"],
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {**INT4, "actorder": "group"}}},
}


@pytest.mark.parametrize("family", ["llama", "llama-biases", "qwen3"])
@pytest.mark.parametrize(
    ("told", "writer"), [(GPTQ, in_another_order), (GROUPED, in_another_order_compressed)]
)
def test_inputs_that_were_taken_in_another_order(
    checkpoint: Checkpoint, tmp_path: Path, family: str, told: dict[str, Any], writer: Writer
) -> None:
    check(write(checkpoint(family), tmp_path / "q", told, writer), tmp_path / "q")


def test_products_that_disagree_on_the_order_are_refused(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    write(checkpoint("llama"), tmp_path / "q", GPTQ, in_another_order)
    path = tmp_path / "q/model.safetensors"
    weights = load_file(path)
    name = "model.layers.0.self_attn.k_proj.g_idx"
    weights[name] = weights[name].flip(0).contiguous()
    save_file(weights, path)
    with pytest.raises(ModelError, match="differs between products that share"):
        load(tmp_path / "q")


def in_fp8(rows: int, columns: int) -> Writer:
    """Blocks of so many outputs and inputs; those at the edges are smaller."""

    def write_one(weight: Tensor) -> tuple[Tensors, Tensor]:
        codes = torch.empty_like(weight, dtype=torch.float8_e4m3fn)
        right = torch.empty_like(weight)
        scales = torch.empty(-(-len(weight) // rows), -(-weight.shape[1] // columns))
        for i in range(scales.shape[0]):
            for j in range(scales.shape[1]):
                here = (slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
                scales[i, j] = weight[here].abs().max() / 448
                codes[here] = (weight[here] / scales[i, j]).to(torch.float8_e4m3fn)
                right[here] = codes[here].float() * scales[i, j]
        return {"weight": codes, "weight_scale_inv": scales}, right

    return write_one


@pytest.mark.parametrize("family", ["llama", "llama-biases"])
def test_fp8_in_blocks_whose_last_are_cut(
    checkpoint: Checkpoint, tmp_path: Path, family: str
) -> None:
    told = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [48, 24]}
    check(write(checkpoint(family), tmp_path / "q", told, in_fp8(48, 24)), tmp_path / "q")


def test_fp8_with_one_scale_stored_without_a_dimension(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    def writer(weight: Tensor) -> tuple[Tensors, Tensor]:
        tensors, right = in_fp8(10**6, 10**6)(weight)
        scale = tensors.pop("weight_scale_inv").reshape(())
        return {**tensors, "weight_scale": scale, "input_scale": torch.tensor(0.5)}, right

    told = {"quant_method": "fp8", "activation_scheme": "static"}
    model = write(checkpoint("llama"), tmp_path / "q", told, writer)
    check(model, tmp_path / "q")
    original, loaded = load(checkpoint("llama")), load(tmp_path / "q")
    assert loaded.num_parameters == original.num_parameters
    assert loaded.weight_bytes == original.weight_bytes  # multiplied out, it takes what it took


def test_compressed_tensors_reads_the_zeros_that_are_written_here() -> None:
    int4 = part.Int4()
    weight = torch.randn(24, 64, generator=torch.Generator().manual_seed(1)) + 0.4
    packed = int4.quantize(weight, 32, symmetric=False)
    assert len(set(int4.unpack(packed)[1].flatten().tolist())) > 2  # zeros that differ
    told = quantization_config(Recipe(4, 32, symmetric=False))["config_groups"]["group_0"]
    compressor = BaseCompressor.get_value_from_registry("pack-quantized")
    read = compressor.decompress(words(packed, symmetric=False), QuantizationScheme(**told))
    assert torch.equal(read["weight"].float(), int4.dequantize(packed).half().float())
