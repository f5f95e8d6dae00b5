"""`yaie bench` on a tiny model: the figures are there and add up; no test says how good they are."""

import json
from pathlib import Path
from statistics import median

import pytest
from typer.testing import CliRunner

from tests.models.tiny import tiny_model
from yaie.backends import choose_backend
from yaie.bench.host import Case, time_overlapped
from yaie.bench.workload import Lengths, draw_jobs, run_jobs
from yaie.cli.main import app
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.engine.llm_engine import LLMEngine
from yaie.models.loader import resolve_device


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model("llama", tmp_path_factory.mktemp("models") / "llama"))


def bench(*arguments: str, folder: Path) -> tuple[str, dict]:
    """Run `yaie bench ...`; returns what it printed and the JSON that it wrote."""
    file = folder / "figures.json"
    result = CliRunner().invoke(
        app, ["bench", *arguments, "--json", str(file)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.output, json.loads(file.read_text())


SMALL = ["--requests", "6", "--prompt-tokens", "4-40", "--output-tokens", "2-12", "--seeds", "0,1"]


@pytest.mark.nightly
def test_throughput_names_the_peer_and_the_ratio_to_it(model: str, tmp_path: Path) -> None:
    arguments = [*SMALL, "--batch", "2", "--geometric", "4"]
    printed, figures = bench("throughput", model, *arguments, folder=tmp_path)
    assert len(figures["tokens_per_second"]) == 2  # ours, and transformers
    assert all(rate > 0 for rates in figures["tokens_per_second"].values() for rate in rates)
    assert figures["ratio"]["to"] == "transformers generate, static batches of 2"
    assert len(figures["ratio"]["values"]) == 2
    assert "prompts uniform 4-40, outputs geometric, mean 4" in printed


def test_memory_compares_paged_blocks_with_contiguous_pieces(model: str, tmp_path: Path) -> None:
    arguments = ["--requests", "4", "--prompt-tokens", "64-128", "--output-tokens", "8-32"]
    _, figures = bench("memory", model, *arguments, folder=tmp_path)
    shares = figures["shares"]
    assert 0 < shares["whole context"] < shares["power of two"] < shares["exact"] < 1
    assert shares["exact"] < shares["paged"] < 1


def test_prefix_measures_computed_cached_and_off(model: str, tmp_path: Path) -> None:
    arguments = ["--shared-tokens", "200", "--own-tokens", "8", "--repeats", "2"]
    _, figures = bench("prefix", model, *arguments, folder=tmp_path)
    assert figures["first_token_ms"].keys() == {"computed", "cached", "cache off"}
    assert len(figures["ratio"]) == 2


def test_latency_reports_each_batch_size(model: str, tmp_path: Path) -> None:
    arguments = ["--batch", "1", "--batch", "3", "--output-tokens", "6", "--repeats", "1"]
    _, figures = bench("latency", model, *arguments, folder=tmp_path)
    assert figures["batches"].keys() == {"1", "3"}


def test_bookkeeping_measures_scheduling_the_whole_step_and_what_overlapping_leaves(
    tmp_path: Path,
) -> None:
    arguments = ["--running", "4", "--waiting", "3", "--cached", "5", "--steps", "20"]
    _, figures = bench("bookkeeping", *arguments, folder=tmp_path)
    (case,) = figures["cases"]
    assert {len(case[name]) for name in ("ms", "whole_ms", "overlapped_ms")} == {20}
    assert 0 < median(case["ms"]) < median(case["whole_ms"])


def test_the_forward_pass_is_no_part_of_what_overlapping_leaves() -> None:
    config = EngineConfig(device="cpu", backend="torch", mine="none", threads=1)
    backend = choose_backend(config, resolve_device(config))
    seconds = 0.1
    left = time_overlapped(config, backend, Case(2, 0, 0), steps=8, forward_seconds=seconds)
    assert median(left) < 1e3 * seconds


@pytest.mark.nightly
def test_overhead_compares_a_server_with_the_engine_alone(model: str, tmp_path: Path) -> None:
    arguments = ["--streams", "3", "--prompt-tokens", "8", "--output-tokens", "6", "--repeats", "1"]
    printed, figures = bench("overhead", model, *arguments, folder=tmp_path)
    (alone,), (served,) = figures["tokens_per_second"].values()
    assert figures["ratio"]["values"] == [served / alone]
    assert "3 streams at once" in printed


def test_every_job_gets_exactly_the_tokens_it_asks_for(model: str) -> None:
    engine = LLMEngine(model=model, num_blocks=64)
    jobs = draw_jobs(5, Lengths((4, 40), (1, 12)), vocab=300)
    trace = run_jobs(engine, jobs)
    assert trace.output_tokens == sum(job.num_output for job in jobs)
    assert len(trace.first) == 5
    assert len(trace.gaps) == trace.output_tokens - 5


@pytest.mark.parametrize("text", ["0", "5-2", "0-4", "a-b", "-4"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="LOW-HIGH"):
        Lengths.parse(text, "1-2", None)


def test_one_number_is_a_range_of_one() -> None:
    assert Lengths.parse("16", "2-3", None) == Lengths((16, 16), (2, 3))


def test_geometric_lengths_have_the_mean_that_is_asked_for() -> None:
    jobs = draw_jobs(4000, Lengths((1, 1), (1, 1), geometric_mean=20), vocab=300)
    mean = sum(job.num_output for job in jobs) / len(jobs)
    assert mean == pytest.approx(20, rel=0.05)
    assert max(job.num_output for job in jobs) <= 256
