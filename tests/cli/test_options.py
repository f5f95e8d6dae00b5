"""Flags come from the dataclasses: names, types, and which source wins."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
import typer

from tests.cli.conftest import Yaie
from tests.server.fake_engine import FakeEngine
from yaie.cli.main import app, main
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


class Named(Exception):
    """Raised in place of loading anything, with the model that was named."""


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(given: dict[str, object], *, file: object = None) -> EngineConfig:
        raise Named(given["model"])

    def find(model: str, revision: object = None) -> None:
        raise Named(model)

    monkeypatch.setattr(EngineConfig, "load", staticmethod(load))
    monkeypatch.setattr("yaie.models.hub.find_model", find)


BENCHES = ["throughput", "latency", "memory", "prefix", "ladder", "overhead", "soak", "scale"]
BY_ARGUMENT = [
    ["serve"], ["cluster"], ["chat"], ["quantize", "--out", "new-folder"],
    *(["bench", name] for name in BENCHES),
]  # fmt: skip


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize("command", BY_ARGUMENT, ids=" ".join)
def test_every_command_takes_the_model_as_an_argument_and_by_name(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "models/[/x]"
    for words in ([name], ["--model", name], [f"--model={name}"], [name, "--model", name]):
        monkeypatch.setattr("sys.argv", ["yaie", *command, *words])
        with pytest.raises(Named, match=re.escape(name)):
            main()


@pytest.mark.parametrize("command", BY_ARGUMENT, ids=" ".join)
def test_two_models_are_refused_with_both_names(yaie: Yaie, command: list[str]) -> None:
    ran = yaie(*command, "one[/x]", "--model", "two[/x]")
    assert ran.code == 2
    assert "two models are named, one[/x] and --model two[/x]: leave one out" in ran.err


def test_every_command_that_loads_a_model_is_among_those_tested() -> None:
    def leaves(group: object, way: tuple[str, ...] = ()) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                found |= leaves(command, (*way, name))
            else:
                found[" ".join((*way, name))] = command
        return found

    takes = {
        name
        for name, command in leaves(typer.main.get_command(app)).items()
        if any(parameter.name == "model" for parameter in command.params)
    }
    tested = {" ".join(command).partition(" --")[0] for command in BY_ARGUMENT}
    assert takes == tested | {"generate"}  # whose arguments are prompts


@pytest.mark.usefixtures("named")
def test_the_arguments_of_generate_are_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["yaie", "generate", "hello", "--model", "some/model"])
    with pytest.raises(Named, match="some/model"):
        main()


def test_a_shape_refuses_a_model_however_it_is_named(yaie: Yaie) -> None:
    for words in (["tutor"], ["--model", "tutor"]):
        ran = yaie("bench", "scale", "--shape", "llama-3.1-8b", *words)
        assert ran.code == 2
        assert "--model has no effect here: --shape says which model" in ran.err


def test_quantize_asks_for_a_model(yaie: Yaie) -> None:
    ran = yaie("quantize", "--out", "new-folder")
    assert ran.code == 2
    assert "yaie quantize MODEL --out" in ran.err
