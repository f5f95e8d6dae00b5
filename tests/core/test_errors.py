"""Each error maps to one HTTP status, and says which parameter was wrong."""

import pytest

import yaie
from yaie.core import errors
from yaie.core.errors import YaieError

STATUSES = {
    "ConfigError": (400, "invalid_request_error", "invalid_config"),
    "ModelError": (400, "invalid_request_error", "model_error"),
    "PartError": (500, "server_error", "part_error"),
    "KernelError": (500, "server_error", "kernel_error"),
    "InvalidRequestError": (400, "invalid_request_error", "invalid_value"),
    "ContextLengthError": (400, "invalid_request_error", "context_length_exceeded"),
    "KVPoolTooSmallError": (400, "invalid_request_error", "kv_pool_too_small"),
    "ConstraintError": (400, "invalid_request_error", "constraint_failed"),
    "ModelNotFoundError": (404, "not_found_error", "model_not_found"),
    "EngineOverloadedError": (503, "overloaded_error", "overloaded"),
    "QueueTimeoutError": (503, "overloaded_error", "queue_timeout"),
    "RequestTimeoutError": (504, "server_error", "request_timeout"),
    "EngineUnavailableError": (503, "server_error", "engine_unavailable"),
    "EngineDeadError": (503, "server_error", "engine_dead"),
    "LostPartError": (503, "server_error", "part_error"),
    "RankError": (503, "server_error", "rank_lost"),
    "OutOfBlocksError": (500, "server_error", "out_of_blocks"),
    "BlockStateError": (500, "server_error", "block_state"),
}


@pytest.mark.parametrize("name", STATUSES)
def test_error_maps_to_its_status(name: str) -> None:
    error = getattr(errors, name)("what was wrong", param="field")
    assert isinstance(error, YaieError)
    assert (error.status, error.type, error.code) == STATUSES[name]


def test_every_error_has_a_status_here() -> None:
    ours = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, YaieError) and value is not YaieError
    }
    assert ours == set(STATUSES)


def test_error_carries_its_message_and_parameter() -> None:
    error = YaieError("what was wrong", param="field")
    assert (str(error), error.message, error.param) == ("what was wrong", "what was wrong", "field")
    assert YaieError("x").param is None


def test_broken_invariant_is_an_assertion_and_nothing_a_client_sees() -> None:
    assert issubclass(errors.InvariantError, AssertionError)
    assert not issubclass(errors.InvariantError, YaieError)


def test_these_names_are_public() -> None:
    assert yaie.__all__ == ["EngineConfig", "LLMEngine", "SamplingParams", "__version__"]


@pytest.mark.parametrize("name", ["EngineConfig", "LLMEngine", "SamplingParams"])
def test_public_names_load_on_first_use(name: str) -> None:
    assert getattr(yaie, name).__name__ == name


def test_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = yaie.nothing_here
