"""`GET /metrics`: the engine's telemetry for Prometheus, under the names and labels of vLLM.

So dashboards, autoscalers and gateways that were made for it find what they look for. prometheus_client
writes the text; the numbers are read when a scraper asks (`Telemetry`), so the engine does nothing for
it. While the model loads there is no engine to speak of: then there are the process's figures alone.
"""

from collections.abc import Iterator
from itertools import accumulate

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from yaie.core.request import FinishReason
from yaie.engine.background.telemetry import Histogram, Telemetry
from yaie.server.openapi.document import described
from yaie.server.service import Service

# name: (attribute of the statistics, help)
GAUGES = {
    "num_requests_running": ("num_running", "Requests that the engine computes now."),
    "kv_cache_usage_perc": (
        "kv_usage",
        "Share of the KV pool in use by requests; 1 is all of it. Of two groups, the fuller.",
    ),
}
GROUP_USAGES = {"full": "full_kv_usage", "windowed": "windowed_kv_usage"}
"""Of a model of which some layers have a window: by group, the attribute of the statistics."""
COUNTERS = {
    "prefix_cache_queries": ("prompt_tokens", "Prompt tokens looked up in the prefix cache."),
    "prefix_cache_hits": ("cached_tokens", "Prompt tokens taken from the prefix cache."),
    "external_prefix_cache_hits": (
        "external_tokens",
        "Prompt tokens whose blocks another engine computed.",
    ),
    "num_preemptions": ("preemptions", "Times that a request lost its place to another one."),
    "spec_decode_num_drafts": ("drafted", "Times that a request had drafts in a step."),
    "spec_decode_num_draft_tokens": ("draft_tokens", "Draft tokens that were verified."),
    "spec_decode_num_accepted_tokens": (
        "accepted_draft_tokens",
        "Draft tokens that were right.",
    ),
    "prompt_tokens": ("prompt_tokens", "Prompt tokens of requests that got their first token."),
    "generation_tokens": ("generation_tokens", "Tokens generated."),
    "corrupted_requests": ("corrupted_requests", "Requests whose logits were NaN or infinite."),
}
HISTOGRAMS = {
    "iteration_tokens_total": (
        "step_tokens",
        "Prompt tokens computed plus tokens generated, of a step.",
    ),
    "time_to_first_token_seconds": ("time_to_first_token", "From arrival to the first token."),
    "inter_token_latency_seconds": ("inter_token_latency", "Between two tokens of a request."),
    "request_time_per_output_token_seconds": (
        "time_per_output_token",
        "Mean time between tokens, of each request.",
    ),
    "e2e_request_latency_seconds": ("e2e_latency", "From arrival to the last token."),
    "request_queue_time_seconds": ("queue_time", "From arrival to the first turn."),
    "request_inference_time_seconds": ("inference_time", "From the first turn to the last token."),
    "request_prefill_time_seconds": ("prefill_time", "From the first turn to the first token."),
    "request_decode_time_seconds": ("decode_time", "From the first token to the last."),
    "request_prompt_tokens": ("prompt_tokens", "Prompt tokens of a request."),
    "request_generation_tokens": ("generation_tokens", "Tokens generated for a request."),
    "request_params_max_tokens": ("max_tokens", "Tokens that a request may generate."),
    "request_params_n": ("choices", "Choices that were asked for (n)."),
    "request_num_preemptions": ("preemptions", "Times that a request lost its place."),
}


class EngineCollector(Collector):
    """Makes metrics of one engine's telemetry. Labels: the served model, and engine 0, the only one."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """The metrics as they stand."""
        telemetry = self._service.engine.telemetry
        if not telemetry.stats:
            return
        labels = {"model_name": self._service.model_name, "engine": "0"}
        yield from self._gauges(telemetry, labels)
        yield from self._counters(telemetry, labels)
        for name, (attribute, help) in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(f"vllm:{name}", help, labels=list(labels))
            observed: Histogram = getattr(telemetry, attribute)
            buckets = cumulative(observed)
            histogram.add_metric(list(labels.values()), buckets, observed.total)
            yield histogram

    def _gauges(self, telemetry: Telemetry, labels: dict[str, str]) -> Iterator[Metric]:
        yield from self._waiting(telemetry, labels)
        for name, (key, help) in GAUGES.items():
            gauge = GaugeMetricFamily(f"vllm:{name}", help, labels=list(labels))
            gauge.add_metric(list(labels.values()), telemetry.stats.get(key, 0))
            yield gauge
        if GROUP_USAGES["windowed"] in telemetry.stats:
            yield _by_group(telemetry, labels)
        setup = self._cache_config()
        info = GaugeMetricFamily(
            "vllm:cache_config_info", "How the KV cache is set up.", labels=["engine", *setup]
        )
        info.add_metric(["0", *setup.values()], 1)
        yield info

    def _waiting(self, telemetry: Telemetry, labels: dict[str, str]) -> Iterator[Metric]:
        queued, deferred = telemetry.stats.get("num_waiting", 0), telemetry.num_deferred
        waiting = GaugeMetricFamily(
            "vllm:num_requests_waiting", "Requests that wait for their turn.", labels=list(labels)
        )
        waiting.add_metric(list(labels.values()), queued + deferred)
        yield waiting
        by_reason = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason",
            "The same: in the queue (capacity), or while their grammar is compiled (deferred).",
            labels=[*labels, "reason"],
        )
        by_reason.add_metric([*labels.values(), "capacity"], queued)
        by_reason.add_metric([*labels.values(), "deferred"], deferred)
        yield by_reason

    def _counters(self, telemetry: Telemetry, labels: dict[str, str]) -> Iterator[Metric]:
        for name, (key, help) in COUNTERS.items():
            counter = CounterMetricFamily(f"vllm:{name}", help, labels=list(labels))
            counter.add_metric(list(labels.values()), telemetry.stats.get(key, 0))
            yield counter
        success = CounterMetricFamily(
            "vllm:request_success",
            "Requests that ended, by reason; error and abort among them.",
            labels=[*labels, "finished_reason"],
        )
        for reason in FinishReason:
            success.add_metric([*labels.values(), reason.value], telemetry.finished[reason])
        yield success
        rejections = CounterMetricFamily(
            "vllm:admission_rejections",
            "Requests answered with 503 because a limit was reached, by the limit's setting.",
            labels=["model_name", "reason"],
        )
        for limit, number in self._service.engine.rejections.items():
            rejections.add_metric([self._service.model_name, limit.value], number)
        yield rejections

    def _cache_config(self) -> dict[str, str]:
        info = self._service.engine.info
        config = info.config
        return {
            "block_size": str(config.block_size),
            "num_gpu_blocks": str(info.pool_tokens // config.block_size),
            "enable_prefix_caching": str(config.prefix_caching),
            "swap_space": str(config.swap_space),
        }


def _by_group(telemetry: Telemetry, labels: dict[str, str]) -> Metric:
    """Under a name of our own: vLLM has one pool for both groups of layers."""
    gauge = GaugeMetricFamily(
        "yaie:kv_cache_group_usage_perc",
        "The same of the layers that see all of a text (full), and of those with a window (windowed).",
        labels=[*labels, "group"],
    )
    for group, key in GROUP_USAGES.items():
        gauge.add_metric([*labels.values(), group], telemetry.stats[key])
    return gauge


def cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    """(upper bound, how many were not above it), as Prometheus wants buckets."""
    bounds = [str(bound) for bound in histogram.bounds] + ["+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))


def metrics_router(service: Service) -> APIRouter:
    """The router with `/metrics`, on a registry of its own."""
    registry = process_registry()
    registry.register(EngineCollector(service))
    router = APIRouter()

    about = described(
        "getMetrics", "operation", "Figures for Prometheus, under vLLM's names", is_open=True
    )
    kinds = ("text/plain", "application/openmetrics-text")
    about["responses"][200]["content"] = {kind: {"schema": {"type": "string"}} for kind in kinds}

    @router.get("/metrics", response_class=Response, **about)
    async def metrics(request: Request) -> Response:
        """The metrics, as Prometheus or OpenMetrics text."""
        text, content_type = expose(registry, request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": content_type})

    return router


def process_registry() -> CollectorRegistry:
    """A registry with the figures of this process."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


def expose(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The metrics, and the content type: OpenMetrics for a scraper that accepts it.

    Not by `choose_encoder` of prometheus_client, which turns the colons of our names into underscores
    for a scraper that does not ask for others, Prometheus 2 among them
    (https://github.com/prometheus/client_python/issues/1177). They are legal in both formats.
    """
    kinds = {item.partition(";")[0].strip() for item in accept.split(",")}
    if "application/openmetrics-text" in kinds:
        encoded: bytes = openmetrics.generate_latest(registry, escaping=openmetrics.ALLOWUTF8)
        return encoded, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4
