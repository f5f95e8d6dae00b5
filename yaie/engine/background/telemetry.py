"""What the operator of an engine is told: counts, gauges and histograms. `latencies.py` writes them, and
`yaie.server.metrics` and the log line read them.

On any thread, without a lock: numbers may be one step apart from each other, and none is ever half
written. They can be pickled at any time, to be read in another process.
"""

from collections.abc import Sequence

from yaie.core.request import FinishReason

# Upper bounds of buckets. They are vLLM's: a dashboard made for it shows the same shapes.
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


class Telemetry:
    """stats: `LLMEngine.stats()` of late (FRESH_SECONDS), empty while it loads. finished: how many
    requests ended how, for every reason. deferred: how many requests each submission has whose grammar
    is being compiled, and which cannot be queued yet; the threads that send and compile write it."""

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


def _one_two_five(largest: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50, ... up to `largest`."""
    steps = (float(digit * 10**power) for power in range(12) for digit in (1, 2, 5))
    return tuple(step for step in steps if step <= largest)
