"""`ModelLoader`: what it reports of a model, and what it says of one that cannot be loaded."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.plain_ops import PlainOps
from tests.models.tiny import tiny_model
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, ModelError
from yaie.models import LoadedModel, ModelLoader
from yaie.models.config import head_dims

Checkpoint = Callable[[str], Path]


def load(folder: Path, *, progress: bool = False, **settings: Any) -> LoadedModel:
    config = EngineConfig(model=str(folder), **{"device": "cpu", **settings})
    return ModelLoader(config, progress).load(PlainOps())


@pytest.fixture
def llama(checkpoint: Checkpoint, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(checkpoint("llama"), tmp_path / "my-llama")


def change_json(path: Path, **changes: Any) -> None:
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


def shard(folder: Path) -> None:
    """Split the weights in two files with an index."""
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    halves = {f"model-0000{i}-of-00002.safetensors": names[i - 1 :: 2] for i in (1, 2)}
    for file, part in halves.items():
        save_file({name: weights[name] for name in part}, folder / file)
    weight_map = {name: file for file, part in halves.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "model.safetensors").unlink()


def test_a_loaded_model_says_what_it_is(llama: Path) -> None:
    model = load(llama)
    assert model.name == "my-llama"
    assert model.folder == llama
    assert model.architecture == "LlamaForCausalLM"
    assert model.model_type == "llama"
    assert model.dtype == torch.float32
    assert model.device == torch.device("cpu")
    assert model.max_length == 1024
    assert model.eos_token_ids == {1}
    assert model.num_parameters == sum(
        t.numel() for t in load_file(llama / "model.safetensors").values()
    )
    assert model.weight_bytes == 4 * model.num_parameters


def test_what_config_json_says_is_known_before_weights_are_read(llama: Path) -> None:
    (llama / "model.safetensors").write_bytes(b"")
    loader = ModelLoader(EngineConfig(model=str(llama), device="cpu", max_model_len=64), False)
    assert (loader.name, loader.architecture) == ("my-llama", "LlamaForCausalLM")
    assert (loader.max_length, loader.dtype) == (64, torch.float32)
    assert loader.head_dims == (16,)
    with pytest.raises(ModelError, match="not a whole safetensors file"):
        loader.load(PlainOps())


@pytest.mark.parametrize(
    ("stated", "sizes"),
    [
        ({"hidden_size": 64, "num_attention_heads": 4}, (16,)),
        ({"hidden_size": 80, "num_attention_heads": 4, "head_dim": 16}, (16,)),
        ({"head_dim": 256, "global_head_dim": 512}, (256, 512)),
        (
            {"head_dim": 64, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
            (64, 128, 192),
        ),
        ({"hidden_size": 64, "num_attention_heads": [2, 4]}, ()),
    ],
    ids=["shared out", "stated", "two sizes", "latent", "by layer"],
)
def test_sizes_of_heads_are_read_as_families_state_them(
    stated: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    config = SimpleNamespace(**stated)
    config.get_text_config = lambda decoder=None: config
    assert head_dims(config) == sizes


def test_every_source_of_end_tokens_counts(llama: Path) -> None:
    change_json(llama / "generation_config.json", eos_token_id=[7, 9])
    change_json(llama / "config.json", eos_token_id=5)
    assert load(llama).eos_token_ids == {1, 5, 7, 9}


def test_a_shorter_max_model_len_wins(llama: Path) -> None:
    assert load(llama, max_model_len=64).max_length == 64


def test_the_copy_that_a_packed_tied_head_takes_is_counted(llama: Path) -> None:
    adapter = load(llama).adapter
    before, table = adapter.weight_bytes, torch.randn(1024, 256)
    head = adapter.tied_head(table)
    is_packed = head.name == "onednn_packed"
    assert adapter.weight_bytes - before == (table.nbytes if is_packed else 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_is_refused(llama: Path) -> None:
    with pytest.raises(ConfigError, match="no GPU") as caught:
        load(llama, device="cuda")
    assert caught.value.param == "device"


def test_sharded_weights_are_those_of_one_file(llama: Path, checkpoint: Checkpoint) -> None:
    shard(llama)
    one, two = load(checkpoint("llama")), load(llama)
    hidden = torch.randn(3, 64)
    assert torch.equal(one.adapter.logits(hidden), two.adapter.logits(hidden))


def test_a_missing_shard_is_named(llama: Path) -> None:
    shard(llama)
    (llama / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match=r"lacks 1 of the 2 shards.*model-00002-of-00002"):
        load(llama)


def test_an_index_that_is_none(llama: Path) -> None:
    (llama / "model.safetensors").unlink()
    (llama / "model.safetensors.index.json").write_text('{"weights": 1}')
    with pytest.raises(ModelError, match=r"index.json: weight_map is null, and must be an object"):
        load(llama)


def test_an_index_cannot_reach_outside_the_folder(llama: Path) -> None:
    (llama / "model.safetensors").unlink()
    index = {"weight_map": {"x": "../../elsewhere.safetensors"}}
    (llama / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"lacks 1 of the 1 shards .*: elsewhere.safetensors"):
        load(llama)


@pytest.mark.parametrize("damage", [lambda whole: whole[:-1000], lambda whole: b"\xff" * 1000])
def test_a_damaged_file_is_named(damage: Callable[[bytes], bytes], llama: Path) -> None:
    path = llama / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ModelError, match=r"model.safetensors is not a whole safetensors file"):
        load(llama)


def test_pickle_is_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = tiny_model("pickle", tmp_path / "pickle")
    with pytest.raises(ModelError, match=r"only as pickle \(pytorch_model.bin\).*save_pretrained"):
        load(folder)


def test_a_folder_without_weights(llama: Path) -> None:
    (llama / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="has no weights"):
        load(llama)


def test_a_folder_without_config(llama: Path) -> None:
    (llama / "config.json").unlink()
    with pytest.raises(ModelError, match=r"has no config.json"):
        load(llama)


def test_a_folder_without_tokenizer(llama: Path) -> None:
    (llama / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="has no tokenizer"):
        load(llama)


def test_a_broken_tokenizer(llama: Path) -> None:
    (llama / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load(llama)


def test_a_broken_config(llama: Path) -> None:
    (llama / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config.json is no JSON in UTF-8"):
        load(llama)


def test_a_config_without_architecture(llama: Path) -> None:
    change_json(llama / "config.json", architectures=None)
    with pytest.raises(ModelError, match="names no architecture"):
        load(llama)


def test_an_unknown_architecture_is_named(llama: Path) -> None:
    change_json(llama / "config.json", architectures=["SquirrelForCausalLM"])
    with pytest.raises(ModelError, match="architecture SquirrelForCausalLM is not supported"):
        load(llama)


def test_an_unknown_model_type_is_named(llama: Path) -> None:
    change_json(llama / "config.json", model_type="squirrel")
    with pytest.raises(ModelError, match="squirrel"):
        load(llama)


def test_code_that_comes_with_a_model_is_not_run(llama: Path) -> None:
    ran = llama.parent / "ran"
    (llama / "configuration_evil.py").write_text(f"open({str(ran)!r}, 'w')\nclass Evil: pass\n")
    auto_map = {"AutoConfig": "configuration_evil.Evil"}
    change_json(llama / "config.json", model_type="evil", auto_map=auto_map)
    with pytest.raises(ModelError, match="bring their own code"):
        load(llama)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True},
            "encoder-decoder",
        ),
        ({"architectures": ["LlamaForSequenceClassification"]}, "no language model that continues"),
        ({"architectures": ["Gemma3ForCausalLM"], "vision_config": {"a": 1}}, "images or sound"),
    ],
)
def test_kinds_of_models_that_are_not_served(
    llama: Path, changes: dict[str, Any], reason: str
) -> None:
    change_json(llama / "config.json", **changes)
    with pytest.raises(
        ModelError, match=f"{changes['architectures'][0]} is not supported: .*{reason}"
    ):
        load(llama)


def test_quantized_weights_are_refused_by_method(llama: Path) -> None:
    change_json(llama / "config.json", quantization_config={"quant_method": "awq", "bits": 4})
    with pytest.raises(ModelError, match=r"quantized \(awq\)"):
        load(llama)


@pytest.mark.parametrize("family", ["llama", "cohere"])
def test_weights_that_do_not_fit_are_named(
    family: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoint(family), tmp_path / family)
    lost, grown = "model.layers.1.mlp.up_proj.weight", "model.layers.0.self_attn.k_proj.weight"

    def damage(weights: dict[str, torch.Tensor]) -> None:
        del weights[lost]
        weights[grown] = torch.zeros(5, 64)
        weights["model.layers.9.extra"] = torch.zeros(1)

    change_weights(folder, damage)
    with pytest.raises(ModelError, match="do not fit") as caught:
        load(folder)
    assert lost.removeprefix("model.") in caught.value.message
    assert grown in caught.value.message
    assert "model.layers.9.extra" in caught.value.message


def test_a_checkpoint_may_leave_the_prefix_out(checkpoint: Checkpoint, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint("gpt2"), tmp_path / "gpt2")

    def strip(weights: dict[str, torch.Tensor]) -> None:
        for name in list(weights):
            weights[name.removeprefix("transformer.")] = weights.pop(name)
        weights["h.0.attn.bias"] = torch.ones(1, 1, 8, 8)  # the causal mask, in old checkpoints

    change_weights(folder, strip)
    hidden = torch.randn(2, 64)
    stripped, whole = load(folder).adapter, load(checkpoint("gpt2")).adapter
    assert torch.equal(stripped.logits(hidden), whole.logits(hidden))


def test_a_tied_head_in_the_checkpoint_is_ignored(checkpoint: Checkpoint, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint("llama-tied"), tmp_path / "tied")

    def add_head(weights: dict[str, torch.Tensor]) -> None:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()

    change_weights(folder, add_head)
    assert load(folder).num_parameters == load(checkpoint("llama-tied")).num_parameters


def test_progress_is_shown_on_stderr_only_if_wanted(
    llama: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    load(llama, progress=True)
    shown = capsys.readouterr()
    assert "Loading my-llama" in shown.err
    assert shown.out == ""
    load(llama)
    assert capsys.readouterr().err == ""


def test_generic_loading_is_silent(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint("cohere")
    capsys.readouterr()
    load(folder)
    assert capsys.readouterr() == ("", "")
