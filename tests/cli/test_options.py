"""Flags come from the dataclasses: names, types, and which source wins."""

from dataclasses import fields
from pathlib import Path

import pytest

from tests.cli.conftest import Yaie
from tests.server.fake_engine import FakeEngine
from yaie.core.config import EngineConfig


@pytest.mark.parametrize("command", ["serve", "chat", "generate"])
def test_every_setting_is_a_flag_of_every_command_and_the_model_is_explained(
    yaie: Yaie, command: str
) -> None:
    help = yaie(command, "--help").out
    names = [item.name for item in fields(EngineConfig) if item.name != "model"]
    assert [name for name in names if f"--{name.replace('_', '-')}" not in help] == []
    model = next(item for item in fields(EngineConfig) if item.name == "model")
    first_words = " ".join(model.metadata["help"].split()[:4])
    assert first_words in " ".join(help.replace("│", " ").split())


def test_flags_beat_environment_beats_file_beats_default(
    yaie: Yaie, fake: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("block_size = 1\nmax_num_seqs = 1\ntoken_budget = 1\n")
    monkeypatch.setenv("YAIE_BLOCK_SIZE", "2")
    monkeypatch.setenv("YAIE_MAX_NUM_SEQS", "2")
    yaie("generate", "hello", "--config", str(file), "--block-size", "3")
    config = fake.config
    assert (config.block_size, config.max_num_seqs, config.token_budget) == (3, 2, 1)
    assert config.watermark == EngineConfig().watermark


def test_switches_go_both_ways(yaie: Yaie, fake: FakeEngine) -> None:
    yaie("generate", "hello", "--no-prefix-caching")
    assert not fake.config.prefix_caching
    yaie("generate", "hello", "--prefix-caching")
    assert fake.config.prefix_caching


def test_choices_are_checked_before_a_model_loads(yaie: Yaie) -> None:
    ran = yaie("generate", "hello", "--policy", "whim")
    assert ran.code == 2
    assert "lpm" in ran.err


def test_sampling_is_checked_before_a_model_loads(yaie: Yaie) -> None:
    ran = yaie("generate", "hello", "--temperature", "-1", "--model", "/no/such/model")
    assert ran.code == 2
    assert "temperature must be" in ran.err
