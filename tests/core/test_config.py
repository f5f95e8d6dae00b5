"""EngineConfig: which source wins, and what a wrong value is told."""

from pathlib import Path
from typing import Any

import pytest

from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "yaie.toml"
    path.write_text("block_size = 8\nmax_num_seqs = 8\nseed = 8\n")
    return path


def test_a_flag_wins_over_the_environment_and_that_over_the_file(file: Path) -> None:
    environ = {"YAIE_BLOCK_SIZE": "4", "YAIE_MAX_NUM_SEQS": "4"}
    config = EngineConfig.load({"block_size": 2}, environ=environ, file=file)
    assert (config.block_size, config.max_num_seqs, config.seed) == (2, 4, 8)
    assert config.token_budget == EngineConfig().token_budget


def test_the_environment_can_name_the_file(file: Path) -> None:
    assert EngineConfig.load(environ={"YAIE_CONFIG": str(file)}).seed == 8


def test_a_flag_that_was_not_given_does_not_count(file: Path) -> None:
    assert EngineConfig.load({"seed": None}, environ={}, file=file).seed == 8


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("PREFIX_CACHING", "false", False),
        ("PREFIX_CACHING", "1", True),
        ("SWAP_SPACE", "1.5", 1.5),
        ("NUM_BLOCKS", "7", 7),
        ("POLICY", "lpm", "lpm"),
        ("MODEL", "org/name", "org/name"),
    ],
)
def test_the_environment_is_read_as_the_setting_s_type(name: str, text: str, value: Any) -> None:
    config = EngineConfig.load(environ={f"YAIE_{name}": text})
    assert getattr(config, name.lower()) == value


def test_non_default_lists_what_was_changed() -> None:
    assert EngineConfig(seed=3, policy="lpm").non_default() == {"seed": 3, "policy": "lpm"}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"block_size": 0}, "block_size"),
    ({"num_blocks": -1}, "num_blocks"),
    ({"token_budget": 1.5}, "token_budget"),
    ({"max_num_seqs": True}, "max_num_seqs"),
    ({"kv_memory_share": 1.5}, "kv_memory_share"),
    ({"kv_memory_share": float("nan")}, "kv_memory_share"),
    ({"watermark": 1.0}, "watermark"),
    ({"watermark": -0.1}, "watermark"),
    ({"swap_space": -1.0}, "swap_space"),
    ({"preemption": "swap"}, "swap_space"),
    ({"policy": "fifo"}, "policy"),
    ({"backend": "rocm"}, "backend"),
    ({"model": ""}, "model"),
    ({"seed": "1"}, "seed"),
    ({"threads": 0}, "threads"),
]


@pytest.mark.parametrize(("settings", "name"), WRONG)
def test_a_wrong_value_is_refused_by_the_name_of_its_setting(
    settings: dict[str, Any], name: str
) -> None:
    with pytest.raises(ConfigError, match=name) as error:
        EngineConfig(**settings)
    assert error.value.param == name


def test_a_setting_that_does_not_exist_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("blocksize = 3\n")
    with pytest.raises(ConfigError, match="blocksize"):
        EngineConfig.load(environ={}, file=tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match="blocksize"):
        EngineConfig.load({"blocksize": 3}, environ={})


def test_an_environment_variable_of_the_wrong_type_is_named() -> None:
    with pytest.raises(ConfigError, match="YAIE_BLOCK_SIZE"):
        EngineConfig.load(environ={"YAIE_BLOCK_SIZE": "many"})


@pytest.mark.parametrize("text", ["block_size = ", "\xff"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"bad\.toml"):
        EngineConfig.load(environ={}, file=path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        EngineConfig.load(environ={}, file=tmp_path / "missing.toml")
