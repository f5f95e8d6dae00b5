"""How long requests take, gathered step by step for the operator of an engine.

`Latencies` writes a `Telemetry`, on the engine's thread alone, for a few dictionary look-ups an output.
"""

import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING

from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request
from yaie.engine.background.telemetry import Histogram, Telemetry

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine

logger = logging.getLogger(__name__)

FRESH_SECONDS = 0.25
"""How old the engine's figures may be while the same requests run: to read them takes a dozen calls."""


class Latencies:
    """Gathers the telemetry of one engine, on its thread."""

    def __init__(self, engine: "LLMEngine", changed: threading.Event) -> None:
        """changed: is set whenever the telemetry has changed."""
        self.telemetry = Telemetry(engine.info.max_model_len)
        self._engine = engine
        self._changed = changed
        self._first: dict[str, float] = {}  # by request, when its first token came, and
        self._latest: dict[str, float] = {}  # its latest
        self._num_tokens = engine.num_tokens  # after the last step
        self.refresh()

    def refresh(self) -> None:
        """Read the engine's figures; the last ones stay if a learner's part cannot tell its own."""
        self._is_fresh, self._read_at = True, time.monotonic()
        try:
            self.telemetry.stats = self._engine.stats()
        except Exception:
            logger.debug("the engine's figures could not be read", exc_info=True)
        self._changed.set()

    def rest(self) -> None:
        """No step follows for now: the figures are those after the last one."""
        if not self._is_fresh:
            self.refresh()

    def stepped(
        self, outputs: Iterable[tuple[Request, RequestOutput]], *, has_started: bool = False
    ) -> None:
        """A step has ended with these outputs. has_started: whether a request had its first turn. What
        cannot be measured is missing from the figures; every answer is sent all the same."""
        now = time.monotonic()
        has_ended = False
        try:
            has_ended = self._measure(outputs, now)
        except Exception:
            logger.warning("a step could not be measured", exc_info=True)
        self._is_fresh = False
        if has_started or has_ended or now - self._read_at >= FRESH_SECONDS:
            self.refresh()
        else:
            self._changed.set()

    def _measure(self, outputs: Iterable[tuple[Request, RequestOutput]], now: float) -> bool:
        """Returns whether a request has ended."""
        has_ended = False
        telemetry = self.telemetry
        before, self._num_tokens = self._num_tokens, self._engine.num_tokens
        if tokens := self._num_tokens - before:
            observe(telemetry.step_tokens, tokens)
        gaps: dict[float, int] = {}
        for request, output in outputs:
            if output.token_ids:
                latest = self._latest.get(output.request_id)
                if latest is None:
                    self._first[output.request_id] = now
                    observe(telemetry.time_to_first_token, now - request.arrival_time)
                else:
                    gaps[latest] = gaps.get(latest, 0) + 1
                self._latest[output.request_id] = now
            if output.finish_reason is not None:
                has_ended = True
                self._finished(request, output, output.finish_reason, now)
        for latest, times in gaps.items():
            observe(telemetry.inter_token_latency, now - latest, times)
        return has_ended

    def aborted(self, request: Request) -> None:
        """A request is ended at its caller's wish."""
        self.telemetry.finished[FinishReason.ABORT] += 1
        self._first.pop(request.request_id, None)
        self._latest.pop(request.request_id, None)

    def _finished(
        self, request: Request, output: RequestOutput, reason: FinishReason, now: float
    ) -> None:
        telemetry = self.telemetry
        telemetry.finished[reason] += 1
        first = self._first.pop(request.request_id, now)
        latest = self._latest.pop(request.request_id, now)
        if reason is FinishReason.ERROR:
            return
        arrived = request.arrival_time
        scheduled = arrived if request.scheduled_time is None else request.scheduled_time
        observe(telemetry.e2e_latency, now - arrived)
        observe(telemetry.queue_time, scheduled - arrived)
        observe(telemetry.inference_time, latest - scheduled)
        observe(telemetry.prefill_time, first - scheduled)
        observe(telemetry.decode_time, latest - first)
        num_tokens = output.num_output_tokens
        if num_tokens > 1:
            observe(telemetry.time_per_output_token, (latest - first) / (num_tokens - 1))
        observe(telemetry.prompt_tokens, request.num_prompt_tokens)
        observe(telemetry.generation_tokens, num_tokens)
        observe(telemetry.max_tokens, request.max_tokens)
        observe(telemetry.preemptions, request.num_preemptions)
        if request.index == 0:  # once for each prompt, not for each choice
            observe(telemetry.choices, request.params.n)


def observe(histogram: Histogram, value: float, times: int = 1) -> None:
    """Count a value."""
    histogram.counts[bisect_left(histogram.bounds, value)] += times
    histogram.total += value * times
