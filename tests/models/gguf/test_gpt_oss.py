"""gpt-oss from a GGUF: the tokens of the numbers that its blocks stand for, by transformers."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.engine.exact import (
    Case,
    assert_alone_and_preempted,
    assert_empty,
    case_of,
    outputs,
    run,
)
from tests.engine.on_gpu import expect_twice_on_gpu
from tests.marks import nightly_but
from tests.models.gguf.tiny_ggufs import CONTROL, NORMAL, write_gguf
from tests.models.sharded import load as load_part
from tests.models.sharded import on_all, shards
from tests.models.test_adapters import (
    assert_same_logits,
    load,
    logits_in_two_chunks,
    random_sequences,
)
from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.backends.cpu import build
from yaie.core.errors import ModelError
from yaie.models import ModelAdapter
from yaie.models.gguf.config import generation_values
from yaie.models.gguf.experts import FileExperts
from yaie.models.gpt_oss import GptOssAdapter
from yaie.models.schemes.blocks import BlockScheme
from yaie.models.shard import Shard

Kinds = dict[str, Type]
"""Of a layer's experts: by `gate`, `up` and `down`."""
PUBLISHED: Kinds = dict.fromkeys(("gate", "up", "down"), Type.MXFP4)
needs_cpp = pytest.mark.skipif(bool(build.missing()), reason=build.missing())


def kind_of(name: str, dims: int, experts: Kinds) -> Type | None:
    """As llama.cpp stores it: experts, other products in Q8_0, and the rest as it is. name: its own."""
    part = name.split(".")[-2]
    if part.endswith("_exps") and name.endswith(".weight"):
        return experts[part.split("_")[1]]
    is_product = dims == 2 and name.endswith(".weight") and part != "ffn_gate_inp"
    return Type.Q8_0 if is_product else None


def stored(folder: Path, path: Path, experts: Kinds) -> Path:
    """The GGUF at `path`, of the checkpoint in `folder`."""

    def quantize(name: str, numbers: np.ndarray) -> tuple[np.ndarray, Type | None]:
        kind = kind_of(name, numbers.ndim, experts)
        return numbers if kind is None else gguf.quants.quantize(numbers, kind), kind

    return write_gguf(folder, path, quantize)


def rounded(folder: Path, to: Path, experts: Kinds) -> Path:
    """A copy of the checkpoint with the numbers that such a file holds."""

    def read_back(rows: Tensor, kind: Type) -> Tensor:
        blocks = gguf.quants.quantize(np.ascontiguousarray(rows.numpy()), kind)
        return torch.from_numpy(gguf.quants.dequantize(blocks, kind)).view(rows.shape)

    copy = Path(shutil.copytree(folder, to))
    weights = load_file(copy / "model.safetensors")
    for name, weight in weights.items():
        if name.endswith("experts.gate_up_proj"):
            rows = weight.mT.clone()
            rows[:, 0::2] = read_back(rows[:, 0::2], experts["gate"])
            rows[:, 1::2] = read_back(rows[:, 1::2], experts["up"])
            weights[name] = rows.mT.contiguous()
        elif name.endswith("experts.down_proj"):
            weights[name] = read_back(weight.mT, experts["down"]).mT.contiguous()
        elif weight.dim() == 2 and not name.endswith(("bias", "router.weight")):
            weights[name] = read_back(weight, Type.Q8_0)
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    return copy


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("gpt_oss-20b", tmp_path_factory.mktemp("models") / "original")


@pytest.fixture(scope="module")
def case(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A file as published, and the tokens of its numbers."""
    root = tmp_path_factory.mktemp("published")
    right = case_of(rounded(original, root / "right", PUBLISHED))
    return Case(stored(original, root / "tiny.gguf", PUBLISHED), right.prompts, right.expected)


def is_in_blocks(adapter: ModelAdapter) -> tuple[bool, bool]:
    """(whether all experts are, whether the other products of layers are)."""
    assert isinstance(adapter, GptOssAdapter)
    experts = [one for layer in adapter.layers for one in (layer.gate_up, layer.down)]
    others = [one for layer in adapter.layers for one in (layer.qkv, layer.output)]
    return (
        all(isinstance(one, FileExperts) and one._place.blocks is not None for one in experts),
        all(isinstance(one, BlockScheme) for one in others),
    )


@pytest.mark.parametrize(
    "backend",
    [pytest.param("cpu", marks=needs_cpp), pytest.param("torch", marks=pytest.mark.nightly)],
)
def test_greedy_tokens_are_those_of_transformers(case: Case, backend: str) -> None:
    """Together, again with their prefixes cached, and in chunks."""
    engine = case.engine(backend=backend)
    assert is_in_blocks(engine.model.adapter) == ((backend == "cpu"),) * 2
    assert outputs(run(engine, case.prompts)) == case.expected
    assert outputs(run(engine, case.prompts)) == case.expected
    assert_empty(engine)
    chunks = case.engine(backend=backend, token_budget=16)
    assert outputs(run(chunks, case.prompts[:24])) == case.expected[:24]


@pytest.mark.gpu
def test_greedy_tokens_on_a_gpu_are_those_of_transformers(case: Case) -> None:
    expect_twice_on_gpu(case)


@needs_cpp
@pytest.mark.nightly
def test_greedy_tokens_alone_and_after_preemption(case: Case) -> None:
    assert_alone_and_preempted(case)


@needs_cpp
def test_it_is_held_as_small_as_in_the_file(case: Case) -> None:
    packed, plain = (case.engine(backend=name).model for name in ("cpu", "torch"))
    assert packed.num_parameters == plain.num_parameters
    layers, experts, hidden, heads = 2, 8, 64, 8 * 16
    expert_weights = layers * experts * 3 * hidden * hidden
    others = layers * hidden * (2 * heads + 2 * 16)
    saved = expert_weights * 4 - expert_weights // 32 * 17 + others * 4 - others // 32 * 34
    assert plain.weight_bytes - packed.weight_bytes == saved


@pytest.mark.parametrize("size", nightly_but([2], [2, 4]))
def test_ranks_multiply_out_their_parts(case: Case, size: int) -> None:
    sequences = random_sequences((1, 17, 33))
    expected = torch.cat(logits_in_two_chunks(load(case.folder).adapter, sequences))

    def rank(shard: Shard) -> Tensor:
        adapter = load_part(case.folder, shard)
        assert is_in_blocks(adapter) == (False, False)
        return torch.cat(logits_in_two_chunks(adapter, sequences))

    found = on_all([partial(rank, shard) for shard in shards(size, 1)])
    torch.testing.assert_close(found[0], expected, atol=2e-4, rtol=1e-4)


@needs_cpp
@pytest.mark.parametrize(
    ("experts", "in_blocks"),
    [
        ({"gate": Type.Q4_0, "up": Type.Q4_0, "down": Type.Q8_0}, True),
        ({"gate": Type.MXFP4, "up": Type.Q8_0, "down": Type.MXFP4}, False),  # two halves differ
        pytest.param(  # which has no products
            {"gate": Type.Q5_1, "up": Type.Q5_1, "down": Type.MXFP4},
            False,
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["other types", "two types", "unpacked"],
)
def test_experts_in_other_types(
    original: Path, tmp_path: Path, experts: Kinds, in_blocks: bool
) -> None:
    right = rounded(original, tmp_path / "right", experts)
    path = stored(original, tmp_path / "tiny.gguf", experts)
    engine = LLMEngine(model=str(path), device="cpu", backend="cpu", num_blocks=16)
    assert is_in_blocks(engine.model.adapter) == (in_blocks, True)
    assert_same_logits(load(path).adapter, right)
    greedy = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    prompts = [list(range(40, 75)), [7, 8, 9]]
    plain = LLMEngine(model=str(right), device="cpu", num_blocks=16)
    assert engine.generate(prompts, greedy) == plain.generate(prompts, greedy)


def test_what_the_file_does_not_say_is_as_published(case: Case) -> None:
    config = json.loads((load(case.folder).folder / "config.json").read_text())
    assert config["layer_types"] == ["sliding_attention", "full_attention"]
    assert config["sliding_window"] == 24
    assert config["rope_parameters"]["truncate"] is False
    assert config["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"general.architecture": "gptoss"}, "of the architecture gptoss, which is not read"),
        ({"gpt-oss.attention.head_count": 0}, "gpt-oss.attention.head_count is 0"),
        ({"gpt-oss.expert_count": 4}, r"router\.weight.*num_local_experts|num_local_experts"),
    ],
)
def test_what_is_not_read_is_told(
    original: Path, tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    path = write_gguf(original, tmp_path / "x.gguf", metadata=changed)
    with pytest.raises(ModelError, match=told):
        load(path)


@pytest.mark.parametrize("backend", [pytest.param("cpu", marks=needs_cpp), "torch"])
def test_gates_without_what_they_open_are_told(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    add = gguf.GGUFWriter.add_tensor

    def all_but_one(self: Any, name: str, *args: Any, **more: Any) -> None:
        if name != "blk.1.ffn_up_exps.weight":
            add(self, name, *args, **more)

    monkeypatch.setattr(gguf.GGUFWriter, "add_tensor", all_but_one)
    path = stored(original, tmp_path / "x.gguf", PUBLISHED)
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.experts\.gate_up_proj has shape"):
        LLMEngine(model=str(path), device="cpu", backend=backend, num_blocks=16)


def test_a_message_s_end_is_no_answer_s_end_where_there_are_returns_and_calls() -> None:
    """As llama.cpp has it: gpt-oss thinks in one message and answers in another."""
    tokens = ["a", "<|end|>", "<|return|>", "<|call|>", "<|endoftext|>"]
    kinds = [NORMAL, *[CONTROL] * 4]
    told = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds}
    harmony = {**told, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.eot_token_id": 1}
    assert generation_values(harmony)["eos_token_id"] == [2, 3, 4]
    kinds[2] = NORMAL  # as in Phi, which has no such messages
    assert generation_values(told)["eos_token_id"] == [1, 4]
