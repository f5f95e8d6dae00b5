"""Keeps an engine alive that runs a learner's parts: what they raise ends requests, not the engine.

`LLMEngine` reaches its machine through the Supervisor here. When a part fails,

    requests that had started    end with FinishReason.ERROR and lab, file and line in `error`
    the machine                  is thrown away: after an exception in the middle of a step nobody knows
                                 which of its tables still agree. A fresh one is assembled.
    requests that had not        wait in the fresh machine; if a step fails and none had started, all
                                 end, so that every failure brings the engine forward

An engine of reference parts alone is not kept alive: there an exception is a bug of ours.
"""

import gc
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from yaie.core.batch import StepPlan
from yaie.core.blame import line_in, line_of_ours, lines_of, summarize
from yaie.core.config import EngineConfig
from yaie.core.contracts import EngineCore
from yaie.core.errors import (
    ConfigError,
    EngineDeadError,
    InvalidRequestError,
    PartError,
    YaieError,
)
from yaie.core.request import FinishReason, Request, RequestOutput, RequestStatus
from yaie.engine.assembly import Machine, assemble
from yaie.engine.backends import Backend
from yaie.models.loader import LoadedModel
from yaie.parts import Part, Parts

logger = logging.getLogger(__name__)

NOT_IN_A_STEP = frozenset({"api_server"})
"""Labs whose part does not belong to the machine."""

T = TypeVar("T")


class Supervisor:
    """The machine in use, and the requests that it owes an end, whatever its step loop forgets."""

    def __init__(
        self,
        config: EngineConfig,
        backend: Backend,
        parts: Parts,
        model: LoadedModel,
        max_model_len: int,
        on_plan: Callable[[StepPlan], None] | None = None,
    ) -> None:
        """on_plan: for the runner. Raises ConfigError, or PartError for a part that cannot be made."""
        self._mine = parts_in_steps(parts.table())
        self._assemble = partial(
            assemble,
            backend=backend,
            parts=parts,
            model=model,
            max_model_len=max_model_len,
            on_plan=on_plan,
        )
        self._config = config
        self._live: dict[str, Request] = {}
        self._closed: list[RequestOutput] = []
        self.machine = self._assembled()

    @property
    def has_work(self) -> bool:
        """Whether a request is not over, or its end has not been told."""
        return bool(self._live or self._closed)

    @property
    def num_waiting(self) -> int:
        """Raises PartError."""
        return self._guarded(lambda: int(self.machine.scheduler.num_waiting))

    def add(self, requests: Sequence[Request]) -> None:
        """Queue all of them, or none. Raises InvalidRequestError if an id is in use, or PartError."""
        self._guarded(lambda: self._add(requests), InvalidRequestError)
        self._live |= {request.request_id: request for request in requests}

    def abort(self, request_id: str) -> bool:
        """End a request now; False if it is unknown or over."""
        if self._live.pop(request_id, None) is None:
            return False
        with suppress(PartError):  # this request is over all the same
            self._guarded(lambda: self.machine.core.abort(request_id))
        return True

    def step(self) -> list[RequestOutput]:
        """One step, or the last outputs of the requests that a failure has ended since the last one."""
        outputs: list[RequestOutput] = []
        if not self._closed:
            with suppress(PartError):  # its victims are closed
                outputs = self._guarded(self._step, must_end=True)
        closed, self._closed = self._closed, []
        return outputs + closed

    def reset_prefix_cache(self) -> int:
        """See `KVCacheManager`. Raises PartError."""
        return self._guarded(lambda: self.machine.cache.reset_prefix_cache())

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
            if not self._mine:
                raise
            failure = explain(error, self._mine)
            logger.error("%s", failure, exc_info=True)
        # Only here are the error's frames gone, and with them the last references to the old pool.
        self._recover(failure, must_end)
        raise PartError(failure)

    def _add(self, requests: Sequence[Request]) -> None:
        core = self.machine.core
        for index, request in enumerate(requests):
            try:
                core.add_request(request)
            except InvalidRequestError:
                for queued in requests[:index]:
                    core.abort(queued.request_id)
                raise

    def _step(self) -> list[RequestOutput]:
        core = self.machine.core
        if self._live and not core.has_work:
            raise RuntimeError(f"the step loop has forgotten {len(self._live)} requests")
        outputs = core.step()
        if self._mine:
            _check(outputs)
        for output in outputs:
            if output.finish_reason is not None:
                self._live.pop(output.request.request_id, None)
        return outputs

    # --- after a failure ---

    def _recover(self, failure: str, must_end: bool) -> None:
        """End what had started, assemble afresh, queue the rest again. Raises EngineDeadError."""
        self._end_started(failure, must_end)
        # The core holds the pool, which must go before the next one comes. Scheduler and cache stay
        # until then, for whoever asks for figures meanwhile.
        self._config = replace(self._config, num_blocks=self.machine.num_blocks)
        self.machine = replace(self.machine, core=cast(EngineCore, None))
        gc.collect()
        try:
            self.machine = self._assembled()
        except YaieError as error:
            self._live.clear()
            raise EngineDeadError(f"the engine cannot start again: {error.message}") from error
        with suppress(PartError):  # then they are closed as well
            self._guarded(lambda: self._add(list(self._live.values())), must_end=True)

    def _end_started(self, failure: str, must_end: bool) -> None:
        started = {request for request in self._live.values() if _has_started(request)}
        # Forks are one answer with the request whose blocks they would have shared.
        started |= {request for request in self._live.values() if request.fork_of in started}
        end_all = must_end and not started
        for request in list(self._live.values()):
            if request in started or end_all:
                request.status, request.finish_reason = RequestStatus.FINISHED, FinishReason.ERROR
                request.error = failure
                del self._live[request.request_id]
                self._closed.append(RequestOutput(request, "", [], FinishReason.ERROR))
            else:
                request.num_computed_tokens = request.num_cached_tokens = 0

    def _assembled(self) -> Machine:
        """A machine of the parts. Raises ConfigError, or PartError instead of what a part raised."""
        try:
            return self._assemble(self._config)
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:
            if not self._mine:
                raise
            raise PartError(explain(error, self._mine)) from error


def parts_in_steps(parts: Sequence[Part]) -> list[Part]:
    """The learner's parts that the machine runs."""
    return [part for part in parts if part.is_yours and part.lab not in NOT_IN_A_STEP]


def explain(error: BaseException, mine: Sequence[Part]) -> str:
    """Which of the learner's parts failed, why and in which line; with no line in one, which ran."""
    for file, _ in lines_of(error):
        for part in mine:
            if file.is_relative_to(part.folder):
                where = line_in(part.folder, error)
                return f"your part {part.lab} failed: {summarize(error)} ({where})"
    names = ", ".join(part.lab for part in mine)
    return f"the engine failed on your {names}: {summarize(error)} ({line_of_ours(error)})"


def _has_started(request: Request) -> bool:
    return request.status is not RequestStatus.WAITING or request.num_output_tokens > 0


def _check(outputs: Any) -> None:
    """Raise TypeError for what would otherwise fail in somebody else's hands, on another thread."""
    if not isinstance(outputs, list):
        raise TypeError(f"step() must return a list of RequestOutputs, got {outputs!r:.80}")
    for output in outputs:
        well_formed = (
            isinstance(output, RequestOutput)
            and isinstance(output.request, Request)
            and isinstance(output.text, str)
            and isinstance(output.token_ids, list)
        )
        if not well_formed:
            raise TypeError(f"step() returned {output!r:.80}, which is no whole RequestOutput")
