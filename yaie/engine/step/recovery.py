"""Keeps an engine alive that runs a learner's parts: what they raise ends requests, not the engine.

It stands around a machine, and only where a learner's part runs in it. What concerns one request alone
ends that one (`isolation.py`). When a part fails in what all share,

    requests that had started    end with FinishReason.ERROR and lab, file and line in `error`
    the machine                  is thrown away: after an exception in the middle of a step its tables
                                 may disagree. A fresh one is assembled.
    requests that had not        wait in the fresh machine; if a step fails and none had started, all
                                 end, which brings the engine forward with every failure

An engine of reference parts alone is not kept alive: there an exception is a bug of ours.
"""

import gc
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from yaie.core.batch import KVLayerSpec
from yaie.core.config import EngineConfig
from yaie.core.contracts import (
    BlockManager,
    KVCacheManager,
    RadixTree,
    Scheduler,
    Worker,
)
from yaie.core.errors import (
    ConfigError,
    EngineDeadError,
    InvalidRequestError,
    PartError,
    YaieError,
)
from yaie.core.output import RequestOutput
from yaie.core.request import FailureKind, FinishReason, Request, RequestStatus
from yaie.engine.machine import Machine
from yaie.engine.step.explaining import explained
from yaie.engine.step.isolated import IsolatingCore
from yaie.parts import Parts
from yaie.worker.build import Sizes

logger = logging.getLogger(__name__)

T = TypeVar("T")


class RecoveringMachine:
    """A Machine, and the step loop of that machine, whose failures end requests.

    It remembers the requests that it owes an end, whatever the step loop inside forgets.
    """

    def __init__(
        self, make: Callable[[EngineConfig], Machine], config: EngineConfig, parts: Parts
    ) -> None:
        """make: assembles a machine. Raises ConfigError, or PartError for a part that cannot be made."""
        self._make = make
        self._config = config
        self._parts = parts
        self._live: dict[str, Request] = {}
        self._closed: list[RequestOutput] = []
        self._pace = 0.0
        self._machine = self._made()

    # --- as a Machine ---

    @property
    def core(self) -> "RecoveringMachine":
        return self

    @property
    def scheduler(self) -> Scheduler:
        return self._machine.scheduler

    @property
    def cache(self) -> KVCacheManager:
        return self._machine.cache

    @property
    def blocks(self) -> BlockManager:
        return self._machine.blocks

    @property
    def tree(self) -> RadixTree | None:
        return self._machine.tree

    @property
    def worker(self) -> Worker:
        return self._machine.worker

    @property
    def sizes(self) -> Sizes:
        return self._machine.sizes

    @property
    def kv_layers(self) -> list[KVLayerSpec]:
        return self._machine.kv_layers

    def follow_grammars(self) -> None:
        """See Machine."""
        self._machine.follow_grammars()

    def pace(self, limit: float) -> None:
        """See Machine. Holds for the machines to come, too."""
        self._pace = limit
        self._machine.pace(limit)

    @property
    def note(self) -> str:
        return self._machine.note

    def guarded(self, call: Callable[[], T]) -> T:
        """What `call` returns, which calls parts between two steps. Raises PartError, recovered."""
        return self._guarded(call)

    @property
    def num_waiting(self) -> int:
        """Raises PartError."""
        return self._guarded(lambda: int(self._machine.core.num_waiting))

    def reset_prefix_cache(self) -> int:
        """See `KVCacheManager`. Raises PartError."""
        return self._guarded(lambda: self._machine.reset_prefix_cache())

    # --- as a step loop ---

    @property
    def has_work(self) -> bool:
        """Whether a request is not over, or its end has not been told."""
        return bool(self._live or self._closed)

    def add_request(self, request: Request) -> None:
        """Queue a request. Raises InvalidRequestError if its id is in use, or PartError."""
        self._guarded(lambda: self._machine.core.add_request(request), InvalidRequestError)
        self._live[request.request_id] = request

    def abort(self, request_id: str) -> bool:
        """End a request now; False if it is unknown or over."""
        if self._live.pop(request_id, None) is None:
            return False
        with suppress(PartError):  # this request is over all the same
            self._guarded(lambda: self._machine.core.abort(request_id))
        return True

    def step(self) -> list[RequestOutput]:
        """One step, or the last outputs of the requests that a failure has ended since the last one."""
        outputs: list[RequestOutput] = []
        if not self._closed:
            with suppress(PartError):  # its victims are closed
                outputs = self._guarded(self._step, must_end=True)
        closed, self._closed = self._closed, []
        return outputs + closed

    # --- calls into the parts ---

    def _guarded(
        self, call: Callable[[], T], *passes: type[Exception], must_end: bool = False
    ) -> T:
        """What `call` returns. If a learner's part raises, recovers, then raises PartError.

        passes: errors that belong to the caller. must_end: at least one request has to end, because
        `call` would be made again on the same ones.
        """
        allowed: tuple[type[BaseException], ...] = (KeyboardInterrupt, *passes)
        try:
            return call()
        except allowed:
            raise
        except BaseException as error:  # a learner's part may even raise SystemExit
            failure = explained(error, self._parts)
            logger.error("%s", failure, exc_info=True)
        # Only here are the error's frames gone, and with them the last references to the old pool.
        self._recover(failure, must_end)
        raise PartError(failure)

    def _step(self) -> list[RequestOutput]:
        core = self._machine.core
        if self._live and not core.has_work:
            raise RuntimeError(f"the step loop has forgotten {len(self._live)} requests")
        outputs = core.step()
        _check(outputs)
        for output in outputs:
            if output.finish_reason is not None:
                self._live.pop(output.request_id, None)
        return outputs

    # --- after a failure ---

    def _recover(self, failure: str, must_end: bool) -> None:
        """End what had started, assemble afresh, queue the rest again. Raises EngineDeadError."""
        self._end_started(failure, must_end)
        # Core and worker hold the pool, which must go before the next one comes. Scheduler and cache
        # stay until then, for those who ask for figures meanwhile.
        # What was measured at start holds, and nobody is to wait while graphs are recorded again.
        num_blocks = self._machine.sizes.num_blocks
        self._config = replace(
            self._config, num_blocks=num_blocks, graphs=self._machine.graphs_again
        )
        self._machine.worker.close()
        self._machine.core, self._machine.worker = cast(IsolatingCore, None), cast(Worker, None)
        gc.collect()
        follows_grammars = self._machine.drafts.follows_grammars
        try:
            self._machine = self._made()
        except YaieError as error:
            self._live.clear()
            raise EngineDeadError(f"the engine cannot start again: {error.message}") from error
        if follows_grammars:
            self._machine.follow_grammars()
        if self._pace:
            self._machine.pace(self._pace)
        with suppress(PartError):  # then they are closed as well
            self._guarded(self._queue_again, must_end=True)

    def _queue_again(self) -> None:
        for request in list(self._live.values()):
            self._machine.core.add_request(request)

    def _end_started(self, failure: str, must_end: bool) -> None:
        started = {request for request in self._live.values() if _has_started(request)}
        # Forks are one answer with the request whose blocks they would have shared.
        started |= {request for request in self._live.values() if request.fork_of in started}
        end_all = must_end and not started
        for request in list(self._live.values()):
            if request in started or end_all:
                request.status, request.finish_reason = RequestStatus.FINISHED, FinishReason.ERROR
                request.error, request.failure = failure, FailureKind.PART
                del self._live[request.request_id]
                self._closed.append(RequestOutput.of(request, "", [], FinishReason.ERROR))
            else:
                request.num_computed_tokens = request.num_cached_tokens = 0
                request.num_in_flight = request.num_output_placeholders = 0

    def _made(self) -> Machine:
        """A machine of the parts. Raises ConfigError, or PartError instead of what a part raised."""
        try:
            return self._make(self._config)
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:
            raise PartError(explained(error, self._parts)) from error


def _has_started(request: Request) -> bool:
    return request.status is not RequestStatus.WAITING or request.num_output_tokens > 0


def _check(outputs: Any) -> None:
    """Raise TypeError for what would otherwise fail elsewhere, on another thread."""
    if not isinstance(outputs, list):
        raise TypeError(f"step() must return a list of RequestOutputs, got {outputs!r:.80}")
    for output in outputs:
        well_formed = (
            isinstance(output, RequestOutput)
            and isinstance(output.request_id, str)
            and isinstance(output.text, str)
            and isinstance(output.token_ids, list)
        )
        if not well_formed:
            raise TypeError(f"step() returned {output!r:.80}, which is no whole RequestOutput")
