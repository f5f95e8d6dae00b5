"""gpt-oss as it is published: experts in MXFP4, kept in their blocks or multiplied out."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from tests.engine.exact import (
    Case,
    assert_alone_and_preempted,
    assert_empty,
    case_of,
    outputs,
    run,
)
from tests.engine.on_gpu import expect_twice_on_gpu
from tests.models.plain_ops import PlainOps
from tests.models.test_adapters import load, logits_in_two_chunks, random_sequences
from tests.models.tiny import tiny_model
from yaie import LLMEngine
from yaie.backends.cpu import build
from yaie.backends.cpu.blocks import CpuBlockGemm
from yaie.backends.cpu.library import library
from yaie.core.config import EngineConfig
from yaie.core.errors import ModelError
from yaie.models import ModelAdapter, ModelLoader
from yaie.models.gguf.blocks import dequantized
from yaie.models.gpt_oss import GptOssAdapter
from yaie.models.mxfp4 import GGML, BlockExperts, dense, multiplied_out, put_in_halves

TOLD = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}


def random_pair(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Blocks and scales of a weight [..., out, in]."""
    generator = torch.Generator().manual_seed(seed)
    *before, outputs, inputs = shape
    blocks = torch.randint(0, 256, (*before, outputs, inputs // 32, 16), generator=generator)
    scales = torch.randint(119, 125, (*before, outputs, inputs // 32), generator=generator)
    return blocks.to(torch.uint8), scales.to(torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_blocks_stand_for_what_transformers_makes_of_them(dtype: torch.dtype) -> None:
    for shape in ((3, 40, 96), (1, 8, 32), (2, 7, 64)):
        blocks, scales = random_pair(*shape)
        right = convert_moe_packed_tensors(blocks, scales, dtype=dtype)
        assert torch.equal(dense(blocks, scales, dtype), right)


def test_every_code_and_the_ends_of_the_scale() -> None:
    blocks = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    scales = torch.tensor([1, 2, 60, 126, 127, 128, 200, 250] * 2, dtype=torch.uint8).view(1, 1, 16)
    right = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
    assert torch.equal(dense(blocks, scales, torch.bfloat16), right)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(as published, with the weights that it stands for)."""
    root = tmp_path_factory.mktemp("mxfp4")
    right = tiny_model("gpt_oss-20b", root / "right")
    packed = shutil.copytree(right, root / "packed")
    weights = load_file(right / "model.safetensors")
    stored: dict[str, Tensor] = {}
    for seed, (name, weight) in enumerate(weights.items()):
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inputs, outputs = weight.shape
            blocks, scales = random_pair(experts, outputs, inputs, seed=seed)
            stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            weights[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
            weights[name] = weights[name].contiguous()
        else:
            stored[name] = weight
    save_file(stored, packed / "model.safetensors", metadata={"format": "pt"})
    save_file(weights, right / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((packed / "config.json").read_text()) | {"quantization_config": TOLD}
    (packed / "config.json").write_text(json.dumps(config))
    return packed, right


def test_a_published_checkpoint_is_the_model_of_its_numbers(folders: tuple[Path, Path]) -> None:
    packed, right = (load(folder) for folder in folders)
    assert packed.num_parameters == right.num_parameters
    sequences = random_sequences((1, 17, 40))
    pairs = zip(
        logits_in_two_chunks(packed.adapter, sequences),
        logits_in_two_chunks(right.adapter, sequences),
        strict=True,
    )
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


@pytest.fixture(scope="module")
def case(folders: tuple[Path, Path]) -> Case:
    """The published checkpoint, and the tokens of the weights that transformers unpacks it to."""
    right = case_of(folders[1])
    return Case(folders[0], right.prompts, right.expected)


def is_in_blocks(adapter: ModelAdapter) -> bool:
    assert isinstance(adapter, GptOssAdapter)
    products = [one for layer in adapter.layers for one in (layer.gate_up, layer.down)]
    (kind,) = {type(one) for one in products}
    return kind is BlockExperts


@pytest.mark.skipif(bool(build.missing()), reason=build.missing())
def test_experts_stay_in_their_blocks_on_a_cpu(case: Case, folders: tuple[Path, Path]) -> None:
    packed, plain = case.engine(backend="cpu"), case.engine(backend="torch")
    assert is_in_blocks(packed.model.adapter)
    assert not is_in_blocks(plain.model.adapter)
    assert packed.model.num_parameters == plain.model.num_parameters
    config = json.loads((folders[0] / "config.json").read_text())
    experts = 3 * config["num_hidden_layers"] * config["num_local_experts"] * 64 * 64
    saved = plain.model.weight_bytes - packed.model.weight_bytes
    assert saved == experts * 4 - experts // 32 * 17


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_greedy_tokens_are_those_of_transformers(case: Case, backend: str) -> None:
    """Together, again with their prefixes cached, and in chunks."""
    if backend == "cpu" and build.missing():
        pytest.skip(build.missing())
    engine = case.engine(backend=backend)
    assert outputs(run(engine, case.prompts)) == case.expected
    assert outputs(run(engine, case.prompts)) == case.expected
    assert_empty(engine)
    chunks = case.engine(backend=backend, token_budget=16)
    assert outputs(run(chunks, case.prompts[:24])) == case.expected[:24]


@pytest.mark.gpu
def test_greedy_tokens_on_a_gpu_are_those_of_transformers(case: Case) -> None:
    expect_twice_on_gpu(case)


@pytest.mark.skipif(bool(build.missing()), reason=build.missing())
def test_in_bfloat16_blocks_are_as_near_as_plain_experts(folders: tuple[Path, Path]) -> None:
    def logits(folder: Path, dtype: str, gemm: Any = None) -> Tensor:
        config = EngineConfig(model=str(folder), device="cpu", dtype=dtype)
        adapter = ModelLoader(config, progress=False).load(PlainOps(), blocks=gemm).adapter
        assert is_in_blocks(adapter) == (gemm is not None)
        return torch.cat(logits_in_two_chunks(adapter, random_sequences((17, 40))))

    exact = logits(folders[1], "float32")
    plain = logits(folders[1], "bfloat16")
    packed = logits(folders[0], "bfloat16", lambda: CpuBlockGemm(library()))
    assert (packed - exact).norm() <= 1.2 * (plain - exact).norm()


def test_plain_experts_are_taken_whatever_the_configuration_says(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    """As after a fine-tuning whose configuration was copied from the published one."""
    folder = shutil.copytree(folders[1], tmp_path / "tuned")
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": TOLD}
    (folder / "config.json").write_text(json.dumps(config))
    engine = LLMEngine(model=str(folder), device="cpu", num_blocks=16)
    assert not is_in_blocks(engine.model.adapter)


@pytest.mark.skipif(bool(build.missing()), reason=build.missing())
def test_greedy_tokens_alone_and_after_preemption(case: Case) -> None:
    assert_alone_and_preempted(case)


def test_blocks_in_the_order_of_a_gguf_are_the_same_numbers() -> None:
    """By the reader of GGUFs, whose oracle is their package."""
    codes, scales = random_pair(3, 8, 96)
    wanted = dense(codes, scales, torch.float32)
    put_in_halves(codes)
    blocks = torch.cat([scales[..., None], codes], dim=-1)
    numbers = dequantized(blocks.flatten(2).flatten(0, 1), GGML)
    assert torch.equal(numbers.view(3, 8, 96).mT, wanted)


def test_a_checkpoint_without_a_scale_is_told(folders: tuple[Path, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders[0], tmp_path / "cut")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.experts.down_proj_scales"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"down_proj_scales is not|missing .*down_proj_scales"):
        LLMEngine(model=str(folder), device="cpu", num_blocks=16)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hidden_act": "swiglu_oai"}, "the activation .*swiglu_oai.*, which this installation"),
        ({"quantization_config": {"quant_method": "quark"}}, r"quantized \(quark\), which is not"),
        ({"quantization_config": {"quant_method": "mxfp8"}}, r"quantized \(mxfp8\), which is not"),
    ],
)
def test_what_is_not_read_is_told(
    folders: tuple[Path, Path], tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    folder = shutil.copytree(folders[1], tmp_path / "other")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(ModelError, match=told):
        load(folder)


def test_a_half_of_a_pair_is_named() -> None:
    blocks, scales = random_pair(2, 8, 32)
    with pytest.raises(ModelError, match="x_blocks is there and x_scales is not"):
        list(multiplied_out([("x_blocks", blocks), ("y", scales)], torch.float32))
    with pytest.raises(ModelError, match="x_scales is there and x_blocks is not"):
        list(multiplied_out([("x_scales", scales)], torch.float32))


def test_a_pair_of_other_shapes_is_named() -> None:
    blocks, scales = random_pair(2, 8, 64)
    with pytest.raises(ModelError, match="do not belong together"):
        list(multiplied_out([("x_blocks", blocks), ("x_scales", scales[:1])], torch.float32))


def test_the_order_of_a_pair_does_not_matter() -> None:
    blocks, scales = random_pair(2, 8, 64)
    pair = [("x_blocks", blocks), ("a", blocks), ("x_scales", scales)]
    one, other = (dict(multiplied_out(way, torch.float32)) for way in (pair, pair[::-1]))
    assert torch.equal(one["x"], other["x"])
    assert one["a"] is blocks
