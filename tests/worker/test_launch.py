"""What a launcher says is recognised, checked against the configuration, and refused by the variable."""

import pytest

from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.worker.parallel.launch import Launch, launched

SECRET = {"YAIE_RANK_SECRET": "of both processes\n"}
NEEDED = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "29500"}
SET = NEEDED | SECRET
TWO = EngineConfig(pipeline_parallel=2)


def test_a_launch_is_what_the_variables_say() -> None:
    assert Launch.from_environment(SET) == Launch(
        1, 2, 0, 1, "10.0.0.7", 29500, b"of both processes"
    )
    several = {**SET, "WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    launch = Launch.from_environment(several)
    assert launch == Launch(3, 4, 1, 2, "10.0.0.7", 29500, b"of both processes")
    assert "of both" not in repr(launch)
    assert launched(SET, TWO) == Launch.from_environment(SET)


@pytest.mark.parametrize("missing", NEEDED)
def test_without_one_of_them_there_is_no_launch(missing: str) -> None:
    assert launched({**SET, missing: ""}, TWO) is None
    assert launched({name: value for name, value in SET.items() if name != missing}, TWO) is None


def test_one_process_for_one_rank_is_no_launch() -> None:
    assert launched({**NEEDED, "RANK": "0", "WORLD_SIZE": "1"}, EngineConfig()) is None


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"RANK": "2"}, "RANK must be a whole number from 0 to 1, got '2'"),
        ({"RANK": "-1"}, "RANK must be a whole number from 0 to 1, got '-1'"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE must be a whole number from 1, got 'two'"),
        ({"MASTER_PORT": "65536"}, "MASTER_PORT must be a whole number from 1 to 65535"),
        ({"LOCAL_RANK": "1"}, "LOCAL_RANK must be a whole number from 0 to 0"),
        ({"LOCAL_WORLD_SIZE": "0"}, "LOCAL_WORLD_SIZE must be a whole number from 1, got '0'"),
    ],
)
def test_a_variable_that_cannot_be_is_named(changed: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        launched({**SET, **changed}, TWO)
    assert refused.value.param == next(iter(changed))


@pytest.mark.parametrize(
    ("config", "param"),
    [
        (EngineConfig(), "tensor_parallel"),
        (EngineConfig(tensor_parallel=4), "tensor_parallel"),
        (EngineConfig(tensor_parallel=2, pipeline_parallel=2), "pipeline_parallel"),
    ],
)
def test_as_many_processes_as_ranks_are_needed(config: EngineConfig, param: str) -> None:
    told = rf"started 2 processes \(WORLD_SIZE\), .* needs {config.num_ranks}: change one of them"
    with pytest.raises(ConfigError, match=told) as refused:
        launched(SET, config)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("secret", "told"), [({}, "is not set"), ({"YAIE_RANK_SECRET": "too short"}, "has 9 bytes")]
)
def test_ranks_of_a_launcher_need_a_secret_and_are_told_how_to_make_one(
    secret: dict[str, str], told: str
) -> None:
    words = rf"YAIE_RANK_SECRET {told}, .* run `openssl rand -hex 32` once, .* on every host"
    with pytest.raises(ConfigError, match=words) as refused:
        launched({**NEEDED, **secret}, TWO)
    assert refused.value.param == "YAIE_RANK_SECRET"
