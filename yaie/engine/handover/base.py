"""What an engine asks of its side, where prefill and decode are apart."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from yaie.core.errors import YaieError
from yaie.core.output import RequestOutput
from yaie.core.request import Request

logger = logging.getLogger(__name__)


class Handover(Protocol):
    """Stands before the step loop. Called on the engine's thread alone.

    num_pending: requests that wait for blocks from elsewhere.
    """

    @property
    def num_pending(self) -> int: ...

    @property
    def has_work(self) -> bool:
        """Whether there is something to do besides a step."""
        ...

    def takes(self, requests: Sequence[Request]) -> bool:
        """Keep the requests of a new prompt, to queue them later. False: queue them now."""
        ...

    def abort(self, request_id: str) -> bool:
        """End a request that is kept; False if it is not."""
        ...

    def before_step(self) -> list[RequestOutput]:
        """Take in what has come from elsewhere. Returns the ends of requests that cannot be queued."""
        ...

    def own(self, outputs: list[RequestOutput]) -> list[RequestOutput]:
        """Those outputs of a step that callers of this engine asked for."""
        ...

    def on_wake(self, wake: Callable[[], None]) -> None:
        """Call this, on any thread, when `has_work` has become true without a call here."""
        ...

    def stats(self) -> dict[str, float]:
        """Counters since the start."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


def why_not_queued(error: Exception) -> str:
    """The message for a request that could not be queued. It has no caller to raise the error to, so the
    error ends this request alone; an unexpected one is logged with its traceback."""
    if isinstance(error, YaieError):
        return str(error)
    logger.error("a request could not be queued", exc_info=error)
    return f"the request could not be queued ({type(error).__name__}): the engine's log has the details"
