"""The server's settings: where they come from, and what is wrong with the wrong ones."""

from typing import Any

import pytest

from yaie.core.errors import ConfigError
from yaie.server.settings import ServerSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", -1),
        ("port", 65536),
        ("port", "8000"),
        ("host", None),
        ("drain_seconds", -1.0),
        ("step_timeout", float("nan")),
        ("queue_timeout", float("inf")),
        ("request_timeout", -0.5),
        ("receive_timeout", 0.0),
        ("step_seconds", -0.1),
        ("max_body_bytes", 0),
        ("max_concurrent_requests", 0),
        ("max_connections", 0),
        ("served_model_name", ""),
        ("log_level", "loud"),
        ("log_json", "yes"),
        ("allowed_origins", ["*"]),
        ("allowed_origins", (1,)),
    ],
)
def test_wrong_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        ServerSettings(**{name: value})
    assert refused.value.param == name
    assert name in refused.value.message


def test_flag_goes_before_environment_and_that_before_the_default() -> None:
    environ = {"YAIE_QUEUE_TIMEOUT": "7.5", "YAIE_LOG_JSON": "true", "YAIE_ALLOWED_ORIGINS": "*"}
    settings = ServerSettings.load({"queue_timeout": None}, environ=environ)
    assert (settings.queue_timeout, settings.log_json) == (7.5, True)
    assert settings.allowed_origins == ("*",)
    assert ServerSettings.load({"queue_timeout": 1.0}, environ=environ).queue_timeout == 1.0
    assert ServerSettings.load({}, environ={}) == ServerSettings()


def test_port_of_a_kubernetes_service_is_not_mistaken_for_ours() -> None:
    environ = {"YAIE_PORT": "tcp://10.0.0.1:8000", "YAIE_HOST": "x"}
    assert ServerSettings.load({}, environ=environ) == ServerSettings()


def test_wrong_value_in_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="YAIE_STEP_TIMEOUT"):
        ServerSettings.load({}, environ={"YAIE_STEP_TIMEOUT": "soon"})


def test_changed_settings_are_told() -> None:
    settings = ServerSettings(port=1, api_key=("k",))
    assert settings.non_default() == {"port": 1}
