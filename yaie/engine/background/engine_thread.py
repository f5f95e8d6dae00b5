"""The thread on which an engine lives, and the inbox through which it is told what to do.

All that touches the engine's state happens here, between two steps. Commands come from the event loop of
`AsyncEngine`; in a process of its own, from the thread of `engine_child.py` that reads the pipe.
"""

import gc
import time
from queue import Empty
from typing import TYPE_CHECKING

from yaie.core.errors import plain
from yaie.core.output import RequestOutput, Submitted
from yaie.core.request import Request
from yaie.engine.background.latencies import Latencies
from yaie.engine.background.messages import (
    Admit,
    Call,
    Command,
    Lose,
    Pace,
    Replied,
    Stepped,
    Stop,
    Unwatch,
    Wake,
    Watch,
    Withdraw,
)
from yaie.engine.background.thread_life import Load, ThreadLife
from yaie.system.gc_tuning import DUE, collect_at_rest

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine

CALM = 1.0
"""Seconds without work before the garbage collector has its turn. An answer that just ended is with its
writer then."""


class EngineThread(ThreadLife):
    """Commands are obeyed in order, between two steps. See `ThreadLife` for how it comes and goes."""

    def __init__(self, load: Load, step_timeout: float = 0.0, *, step_mode: bool = False) -> None:
        """See ThreadLife."""
        super().__init__(load, step_timeout, step_mode=step_mode)
        self._owners: dict[str, int] = {}  # the submission of each request that is alive, and
        self._live: dict[int, dict[str, Request]] = {}  # its requests that are

    # --- for its driver: see `Driver` ---

    def send(self, command: Command) -> None:
        match command:
            case Admit(number, params=params):
                self._wanted.add(number)
                if params is not None and params.constraint is not None:
                    self.telemetry.deferred[number] = len(command.prompts) * params.n
                    self.changed.set()
                    self._checker.submit(self._check, command)
                    return
            case Call(number):
                self._wanted.add(number)
            case Withdraw(number):  # at once, though the thread is busy and others wait before it
                self._wanted.discard(number)
                self.telemetry.deferred.pop(number, None)
        self._inbox.put(command)

    # --- on the thread ---

    # ANCHOR: run
    def _work(self, engine: "LLMEngine", latencies: Latencies) -> None:
        works = False
        while self._running:
            if not works or not self._inbox.empty():
                self._obey(engine, latencies, wait=not works)
            works = self._running and self._steps.left != 0 and engine.has_work
            if works:
                self._watchdog.began = time.monotonic()
                outputs = engine.step()
                self._watchdog.began = None
                self._publish(engine, latencies, outputs)

    def _obey(self, engine: "LLMEngine", latencies: Latencies, wait: bool) -> None:
        if wait:
            latencies.rest()
            if self._publisher.is_on:
                self._publisher.idle()
        while self._running and (wait or not self._inbox.empty()):  # no other thread takes from it
            self._do(self._next_command(), engine, latencies)
            wait = False

    # ANCHOR_END: run

    def _next_command(self) -> Command:
        try:
            return self._inbox.get(timeout=CALM)
        except Empty:
            if gc.get_count()[2] >= DUE:
                collect_at_rest()
            return self._inbox.get()

    def _do(self, command: Command, engine: "LLMEngine", latencies: Latencies) -> None:
        match command:
            case Stop():
                self._running = False
                for number in list(self._live):
                    self._abort(number, engine, latencies)
            case Wake():
                pass  # `has_work` is true now
            case Lose(error):
                raise error
            case Withdraw(number):
                self._abort(number, engine, latencies)
            case Watch() | Unwatch() | Pace():
                alive = (request for live in self._live.values() for request in live.values())
                self._steps.obey(command, alive, has_work=engine.has_work)
            case Admit(number) | Call(number) if number not in self._wanted:
                self._tell(Replied(number))
            case Admit(number):
                self._wanted.discard(number)
                self._admit(command, engine, latencies)
            case Call(number, name, args):
                self._wanted.discard(number)
                try:
                    self._tell(Replied(number, getattr(engine, name)(*args)))
                except BaseException as error:  # noqa: BLE001, the caller gets it
                    self._tell(Replied(number, error=plain(error)))

    def _admit(self, command: Admit, engine: "LLMEngine", latencies: Latencies) -> None:
        requests: list[Request] = []
        try:
            for prompt in command.prompts:
                requests += engine.add_request(prompt, command.params, priority=command.priority)
        except BaseException as error:  # noqa: BLE001, the caller gets it
            for request in requests:
                engine.abort(request.request_id)
            self._tell(Replied(command.number, error=plain(error)))
        else:
            alive = {request.request_id: request for request in requests}
            self._live[command.number] = alive
            self._owners |= dict.fromkeys(alive, command.number)
            latencies.refresh()
            if self._publisher.is_on:
                self._publisher.arrived(requests)
            self._tell(Replied(command.number, [Submitted.of(request) for request in requests]))

    def _publish(
        self, engine: "LLMEngine", latencies: Latencies, outputs: list[RequestOutput]
    ) -> None:
        wanted = [
            (self._live[owner][output.request_id], output)
            for output in outputs  # without an owner: aborted, and the part in use has not noticed
            if (owner := self._owners.get(output.request_id)) is not None
        ]
        started = engine.take_started()
        latencies.stepped(wanted, has_started=bool(started))
        if self._publisher.is_on:
            self._publisher.stepped(outputs)
        if self._steps.left:
            self._steps.left -= 1
        if wanted or started:
            self._tell(Stepped([output for _, output in wanted], started))
        for _, output in wanted:
            if output.finish_reason is not None:
                self._forget(output.request_id)

    def _forget(self, request_id: str) -> None:
        owner = self._owners.pop(request_id)
        del self._live[owner][request_id]
        if not self._live[owner]:
            del self._live[owner]

    def _abort(self, number: int, engine: "LLMEngine", latencies: Latencies) -> None:
        for request_id, request in self._live.pop(number, {}).items():
            del self._owners[request_id]
            latencies.aborted(request)
            engine.abort(request_id)
        latencies.refresh()
