"""Quantized weights over ranks: together they compute what one does, or a product is named that they
would cut in the wrong place."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import solutions.quantization as part
from tests.models.plain_ops import PlainOps
from tests.models.sharded import on_all, shards
from tests.models.test_adapters import logits_in_two_chunks, random_sequences
from tests.models.test_formats import (
    FP8,
    GPTQ,
    INT4,
    INT8,
    by_the_package,
    in_another_order,
    in_fp8,
    write,
)
from tests.models.test_packed import PRODUCTS, as_awq, load, rounded
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, ModelError
from yaie.models import ModelLoader
from yaie.models.layout import Cut
from yaie.models.rounding import Recipe
from yaie.models.schemes.cutting import in_units
from yaie.models.shard import Shard

Checkpoint = Callable[[str], Path]
LENGTHS = (1, 17)


def by_awq(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """In groups of 8, with zeros of their own."""
    int4 = part.Int4()
    packed = int4.quantize(weight, 8, symmetric=False)
    codes, zeros = int4.unpack(packed)
    tensors = {"qweight": as_awq(codes.t()), "qzeros": as_awq(zeros), "scales": packed.scales}
    return tensors, int4.dequantize(packed)


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 8, "version": "gemm"}
GROUPS = {**INT4, "group_size": 8}
FORMATS: dict[str, tuple[dict[str, Any], Any]] = {
    "awq": (AWQ, by_awq),
    "int4": by_the_package("pack-quantized", {**GROUPS, "symmetric": False}),
    "int8 in words": by_the_package("pack-quantized", {**INT8, "symmetric": False}),
    "int8": by_the_package("int-quantized", INT8),
    "fp8": by_the_package("float-quantized", FP8),
    "fp8 with one scale": by_the_package("float-quantized", {**FP8, "strategy": "tensor"}),
    "fp8 in blocks": (
        {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [8, 8]},
        in_fp8(8, 8),
    ),
}


def sharded(folder: Path, shard: Shard) -> Any:
    """A rank's adapter, once it is known that the model can be split so."""
    config = EngineConfig(model=str(folder), device="cpu", dtype="float32",
                          tensor_parallel=shard.size)  # fmt: skip
    loader = ModelLoader(config, progress=False)
    loader.check_ranks(config)
    return loader.load_adapter(PlainOps(), products=lambda: PRODUCTS, shard=shard)[0]


def expect_one_ranks_logits(folder: Path) -> None:
    sequences = random_sequences(LENGTHS)
    whole = load(folder)
    expected = torch.cat(logits_in_two_chunks(whole.adapter, sequences))

    def rank(shard: Shard) -> tuple[Tensor, int, int]:
        adapter = sharded(folder, shard)
        found = torch.cat(logits_in_two_chunks(adapter, sequences))
        return found, adapter.weight_bytes, adapter.num_parameters

    ranks = on_all([partial(rank, shard) for shard in shards(2, 1)])
    for found, weight_bytes, parameters in ranks:
        torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-4)
        assert torch.equal(found, ranks[0][0])
        assert weight_bytes < 0.7 * whole.weight_bytes
        assert parameters == whole.num_parameters


@pytest.mark.parametrize("bits", [4, 8])
def test_two_ranks_compute_what_one_does_on_codes_of_our_own(
    checkpoint: Checkpoint, tmp_path: Path, bits: int
) -> None:
    family = "llama-biases" if bits == 4 else "qwen3"
    rounded(checkpoint(family), tmp_path / "q", Recipe(bits, 8, gptq=False))
    expect_one_ranks_logits(tmp_path / "q")


@pytest.mark.parametrize("form", FORMATS)
def test_two_ranks_compute_what_one_does_in_every_format(
    checkpoint: Checkpoint, tmp_path: Path, form: str
) -> None:
    write(checkpoint("llama"), tmp_path / "q", *FORMATS[form])
    expect_one_ranks_logits(tmp_path / "q")


@pytest.mark.parametrize(
    ("told", "writer", "size", "why"),
    [
        (*by_the_package("pack-quantized", INT4), 2,
         r"2 gives each rank 56 inputs, .* of 16 that share a scale, in mlp\.down_proj .* one of 1$"),
        (AWQ, by_awq, 4, r"4 gives each rank 28 outputs, .* of 8 .* in mlp\.gate_proj .* one of 1, 2$"),
        (GPTQ, in_another_order, 2, r"2 would cut inputs .* \(desc_act.* in self_attn\.o_proj"),
        (*by_the_package("int-quantized", INT8), 3, "3 does not divide the 4 attention heads"),
    ],
)  # fmt: skip
def test_a_cut_inside_a_group_is_refused_by_the_name_of_the_product(
    checkpoint: Checkpoint, tmp_path: Path, told: Any, writer: Any, size: int, why: str
) -> None:
    write(checkpoint("llama"), tmp_path / "q", told, writer)
    config = EngineConfig(model=str(tmp_path / "q"), device="cpu", tensor_parallel=size)
    with pytest.raises(ConfigError, match=why) as refused:
        ModelLoader(config, progress=False).check_ranks(config)
    assert refused.value.param == "tensor_parallel"


def test_a_cut_is_counted_in_units_of_an_axis() -> None:
    assert in_units(None, 8) is None
    runs = range(16, 32), range(48, 64)
    assert in_units(Cut(64, runs), 8) == Cut(8, (range(2, 4), range(6, 8)))
    assert in_units(Cut(20, (range(16, 20),)), 8) == Cut(3, (range(2, 3),))
    for run in (range(4, 16), range(8, 20)):
        with pytest.raises(ModelError, match="inside a group of 8"):
            in_units(Cut(64, (run,)), 8)
