"""What `yaie cluster` makes of its flags, and what it says when it cannot start. Needs no Ray.

The effects that need one are in `tests/cluster`, most of them by night.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Yaie
from yaie.cluster.settings import NOT_HERE, ClusterSettings, refuse_what_does_not_hold
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, YaieError
from yaie.server.listen import listen
from yaie.server.settings import ServerSettings


@dataclass
class Told:
    """What `run_cluster` was called with."""

    engine: EngineConfig
    server: ServerSettings
    cluster: ClusterSettings
    reload: Callable[[], EngineConfig]


@pytest.fixture
def told(yaie: Yaie, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Told]:
    """Run `yaie cluster FLAGS` up to where it would start Ray."""
    seen: list[Told] = []

    def run_cluster(*three: Any, reload: Any, on_ready: Any) -> None:
        seen.append(Told(*three, reload))
        raise YaieError("seen")

    monkeypatch.setattr("yaie.cli.cluster.import_ray", lambda: None)
    monkeypatch.setattr("yaie.cli.cluster.run_cluster", run_cluster)

    def run(*flags: str) -> Told:
        ran = yaie("cluster", *flags)
        assert "seen" in ran.err, ran.err
        return seen[-1]

    return run


FLAGS = {
    "min_replicas": 3,
    "max_replicas": 5,
    "target_ongoing_requests": 7.5,
    "max_ongoing_requests": 9,
    "upscale_delay": 1.5,
    "downscale_delay": 2.5,
    "imbalance": 4,
    "cpus_per_replica": 0.5,
    "gpus_per_replica": 2,
    "health_check_period": 3.5,
    "ray_address": "auto",
}


def test_every_flag_arrives(told: Callable[..., Told]) -> None:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in FLAGS.items()]
    seen = told("tutor", *flags, "--ray-dashboard", "--num-blocks=77", "--api-key=k")
    assert seen.cluster == ClusterSettings(**FLAGS, ray_dashboard=True)
    assert {*FLAGS, "ray_dashboard"} == {item.name for item in fields(ClusterSettings)}
    assert (seen.engine.num_blocks, seen.server.api_key) == (77, ("k",))


def test_the_environment_gives_what_no_flag_does(
    told: Callable[..., Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YAIE_MIN_REPLICAS", "4")
    monkeypatch.setenv("YAIE_IMBALANCE", "8")
    assert told("--imbalance=2").cluster == ClusterSettings(min_replicas=4, imbalance=2)


def test_reload_reads_the_file_again_and_flags_still_hold(
    told: Callable[..., Told], tmp_path: Path
) -> None:
    file = tmp_path / "engine.toml"
    file.write_text("num_blocks = 100\nmax_num_seqs = 8\n")
    seen = told("--config", str(file), "--max-num-seqs=4")
    file.write_text("num_blocks = 200\nmax_num_seqs = 16\n")
    again = seen.reload()
    assert (seen.engine.num_blocks, again.num_blocks, again.max_num_seqs) == (100, 200, 4)
    file.write_text("num_blocks = -1\n")
    with pytest.raises(ConfigError, match="num_blocks"):
        seen.reload()


def test_without_a_file_there_is_nothing_to_read_again(told: Callable[..., Told]) -> None:
    with pytest.raises(ConfigError, match="there is no --config file"):
        told().reload()


def test_without_ray_it_names_the_command_that_installs_it(
    yaie: Yaie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    ran = yaie("cluster", "--port", "0")
    assert ran.code == 2
    assert "needs Ray, which is not installed: .venv/bin/pip install" in " ".join(ran.err.split())
    assert "loading" not in ran.err


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"min_replicas": 0}, "min_replicas must be at least 1"),
    (
        {"min_replicas": 3, "max_replicas": 2},
        r"max_replicas must not be less than min_replicas \(3\)",
    ),
    ({"max_ongoing_requests": 0}, "max_ongoing_requests must be at least 1"),
    ({"target_ongoing_requests": 0.0}, "target_ongoing_requests must be above 0"),
    ({"upscale_delay": -1.0}, "upscale_delay must be 0 or more seconds"),
    ({"downscale_delay": float("inf")}, "downscale_delay must be 0 or more seconds"),
    ({"imbalance": -1}, "imbalance must be 0 or more"),
    ({"cpus_per_replica": 1.5}, "cpus_per_replica must be a whole number above 1"),
    ({"gpus_per_replica": -1}, "gpus_per_replica must be 0 or more"),
    ({"health_check_period": 0.0}, "health_check_period must be above 0"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_a_value_out_of_range_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClusterSettings(**given)


@pytest.mark.parametrize("name", NOT_HERE)
def test_a_setting_that_cannot_hold_has_no_flag_and_is_refused(yaie: Yaie, name: str) -> None:
    flag = f"--{name.replace('_', '-')}"
    assert f"{flag} " not in yaie("cluster", "--help").out
    apart = {
        "role": "decode",
        "handover": "a.sock",
        "handover_tokens": 9,
        "handover_key_file": "a.key",
    }  # none holds without a role
    others: dict[str, dict[str, Any]] = {
        "step": {"step": True},
        "log_file": {"log_file": "a.log"},
        "max_connections": {"max_connections": 7},
        "tenant_keys": {"tenant_keys": True, "api_key": ("secret",)},
    }
    given, named = (apart, "role") if name in apart else (others[name], name)
    with pytest.raises(ConfigError, match=f"{named} has no effect on a cluster"):
        refuse_what_does_not_hold(ServerSettings(**given))


def test_a_taken_port_is_told_before_ray_starts(
    yaie: Yaie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yaie.cli.cluster.import_ray", lambda: None)
    with listen("127.0.0.1", 0) as taken:
        ran = yaie("cluster", "--port", str(taken.getsockname()[1]))
    assert (ran.code, "is in use" in ran.err) == (2, True)
