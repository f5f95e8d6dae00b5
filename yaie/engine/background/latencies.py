"""What the operator of an engine wants to see: counts, gauges and histograms, gathered step by step.

`Latencies` writes them into a `Telemetry`, on the engine's thread alone, for a few dictionary look-ups
an output. `yaie.server.metrics` and the log line read it on any other, without a lock: numbers may be
one step apart from each other, and none is ever half written. It can be pickled at any time, to be read
in another process.
"""

import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason, Request

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine

logger = logging.getLogger(__name__)

# Upper bounds of buckets; vLLM's, so that dashboards made for it show the same shapes.
FIRST_TOKEN_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0,
)  # fmt: skip
REQUEST_SECONDS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
STEP_TOKENS = tuple(float(1 << k) for k in (0, *range(3, 15)))
CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0)
FRESH_SECONDS = 0.1
"""How old the engine's figures may be while it computes: to read them takes a dozen calls."""
PREEMPTIONS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)  # 0 is ours: it tells who kept their place


class Histogram:
    """counts[i]: values up to bounds[i] and above the bound before; the last, those above all.

    Many sequences gain a token in the same step, after the same time: they are one observation with a
    weight, which prometheus_client's own histogram does not know.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class Telemetry:
    """stats: `LLMEngine.stats()` of late (FRESH_SECONDS), empty while it loads. finished: how many
    requests ended how, for every reason. deferred: how many requests each submission has whose grammar
    is being compiled, so that they cannot be queued yet; written by those who wait for that."""

    def __init__(self, max_model_len: int = 1) -> None:
        lengths = _one_two_five(max_model_len)
        self.stats: dict[str, float] = {}
        self.finished = dict.fromkeys(FinishReason, 0)  # all keys from the start: see above
        self.deferred: dict[int, int] = {}
        self.time_to_first_token = Histogram(FIRST_TOKEN_SECONDS)
        self.inter_token_latency = Histogram(TOKEN_SECONDS)
        self.time_per_output_token = Histogram(TOKEN_SECONDS)
        self.e2e_latency = Histogram(REQUEST_SECONDS)
        self.queue_time = Histogram(REQUEST_SECONDS)
        self.inference_time = Histogram(REQUEST_SECONDS)
        self.prefill_time = Histogram(REQUEST_SECONDS)
        self.decode_time = Histogram(REQUEST_SECONDS)
        self.prompt_tokens = Histogram(lengths)
        self.generation_tokens = Histogram(lengths)
        self.max_tokens = Histogram(lengths)
        self.choices = Histogram(CHOICES)
        self.preemptions = Histogram(PREEMPTIONS)
        self.step_tokens = Histogram(STEP_TOKENS)

    @property
    def num_deferred(self) -> int:
        """Requests that wait for their grammar."""
        return sum(list(self.deferred.values()))


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

    def stepped(self, outputs: Iterable[tuple[Request, RequestOutput]]) -> None:
        """A step has ended with these outputs. What cannot be measured is missing from the figures, and
        costs nobody an answer."""
        now = time.monotonic()
        try:
            self._measure(outputs, now)
        except Exception:
            logger.warning("a step could not be measured", exc_info=True)
        self._is_fresh = False
        if now - self._read_at >= FRESH_SECONDS:
            self.refresh()
        else:
            self._changed.set()

    def _measure(self, outputs: Iterable[tuple[Request, RequestOutput]], now: float) -> None:
        telemetry = self.telemetry
        before, self._num_tokens = self._num_tokens, self._engine.num_tokens
        if tokens := self._num_tokens - before:
            telemetry.step_tokens.observe(tokens)
        gaps: dict[float, int] = {}
        for request, output in outputs:
            if output.token_ids:
                latest = self._latest.get(output.request_id)
                if latest is None:
                    self._first[output.request_id] = now
                    telemetry.time_to_first_token.observe(now - request.arrival_time)
                else:
                    gaps[latest] = gaps.get(latest, 0) + 1
                self._latest[output.request_id] = now
            if output.finish_reason is not None:
                self._finished(request, output, output.finish_reason, now)
        for latest, times in gaps.items():
            telemetry.inter_token_latency.observe(now - latest, times)

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
        telemetry.e2e_latency.observe(now - arrived)
        telemetry.queue_time.observe(scheduled - arrived)
        telemetry.inference_time.observe(latest - scheduled)
        telemetry.prefill_time.observe(first - scheduled)
        telemetry.decode_time.observe(latest - first)
        num_tokens = output.num_output_tokens
        if num_tokens > 1:
            telemetry.time_per_output_token.observe((latest - first) / (num_tokens - 1))
        telemetry.prompt_tokens.observe(request.num_prompt_tokens)
        telemetry.generation_tokens.observe(num_tokens)
        telemetry.max_tokens.observe(request.max_tokens)
        telemetry.preemptions.observe(request.num_preemptions)
        if request.index == 0:  # once for each prompt, not for each choice
            telemetry.choices.observe(request.params.n)


def _one_two_five(largest: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50, ... up to `largest`."""
    steps = (float(digit * 10**power) for power in range(12) for digit in (1, 2, 5))
    return tuple(step for step in steps if step <= largest)
