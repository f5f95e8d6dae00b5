"""What can go wrong, as types. Each error says what was wrong and what to do about it.

Every error carries the HTTP status it maps to (`status`), OpenAI's error `type` and `code`, and the
name of the offending parameter where there is one. The command line prints the message and exits
with code 2; the server turns the same object into a response.
"""


class YaieError(Exception):
    """Base of every error raised on purpose."""

    status: int = 500
    type: str = "server_error"
    code: str | None = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class ConfigError(YaieError):
    """A setting is out of range, contradicts another one, or needs what this machine lacks."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_config"


class ModelError(YaieError):
    """A model cannot be loaded: missing, gated, incomplete, unsafe, or of an unknown architecture."""

    status = 400
    type = "invalid_request_error"
    code = "model_error"


class PartError(YaieError):
    """A part that was asked for is unfinished, or failed while the engine ran on it.

    The message names lab, task and chapter (unfinished) or lab, file and line (failed).
    """

    code = "part_error"


class KernelError(YaieError):
    """A CUDA kernel cannot be compiled, or failed. The message says how to get on."""

    code = "kernel_error"


class InvalidRequestError(YaieError):
    """A request that no engine state could serve; the client must change it."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_value"


class ContextLengthError(InvalidRequestError):
    """Prompt and requested output together exceed the model's context."""

    code = "context_length_exceeded"


class KVPoolTooSmallError(InvalidRequestError):
    """The request fits the model's context but never the KV pool, even alone."""

    code = "kv_pool_too_small"


class ConstraintError(InvalidRequestError):
    """The output could not be kept to its schema or grammar. The same request would fail again."""

    code = "constraint_failed"


class UnsupportedSchemaError(Exception):
    """A JSON schema says something that lab 21's grammars do not know. keyword: which.

    The engine then has llguidance follow it: no client sees this, so it has no status.
    """

    def __init__(self, keyword: str) -> None:
        super().__init__(f"grammars for {keyword!r} are not supported")
        self.keyword = keyword


class ModelNotFoundError(InvalidRequestError):
    """The request names a model that this server does not serve."""

    status = 404
    type = "not_found_error"
    code = "model_not_found"


class EngineOverloadedError(YaieError):
    """The queue is full; try again later."""

    status = 503
    type = "overloaded_error"
    code = "overloaded"


class QueueTimeoutError(EngineOverloadedError):
    """The request waited too long for its first turn; try again later."""

    code = "queue_timeout"


class RequestTimeoutError(YaieError):
    """The request ran for longer than this server allows; ask for less."""

    status = 504
    code = "request_timeout"


class EngineUnavailableError(YaieError):
    """The engine is still loading, or already shutting down; another replica may be ready."""

    status = 503
    code = "engine_unavailable"


class EngineDeadError(YaieError):
    """The engine stopped after an unexpected failure; nothing more will be generated."""

    status = 503
    type = "server_error"
    code = "engine_dead"


class LostPartError(EngineDeadError):
    """A learner's part failed on a rank, which ends the engine: the model is not whole any more. The
    message names lab, file and line, and clients are told."""

    code = "part_error"


def engine_is_dead(failure: BaseException | None) -> EngineDeadError:
    """What callers are told of an engine that this has ended: the reason stays here, unless a learner's
    part is it."""
    if isinstance(failure, LostPartError):
        return failure
    return EngineDeadError("The engine stopped after an internal failure.")


class RankError(EngineDeadError):
    """Another rank has died, or has not come to a transfer in time; the model is not whole any more."""

    code = "rank_lost"


class OutOfBlocksError(YaieError):
    """More blocks were asked for than are free. The cache manager evicts or preempts on it."""

    code = "out_of_blocks"


class BlockStateError(YaieError):
    """A block was freed, shared or copied that nobody holds: a bug in the caller."""

    code = "block_state"


class InvariantError(AssertionError):
    """`check()` found a broken invariant. The message says which, with the values that break it."""


def plain(error: BaseException) -> Exception:
    """What a caller on another thread gets of an error. A library in Rust that panics raises what is no
    Exception, and would end whatever runs there. Raises KeyboardInterrupt."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    return (
        error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
    )
