"""Settings that another one leaves without effect are refused if they were given, and only then."""

from pathlib import Path
from typing import Any

import pytest

from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.core.idle import idle_settings, refuse_idle

IDLE: list[tuple[dict[str, Any], str, str]] = [
    ({"revision": "v1"}, "revision", "an embedded model has no revisions"),
    ({"revision": "v1", "model": "tutor-hybrid"}, "revision", "an embedded model has no revisions"),
    ({"kv_memory_share": 0.5, "num_blocks": 9}, "kv_memory_share", "num_blocks 9"),
    ({"policy": "lpm", "prefix_caching": False}, "policy", "prefix_caching is off"),
    ({"swap_space": 1.0}, "swap_space", "preemption 'recompute'"),
]
IN_USE: list[dict[str, Any]] = [
    {},
    {"revision": "v1", "model": "Qwen/Qwen3-0.6B"},
    {"kv_memory_share": 0.5},
    {"num_blocks": 9},
    {"policy": "lpm"},
    {"policy": "priority", "prefix_caching": False},
    {"swap_space": 1.0, "preemption": "swap"},
    {"swap_space": 0.0},
]


@pytest.mark.parametrize(("settings", "name", "why"), IDLE)
def test_what_has_no_effect_is_refused_with_the_reason(
    settings: dict[str, Any], name: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=f"{name} .* has no effect here: .*{why}") as refused:
        refuse_idle(EngineConfig(**settings), settings)
    assert refused.value.param == name


@pytest.mark.parametrize(("settings", "name", "why"), IDLE)
def test_the_same_from_a_shared_file_is_left_alone(
    settings: dict[str, Any], name: str, why: str
) -> None:
    config = EngineConfig(**settings)
    refuse_idle(config, {**settings, name: None})
    assert idle_settings(config).keys() == {name}


@pytest.mark.parametrize("settings", IN_USE)
def test_what_has_an_effect_is_not_refused(settings: dict[str, Any]) -> None:
    refuse_idle(EngineConfig(**settings), settings)


def test_a_folder_has_no_revision(tmp_path: Path) -> None:
    settings = {"model": str(tmp_path), "revision": "main"}
    with pytest.raises(ConfigError, match="is a folder, and only models on the hub"):
        refuse_idle(EngineConfig(**settings), settings)


def test_a_keyword_argument_counts_as_given() -> None:
    from yaie.engine.llm_engine import LLMEngine

    with pytest.raises(ConfigError, match="revision 'v1' has no effect"):
        LLMEngine(revision="v1")
    with pytest.raises(ConfigError, match="revision 'v1' has no effect"):
        LLMEngine(EngineConfig(), revision="v1")
