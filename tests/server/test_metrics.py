"""`/metrics`: vLLM's names, and numbers that agree with what clients counted."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from tests.models.tiny import tiny_model
from tests.server.conftest import LiveServer, serving, within
from tests.server.fake_engine import FakeEngine
from yaie.engine.background.latencies import observe
from yaie.engine.background.telemetry import Histogram
from yaie.engine.input.grammars.matchers import Matcher
from yaie.server.metrics import cumulative

LABELS = {"model_name": "tiny-llama", "engine": "0"}
LABELLED_OTHERWISE = {"vllm:cache_config_info", "vllm:admission_rejections_total"}
NAMES = {
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_requests_waiting_by_reason",
    "vllm:kv_cache_usage_perc",
    "vllm:cache_config_info",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:external_prefix_cache_hits_total",
    "vllm:num_preemptions_total",
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:request_success_total",
    "vllm:corrupted_requests_total",
    "vllm:admission_rejections_total",
    *(
        f"vllm:{name}_{suffix}"
        for name in (
            "iteration_tokens_total",
            "time_to_first_token_seconds",
            "inter_token_latency_seconds",
            "request_time_per_output_token_seconds",
            "e2e_request_latency_seconds",
            "request_queue_time_seconds",
            "request_inference_time_seconds",
            "request_prefill_time_seconds",
            "request_decode_time_seconds",
            "request_prompt_tokens",
            "request_generation_tokens",
            "request_params_n",
            "request_params_max_tokens",
            "request_num_preemptions",
        )
        for suffix in ("bucket", "sum", "count")
    ),
}


def samples(server: LiveServer) -> list[Any]:
    response = server.http.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(response.text)
    return [sample for family in families for sample in family.samples]


def value(server: LiveServer, name: str, **labels: str) -> float:
    """The one sample of this name and these labels."""
    [found] = [
        sample.value
        for sample in samples(server)
        if sample.name == f"vllm:{name}" and labels.items() <= sample.labels.items()
    ]
    return float(found)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[LiveServer]:
    """A server of its own, so that it counts this test's requests alone. Its pool is small."""
    from yaie.engine.llm_engine import LLMEngine

    folder = str(tiny_model("llama", tmp_path / "tiny-llama"))
    with serving(lambda: LLMEngine(model=folder, num_blocks=24, block_size=4, threads=1)) as server:
        yield server


def ask(server: LiveServer, **body: Any) -> dict[str, Any]:
    body = {"max_tokens": 8, "ignore_eos": True, **body}
    response = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    usage: dict[str, Any] = response.json()["usage"]
    return usage


def test_names_and_labels_are_those_of_vllm(fresh: LiveServer) -> None:
    ask(fresh, prompt=[5] * 10)
    ours = [sample for sample in samples(fresh) if sample.name.startswith("vllm:")]
    assert {sample.name for sample in ours} == NAMES
    for sample in ours:
        if sample.name not in LABELLED_OTHERWISE:
            assert sample.labels.items() >= LABELS.items()
    everything = {sample.name for sample in samples(fresh)}
    assert not any(name.startswith("yaie") for name in everything)
    assert "process_resident_memory_bytes" in everything


def test_tokens_and_hits_are_what_clients_counted(fresh: LiveServer) -> None:
    usages = [
        ask(fresh, prompt=[7] * 30),
        ask(fresh, prompt=[7] * 30),  # finds its prefix cached
        ask(fresh, prompt=[9] * 13, max_tokens=1),
        ask(fresh, prompt=[11] * 5, n=3, max_tokens=4),
    ]
    prompts = 30 + 30 + 13 + 3 * 5
    generated = sum(usage["completion_tokens"] for usage in usages)
    cached = fresh.llm.stats()["cached_tokens"]
    assert usages[1]["prompt_tokens_details"]["cached_tokens"] == 28
    assert cached >= 28
    assert value(fresh, "prompt_tokens_total") == prompts
    assert value(fresh, "prefix_cache_queries_total") == prompts
    assert value(fresh, "prefix_cache_hits_total") == cached
    assert value(fresh, "generation_tokens_total") == generated == 8 + 8 + 1 + 12
    assert value(fresh, "request_success_total", finished_reason="length") == 6
    assert value(fresh, "request_prompt_tokens_sum") == prompts
    assert value(fresh, "request_prompt_tokens_count") == 6
    assert value(fresh, "request_generation_tokens_sum") == generated
    assert value(fresh, "request_params_max_tokens_sum") == 8 + 8 + 1 + 12
    assert value(fresh, "request_params_n_count") == 4
    assert value(fresh, "request_params_n_sum") == 1 + 1 + 1 + 3
    assert value(fresh, "time_to_first_token_seconds_count") == 6
    assert value(fresh, "inter_token_latency_seconds_count") == generated - 6
    assert value(fresh, "request_time_per_output_token_seconds_count") == 5  # not that of one token
    assert value(fresh, "iteration_tokens_total_sum") == prompts - cached + generated
    assert value(fresh, "request_num_preemptions_count") == 6
    assert value(fresh, "request_num_preemptions_sum") == 0


def test_tokens_of_steps_are_prompt_plus_generated_though_the_last_is_never_computed(
    fresh: LiveServer,
) -> None:
    """Ten requests of 14 + 10 tokens are 240, not the 230 that went through the model."""
    for token in range(3, 13):
        ask(fresh, prompt=[token] * 14, max_tokens=10)
    assert value(fresh, "iteration_tokens_total_sum") == 240
    assert fresh.llm.stats()["computed_tokens"] == 230


def test_chunks_of_a_prompt_count_in_the_step_that_computes_them(tmp_path: Path) -> None:
    from yaie.engine.llm_engine import LLMEngine

    folder = str(tiny_model("llama", tmp_path / "tiny-llama"))
    with serving(
        lambda: LLMEngine(model=folder, num_blocks=64, token_budget=16, threads=1)
    ) as server:
        ask(server, prompt=[5] * 50, max_tokens=3)
        steps = [
            sample.value
            for sample in samples(server)
            if sample.name == "vllm:iteration_tokens_total_bucket"
            and sample.labels["le"] in ("1.0", "8.0", "16.0", "+Inf")
        ]
        # 16, 16, 16, then the prompt's last two and the first token, then two tokens alone
        assert steps == [2, 3, 6, 6]
        assert value(server, "iteration_tokens_total_sum") == 53


def test_times_add_up(fresh: LiveServer) -> None:
    for length in (5, 9, 13):
        ask(fresh, prompt=[length] * length)
    total = {
        name: value(fresh, f"{name}_seconds_sum")
        for name in (
            "e2e_request_latency",
            "request_queue_time",
            "request_inference_time",
            "request_prefill_time",
            "request_decode_time",
            "time_to_first_token",
            "inter_token_latency",
        )
    }
    assert all(seconds > 0 for seconds in total.values())
    inference = total["request_prefill_time"] + total["request_decode_time"]
    assert total["request_inference_time"] == pytest.approx(inference)
    whole = total["request_queue_time"] + total["request_inference_time"]
    assert total["e2e_request_latency"] == pytest.approx(whole)
    first = total["request_queue_time"] + total["request_prefill_time"]
    assert total["time_to_first_token"] == pytest.approx(first)
    assert total["inter_token_latency"] == pytest.approx(total["request_decode_time"])


def test_preemptions_of_a_small_pool_are_counted(fresh: LiveServer) -> None:
    asking = [
        threading.Thread(target=ask, args=(fresh,), kwargs={"prompt": [k] * 20, "max_tokens": 60})
        for k in range(3, 8)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(60)
    assert value(fresh, "num_preemptions_total") == fresh.llm.stats()["preemptions"] > 0
    assert value(fresh, "generation_tokens_total") == 5 * 60
    assert value(fresh, "request_success_total", finished_reason="length") == 5
    assert value(fresh, "inter_token_latency_seconds_count") == 5 * 59
    # A prompt that is computed again is work of its own.
    assert value(fresh, "iteration_tokens_total_sum") > 5 * (20 + 60)
    assert value(fresh, "request_num_preemptions_count") == 5
    assert value(fresh, "request_num_preemptions_sum") == fresh.llm.stats()["preemptions"]
    undisturbed = value(fresh, "request_num_preemptions_bucket", le="0.0")
    assert 1 <= undisturbed < 5  # the first in line keeps its blocks


def test_client_that_leaves_is_counted_as_abort(fake: FakeEngine, fake_live: LiveServer) -> None:
    fake.step_seconds = 0.01
    body = {"prompt": "x" * 900, "max_tokens": 900, "stream": True, "n": 2}
    with httpx.stream("POST", f"{fake_live.url}/v1/completions", json=body) as answer:
        next(answer.iter_lines())
    within(20, lambda: value(fake_live, "request_success_total", finished_reason="abort") == 2)
    assert value(fake_live, "e2e_request_latency_seconds_count") == 0


def test_failed_request_is_counted_as_error(fake: FakeEngine, fake_live: LiveServer) -> None:
    fake.poison = "bad"
    fake_live.http.post("/v1/completions", json={"prompt": "bad"})
    assert value(fake_live, "request_success_total", finished_reason="error") == 1
    assert value(fake_live, "request_success_total", finished_reason="stop") == 0


def test_logits_that_are_not_finite_are_counted(fresh: LiveServer) -> None:
    adapter = fresh.llm.model.adapter
    forward = adapter.logits
    adapter.logits = lambda hidden: forward(hidden) * float("nan")
    body = {"prompt": [5] * 6}
    assert fresh.http.post("/v1/completions", json=body).status_code == 500
    adapter.logits = forward
    ask(fresh, prompt=[5] * 6)
    assert value(fresh, "corrupted_requests_total") == 1
    assert value(fresh, "request_success_total", finished_reason="error") == 1
    assert value(fresh, "request_success_total", finished_reason="length") == 1


def test_a_grammar_that_leads_nowhere_is_not_counted_as_corrupted_logits(
    fresh: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Matcher, "_mask", lambda matcher: matcher._fail("too complex") or b"")
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 8,
        "response_format": {"type": "json_object"},
    }
    failed = fresh.http.post("/v1/chat/completions", json=body)
    assert failed.status_code == 400
    assert "too complex" in failed.json()["error"]["message"]
    assert value(fresh, "corrupted_requests_total") == 0
    assert value(fresh, "request_success_total", finished_reason="error") == 1


def test_served_name_is_the_label(fake: FakeEngine) -> None:
    with serving(lambda: fake, served_model_name='a "b"\\c') as server:
        assert value(server, "num_requests_running", model_name='a "b"\\c') == 0


def test_metrics_answer_while_loading_and_when_the_engine_hangs(fake: FakeEngine) -> None:
    may_load = threading.Event()
    fake.gate.clear()
    with serving(lambda: may_load.wait() and fake, wait=False) as server:
        names = {sample.name for sample in samples(server)}
        assert "process_cpu_seconds_total" in names
        assert not any(name.startswith("vllm:") for name in names)
        may_load.set()
        within(10, lambda: server.http.get("/health").status_code == 200)
        asking = threading.Thread(
            target=server.http.post, args=("/v1/completions",), kwargs={"json": {"prompt": "abc"}}
        )
        asking.start()
        within(20, lambda: server.engine.num_streams == 1)
        assert value(server, "generation_tokens_total") == 0  # within a step
        fake.gate.set()
        asking.join(10)


SCRAPERS = {
    "prometheus 2": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
    "prometheus 3": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*;q=0.1",
    "prometheus 3, old names": "application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.6",
    "no version": "application/openmetrics-text",
    "text": "text/plain;version=1.0.0;escaping=underscores",
    "curl": "*/*",
}


@pytest.mark.parametrize("scraper", SCRAPERS)
def test_every_scraper_gets_the_names_with_their_colons(
    fake_live: LiveServer, scraper: str
) -> None:
    fake_live.http.post("/v1/completions", json={"prompt": "abc"})
    response = fake_live.http.get("/metrics", headers={"Accept": SCRAPERS[scraper]})
    spoken = response.headers["content-type"]
    if "openmetrics" in SCRAPERS[scraper]:
        assert spoken == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        assert response.text.endswith("# EOF\n")
        families = list(openmetrics_families(response.text))
    else:
        assert spoken == "text/plain; version=0.0.4; charset=utf-8"
        families = list(text_string_to_metric_families(response.text))
    names = {sample.name for family in families for sample in family.samples}
    assert {name for name in names if name.startswith("vllm")} == NAMES


def test_two_servers_in_a_process_have_their_own_numbers() -> None:
    with serving(FakeEngine) as one, serving(FakeEngine) as other:
        one.http.post("/v1/completions", json={"prompt": "abc"})
        assert value(one, "request_success_total", finished_reason="stop") == 1
        assert value(other, "request_success_total", finished_reason="stop") == 0


def test_bucket_holds_what_is_not_above_its_bound() -> None:
    histogram = Histogram((1.0, 2.0, 5.0))
    for number in (0.5, 1.0, 1.5, 2.0, 6.0):
        observe(histogram, number)
    observe(histogram, 3.0, times=2)
    assert cumulative(histogram) == [("1.0", 2), ("2.0", 4), ("5.0", 6), ("+Inf", 7)]
    assert histogram.total == 0.5 + 1.0 + 1.5 + 2.0 + 6.0 + 6.0
