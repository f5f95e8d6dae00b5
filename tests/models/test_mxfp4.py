"""gpt-oss as it is published: experts in MXFP4."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from tests.models.test_adapters import load, logits_in_two_chunks, random_sequences
from tests.models.tiny import tiny_model
from yaie.core.errors import ModelError
from yaie.models.mxfp4 import dense, multiplied_out

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
    right = tiny_model("gpt_oss_even", root / "right")
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


@pytest.mark.nightly
def test_its_greedy_tokens_are_those_of_transformers(folders: tuple[Path, Path]) -> None:
    from tests.engine.exact import outputs, run
    from tests.engine.oracle import greedy, make_prompts
    from yaie import LLMEngine

    prompts = make_prompts(24, vocab=256)
    expected, margins = greedy(folders[1], prompts, 17)
    engine = LLMEngine(model=str(folders[0]), device="cpu", num_blocks=256)
    for ours, wanted, margin in zip(outputs(run(engine, prompts)), expected, margins, strict=True):
        assert ours == wanted or margin < 1e-4


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
