"""What the operator of an engine wants to see: counts, gauges and histograms, gathered step by step.

Written by the engine's thread alone (`EngineThread`), which pays a few dictionary look-ups for each
output; read by `yaie.server.metrics` and the log line on any other, without a lock: numbers may be one
step apart from each other, and none is ever half written.
"""

import logging
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from yaie.core.request import FinishReason, Request, RequestOutput

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
    """stats: `LLMEngine.stats()` after the last step. finished: how many requests ended how."""

    def __init__(self, engine: "LLMEngine | None" = None) -> None:
        """`engine`: None while it loads."""
        lengths = _one_two_five(engine.max_model_len if engine is not None else 1)
        self.stats: dict[str, float] = {}
        self.finished: Counter[str] = Counter()
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
        self.step_tokens = Histogram(STEP_TOKENS)
        self._first: dict[Request, float] = {}  # when its first token came, and
        self._latest: dict[Request, float] = {}  # its latest
        if engine is not None:
            self.refresh(engine)

    def refresh(self, engine: "LLMEngine") -> None:
        """Read the engine's figures; the last ones stay if a learner's part cannot tell its own."""
        try:
            self.stats = engine.stats()
        except Exception:
            logger.debug("the engine's figures could not be read", exc_info=True)

    def stepped(self, engine: "LLMEngine", outputs: Sequence[RequestOutput]) -> None:
        """A step has ended with these outputs."""
        now = time.monotonic()
        computed = self.stats.get("computed_tokens", 0)
        self.refresh(engine)
        if tokens := self.stats.get("computed_tokens", 0) - computed:
            self.step_tokens.observe(tokens)
        gaps: dict[float, int] = {}
        for output in outputs:
            request = output.request
            if output.token_ids:
                latest = self._latest.get(request)
                if latest is None:
                    self._first[request] = now
                    self.time_to_first_token.observe(now - request.arrival_time)
                else:
                    gaps[latest] = gaps.get(latest, 0) + 1
                self._latest[request] = now
            if output.finish_reason is not None:
                self._finished(request, output.finish_reason, now)
        for latest, times in gaps.items():
            self.inter_token_latency.observe(now - latest, times)

    def aborted(self, request: Request) -> None:
        """Nobody wants the rest of a request that is alive."""
        self.finished[FinishReason.ABORT] += 1
        self._first.pop(request, None)
        self._latest.pop(request, None)

    def _finished(self, request: Request, reason: FinishReason, now: float) -> None:
        self.finished[reason] += 1
        first, latest = self._first.pop(request, now), self._latest.pop(request, now)
        if reason is FinishReason.ERROR:
            return
        arrived = request.arrival_time
        scheduled = arrived if request.scheduled_time is None else request.scheduled_time
        self.e2e_latency.observe(now - arrived)
        self.queue_time.observe(scheduled - arrived)
        self.inference_time.observe(latest - scheduled)
        self.prefill_time.observe(first - scheduled)
        self.decode_time.observe(latest - first)
        if request.num_output_tokens > 1:
            self.time_per_output_token.observe((latest - first) / (request.num_output_tokens - 1))
        self.prompt_tokens.observe(request.num_prompt_tokens)
        self.generation_tokens.observe(request.num_output_tokens)
        self.max_tokens.observe(request.max_tokens)
        if request.fork_of is None:  # once for each prompt, not for each choice
            self.choices.observe(request.params.n)


def _one_two_five(largest: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50, ... up to `largest`."""
    steps = (float(digit * 10**power) for power in range(12) for digit in (1, 2, 5))
    return tuple(step for step in steps if step <= largest)
