"""Why a request failed: by kind, and as the error that its caller gets."""

from yaie.core.compat import StrEnum
from yaie.core.errors import ConstraintError, EngineOverloadedError, KVPoolTooSmallError, YaieError


class FailureKind(StrEnum):
    """Why a request ended with `FinishReason.ERROR`."""

    CORRUPTED = "corrupted"  # the model computed NaN or infinity
    CONSTRAINT = "constraint"  # its output cannot be kept to its grammar
    CAPACITY = "capacity"  # it does not fit the engine, even alone
    MEMORY = "memory"  # the device had no memory for its prompt just then
    PART = "part"  # a learner's part failed
    ENGINE = "engine"  # something else


def error_of(failure: FailureKind | None, message: str) -> YaieError:
    """What to tell the caller of a request that failed.

    What the request itself brings about is an InvalidRequestError: sent again, it fails again, and
    clients try again on what a server seems to be to blame for.
    """
    if failure is FailureKind.CONSTRAINT:
        return ConstraintError(message, param="response_format")
    if failure is FailureKind.CAPACITY:
        return KVPoolTooSmallError(message, param="max_tokens")
    if failure is FailureKind.MEMORY:
        return EngineOverloadedError(message)
    return YaieError(message)
