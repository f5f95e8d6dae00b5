"""The server that `yaie bench overhead` and `soak` measure has this process's settings and no other."""

from dataclasses import asdict

import pytest
import typer
from typer.testing import CliRunner

from yaie.bench.served import engine_process_flags, environment, flags
from yaie.cli.options import engine_options
from yaie.core.config import EngineConfig


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(),
        EngineConfig(model="a/folder with spaces", block_size=32, prefix_caching=False),
        EngineConfig(
            preemption="swap", swap_space=0.5, mine="sampler,scheduler", deterministic=True
        ),
    ],
)
def test_the_flags_give_a_command_the_same_configuration(config: EngineConfig) -> None:
    seen: list[EngineConfig] = []
    app = typer.Typer()

    @app.command()
    @engine_options("argument")
    def command(config: EngineConfig) -> None:
        seen.append(config)

    result = CliRunner().invoke(app, flags(config), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert [asdict(one) for one in seen] == [asdict(config)]


def test_no_setting_reaches_the_server_through_the_environment(monkeypatch) -> None:
    for name in ("YAIE_BLOCK_SIZE", "YAIE_API_KEY", "YAIE_CONFIG", "YAIE_CACHE"):
        monkeypatch.setenv(name, "x")
    assert {name for name in environment() if name.startswith("YAIE_")} == {"YAIE_CACHE"}


def test_the_engines_process_is_left_to_the_server_unless_it_is_asked_about() -> None:
    assert engine_process_flags(None) == []
    assert engine_process_flags(True) == ["--engine-process"]
    assert engine_process_flags(False) == ["--no-engine-process"]
