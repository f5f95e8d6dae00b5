"""GuideLLM and AIPerf, unmodified, make load on the endpoints that they know, and get what they ask for.

They stream, and want `continuous_usage_stats`: a server that refuses these fails every request.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.judges.clients.install import python_of
from tests.judges.conftest import tiny_model_with_tools
from tests.judges.programs import replica
from tests.judges.test_clients import AT_HOME

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

Json = dict[str, Any]
REQUESTS, PROMPT, OUTPUT, STREAMS = 12, 40, 24, 4
ENDPOINTS = ["/v1/completions", "/v1/chat/completions", "/v1/responses"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_with_tools(tmp_path_factory.mktemp("load") / "judged")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[str]:
    with replica(model, "--served-model-name=judged", "--num-blocks=1024") as (_, url):
        yield url


def program(name: str) -> str:
    """The path of a generator."""
    python = python_of(name)
    if not python.exists():
        pytest.skip(f"not installed: python -m tests.judges.clients.install {name}")
    return str(python.parent / name)


def run(command: list[str], **environment: str) -> None:
    told = {**os.environ, **AT_HOME, **environment}
    ran = subprocess.run(command, capture_output=True, text=True, env=told, timeout=500)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def guidellm(url: str, endpoint: str, model: Path, folder: Path, profile: str) -> list[Json]:
    """The benchmarks of its report."""
    report = folder / "report.json"
    run([
        program("guidellm"), "run",
        "--backend", f"kind=openai_http,target={url},model=judged,request_format={endpoint}",
        "--profile", profile, "--constraint", f"kind=max_requests,count={REQUESTS}",
        "--data", f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={OUTPUT}",
        "--tokenizer", f"kind=huggingface_auto,model={model}",
        "--disable-console-interactive", "--output", f"kind=json,path={report}",
    ])  # fmt: skip
    benchmarks: list[Json] = json.loads(report.read_text("utf-8"))["benchmarks"]
    return benchmarks


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_guidellm_gets_every_answer_in_the_length_it_asks_for(
    server: str, model: Path, endpoint: str, tmp_path: Path
) -> None:
    profile = f"kind=concurrent,streams={STREAMS}"
    (benchmark,) = guidellm(server, endpoint, model, tmp_path, profile)
    totals = {"successful": REQUESTS, "errored": 0, "incomplete": 0, "total": REQUESTS}
    assert benchmark["metrics"]["request_totals"] == totals
    for answer in benchmark["requests"]["successful"]:
        assert answer["output_tokens"] == OUTPUT
        assert answer["prompt_tokens"] >= PROMPT
        assert answer["time_to_first_token_ms"] > 0
        sent = json.loads(answer["request_args"])["body"]
        if endpoint != "/v1/responses":
            assert sent["stream_options"]["continuous_usage_stats"]


def test_guidellm_finds_the_rates_between_one_request_and_all_at_once(
    server: str, model: Path, tmp_path: Path
) -> None:
    benchmarks = guidellm(server, ENDPOINTS[1], model, tmp_path, "kind=sweep,sweep_size=4")
    assert len(benchmarks) >= 3
    for benchmark in benchmarks:
        assert benchmark["metrics"]["request_totals"]["errored"] == 0


@pytest.mark.parametrize("kind", ["chat", "completions", "responses"])
def test_aiperf_gets_every_answer_in_the_length_it_asks_for(
    server: str, model: Path, kind: str, tmp_path: Path
) -> None:
    # It reads a tokenizer out of a folder only while it believes that there is a hub.
    run([
        program("aiperf"), "profile", "--model", "judged", "--url", server, "--endpoint-type", kind,
        "--streaming", "--concurrency", str(STREAMS), "--request-count", str(REQUESTS),
        "--tokenizer", str(model), "--isl", str(PROMPT), "--osl", str(OUTPUT),
        "--extra-inputs", "ignore_eos:true", "--use-server-token-count",
        *["--per-chunk-usage"] * (kind == "chat"),
        "--ui", "none", "--artifact-dir", str(tmp_path),
    ], HF_HUB_OFFLINE="", TRANSFORMERS_OFFLINE="")  # fmt: skip
    report: Json = json.loads((tmp_path / "profile_export_aiperf.json").read_text("utf-8"))
    assert report["request_count"]["avg"] == REQUESTS
    assert report["error_summary"] == []
    if kind != "responses":  # there it counts what ends by itself alone, `response.completed`
        lengths = report["output_sequence_length"]
        assert lengths["min"] == lengths["max"] == OUTPUT
    assert report["time_to_first_token"]["min"] > 0
