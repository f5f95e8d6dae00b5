"""Checkpoints of random weights: whole, loadable, written once and never over something else."""

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from book.tools.exercises import MODELS
from solutions.quantization import Int4
from yaie.bench import shapes
from yaie.bench.known_shapes import SHAPES
from yaie.bench.shapes import checkpoint, make_checkpoint
from yaie.core.compat import tomllib
from yaie.core.contracts.states import StateLayerSpec
from yaie.core.errors import ConfigError
from yaie.core.quantized import Int4Weight
from yaie.engine.llm_engine import LLMEngine
from yaie.models.tokenizer import Tokenizer
from yaie.models.tutor import TUTOR_PATH


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint("tiny", tmp_path_factory.mktemp("shapes") / "made")


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    found = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return found


def test_transformers_and_our_engine_load_it(folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    theirs, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    engine = LLMEngine(model=str(folder), num_blocks=16, mine="none")
    assert engine.model.num_parameters == sum(one.numel() for one in theirs.parameters())
    assert engine.generate([[5, 12000]], max_tokens=3, ignore_eos=True)


def test_weights_are_normal_and_norms_are_one(folder: Path) -> None:
    found = tensors(folder)
    table = found["model.embed_tokens.weight"].float()
    assert table.shape == (12288, 128)
    assert table.mean().abs() < 1e-4
    assert table.std() == pytest.approx(0.02, rel=0.01)
    assert found["model.norm.weight"].eq(1).all()
    assert {one.dtype for one in found.values()} == {torch.bfloat16}
    query, key = (found[f"model.layers.0.self_attn.{name}_proj.weight"] for name in "qk")
    assert not torch.equal(query[: len(key)], key)


def test_a_hybrid_shape_is_loaded_as_well(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    made = make_checkpoint("tiny-hybrid", tmp_path / "made")
    theirs, info = AutoModelForCausalLM.from_pretrained(made, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    engine = LLMEngine(model=str(made), num_blocks=16, mine="none")
    assert engine.model.num_parameters == sum(one.numel() for one in theirs.parameters())
    assert [len(layers) for layers in (engine.model.adapter.kv_layers, states(engine))] == [1, 3]
    assert engine.generate([[5, 12000]], max_tokens=3, ignore_eos=True)


def states(engine: LLMEngine) -> Sequence[StateLayerSpec]:
    return engine.model.adapter.state_layers


def test_the_shape_of_qwen3_5_has_the_sizes_that_the_book_quotes() -> None:
    """Heads, states and tails as its config.json has them."""
    published = tomllib.loads(MODELS.read_text("utf-8"))["models"]["qwen35_4b"]
    _, sizes = SHAPES["qwen3.5-4b"]
    heads, values = sizes["linear_num_key_heads"], sizes["linear_num_value_heads"]
    d_k, d_v = sizes["linear_key_head_dim"], sizes["linear_value_head_dim"]
    assert published["attention_layers"] * 4 == sizes["num_hidden_layers"]
    assert published["kv_heads"] == sizes["num_key_value_heads"]
    assert published["head_dim"] == sizes["head_dim"]
    assert [published[f"state_{one}"] for one in ("heads", "rows", "columns")] == [values, d_k, d_v]
    assert published["tail_channels"] == 2 * heads * d_k + values * d_v
    assert published["tail"] + 1 == sizes["linear_conv_kernel_dim"]


def test_packed_shape_is_loaded_and_is_the_plain_ones_size(tmp_path: Path, folder: Path) -> None:
    packed = make_checkpoint("tiny-int4", tmp_path / "packed")
    engine = LLMEngine(model=str(packed), num_blocks=16, mine="none")
    plain = LLMEngine(model=str(folder), num_blocks=16, mine="none")
    assert engine.model.num_parameters == plain.model.num_parameters
    assert engine.generate([[5, 12000]], max_tokens=3, ignore_eos=True)
    found = tensors(packed)
    name = "model.layers.0.mlp.down_proj"
    weight = Int4Weight(
        *(found[f"{name}.{part}"] for part in ("qweight", "scales", "qzeros")), shapes.GROUP_SIZE
    )
    numbers = Int4().dequantize(weight)
    assert numbers.shape == (128, 256)
    assert numbers.std() == pytest.approx(0.02, rel=0.03)
    assert numbers.mean() == pytest.approx(-0.5 * 0.02 / shapes.CODES_SPREAD, abs=5e-4)


def test_shape_in_fp8_is_loaded_and_is_the_plain_ones_size(tmp_path: Path, folder: Path) -> None:
    packed = make_checkpoint("tiny-fp8", tmp_path / "packed")
    engine = LLMEngine(model=str(packed), num_blocks=16, mine="none")
    plain = LLMEngine(model=str(folder), num_blocks=16, mine="none")
    assert engine.model.num_parameters == plain.model.num_parameters
    assert engine.generate([[5, 12000]], max_tokens=3, ignore_eos=True)
    found = tensors(packed)
    name = "model.layers.0.mlp.down_proj"
    numbers = found[f"{name}.weight"].float() * found[f"{name}.weight_scale"]
    assert numbers.shape == (128, 256)
    assert numbers.std() == pytest.approx(0.02, rel=0.03)


def test_no_shard_is_larger_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "WRITERS", 1)
    whole = list(make_checkpoint("tiny", tmp_path / "whole").glob("*.safetensors"))
    monkeypatch.setattr(shapes, "SHARD_BYTES", 100_000)
    parts = make_checkpoint("tiny", tmp_path / "parts")
    assert len(whole) == 1
    for path in parts.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
        assert path.stat().st_size < 102_000 or len(names) == 1
    before, after = tensors(tmp_path / "whole"), tensors(parts)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_every_token_of_the_model_is_a_text(folder: Path) -> None:
    """Or most of what random weights draw would be nothing, and streams would send nothing."""
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.vocab_size == 12288
    assert tokenizer.decode([12287, 4096]) == " 12287 4096"
    texts = ["A cache of keys and values, 12287 of them.", " 12287 4096"]
    tutors = Tokenizer.load(TUTOR_PATH)
    assert [tokenizer.encode(text) for text in texts] == [tutors.encode(text) for text in texts]


def full_disk(path: Path, text: str) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_a_complete_checkpoint_keeps_its_weights_and_gets_the_tokenizer_of_today(
    tmp_path: Path,
) -> None:
    made = make_checkpoint("tiny", tmp_path / "made")
    (made / "tokenizer.json").write_bytes((TUTOR_PATH / "tokenizer.json").read_bytes())
    shard = next(made.glob("*.safetensors"))
    before = shard.stat().st_mtime_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "write_whole", full_disk)
        with pytest.raises(ConfigError, match=r"cannot write .*made: No space") as error:
            make_checkpoint("tiny", made)
    assert error.value.param == "shape-folder"
    make_checkpoint("tiny", made)
    assert Tokenizer.load(made).vocab_size == 12288
    assert shard.stat().st_mtime_ns == before


def test_a_complete_checkpoint_is_not_written_again(tmp_path: Path) -> None:
    made = make_checkpoint("tiny", tmp_path / "made")
    files = sorted(made.iterdir())
    before = [path.stat().st_mtime_ns for path in files]
    with checkpoint("tiny", str(made)) as again:
        assert again == made
    assert [path.stat().st_mtime_ns for path in files] == before


@pytest.mark.parametrize("harm", ["index", "shard"])
def test_one_that_was_cut_short_is_written_again(tmp_path: Path, harm: str) -> None:
    made = make_checkpoint("tiny", tmp_path / "made")
    if harm == "index":
        (made / "model.safetensors.index.json").unlink()
    else:
        shard = next(made.glob("*.safetensors"))
        shard.write_bytes(shard.read_bytes()[:-5])
    make_checkpoint("tiny", made)
    assert "model.norm.weight" in tensors(made)
    assert json.loads((made / "model.safetensors.index.json").read_text())["weight_map"]


def test_a_folder_with_something_else_is_left_alone(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds another model than qwen3"):
        make_checkpoint("qwen3-0.6b", folder)
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty and holds no model"):
        make_checkpoint("tiny", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_temporary_one_is_deleted() -> None:
    with checkpoint("tiny", None) as made:
        assert (made / "config.json").is_file()
        assert made.name == "tiny"
    assert not made.exists()


@pytest.mark.parametrize(
    ("shape", "parameters"), [("qwen3-0.6b", 596_049_920), ("llama-3.1-8b", 8_030_261_248)]
)
def test_known_shapes_have_as_many_parameters_as_the_models(shape: str, parameters: int) -> None:
    found = shapes._tensors(shapes._config(shape))
    assert sum(kind.num_bytes for kind in found.values()) == 2 * parameters


def test_a_checkpoint_that_does_not_fit_leaves_no_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def write(folder: Path, shard: shapes._Shard) -> None:
        (folder / shard.name).write_bytes(shard.header)
        written.append(shard.name)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shapes, "_write", write)
    with pytest.raises(ConfigError, match=r"cannot write .*made: No space left on device"):
        make_checkpoint("tiny", tmp_path / "made")
    assert len(written) >= 2
    assert list((tmp_path / "made").glob("*.safetensors*")) == []
