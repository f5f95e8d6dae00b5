"""What does not go with a model whose layers keep a state is refused by name, before it is loaded."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.models.tiny import tiny_model
from yaie import LLMEngine
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, ModelError
from yaie.engine.handover.address import TcpAddress
from yaie.engine.handover.engine import DisaggregatedEngine
from yaie.engine.handover.role import Role


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("lfm2", tmp_path_factory.mktemp("models") / "lfm2")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"speculate": "mtp"}, "no head of such a model is read"),
        ({"preemption": "swap", "swap_space": 0.01}, "states are not"),
        ({"deterministic": True}, "where its prompt was cut into chunks"),
        ({"pipeline_parallel": 2}, "take tensor_parallel, which splits each layer"),
    ],
    ids=str,
)
def test_a_setting_is_refused(folder: Path, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        LLMEngine(model=str(folder), device="cpu", num_blocks=16, **settings)
    assert "Lfm2ForCausalLM" in caught.value.message
    assert caught.value.param in settings


def test_as_a_draft_model_it_is_refused(folder: Path, tmp_path: Path) -> None:
    target = tiny_model("llama", tmp_path / "llama")
    with pytest.raises(ConfigError, match="what drafts has no place for them") as caught:
        LLMEngine(
            model=str(target),
            device="cpu",
            num_blocks=16,
            speculate="draft",
            draft_model=str(folder),
        )
    assert caught.value.param == "draft_model"


@pytest.mark.parametrize("kind", ["prefill", "decode"])
def test_a_handover_is_refused(folder: Path, kind: Any) -> None:
    role = Role(kind, TcpAddress("127.0.0.1", 1), least_tokens=64)
    config = EngineConfig(model=str(folder), device="cpu", num_blocks=16)
    with pytest.raises(ConfigError, match="blocks are handed over and states are not"):
        DisaggregatedEngine(config, role)


@pytest.mark.parametrize("is_half", [False, True], ids=["whole", "half of one for images"])
def test_packed_weights_are_refused(folder: Path, tmp_path: Path, is_half: bool) -> None:
    packed = Path(shutil.copytree(folder, tmp_path / "packed"))
    if is_half:
        from transformers import Lfm2Config, Lfm2VlConfig

        Lfm2VlConfig(
            text_config=Lfm2Config.from_pretrained(folder).to_dict(),
            architectures=["Lfm2VlForConditionalGeneration"],
        ).save_pretrained(packed)
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "desc_act": False
    }  # fmt: skip
    (packed / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="its weights are quantized, and models whose layers keep"):
        LLMEngine(model=str(packed), device="cpu", num_blocks=16)


def test_what_is_kept_is_told_at_start(folder: Path) -> None:
    engine = LLMEngine(model=str(folder), device="cpu", num_blocks=16, max_num_seqs=4)
    assert engine.info.states == (  # 3 convolutions of 64 channels, 2 tokens each
        "1.5 KiB a request, whatever its length: for 4 at once, and 16 behind cached prefixes "
        "(0.0 MiB)"
    )
    dense = LLMEngine(num_blocks=16, mine="none", device="cpu")
    assert dense.info.states == ""
