"""`yaie bench throughput` on a tiny model: every workload's figures are there and add up."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.test_peers import VLLM
from tests.cli.conftest import Yaie
from tests.learner import hand_in, record_pass
from yaie.backends import choose_backend, decide
from yaie.bench import limits, report
from yaie.bench.throughput import ablation, prefix
from yaie.bench.throughput.contestants import Ours, run_at_once, with_engine
from yaie.bench.workload import Job
from yaie.core.config import EngineConfig
from yaie.core.errors import YaieError
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine

SMALL = ("--requests", "5", "--prompt-tokens", "4-20", "--output-tokens", "2-6")
NAME = "YAIE, continuous batching, up to 256 at once"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_SECONDS", 0.01)
    monkeypatch.setattr(limits, "READ_BYTES", 1 << 20)
    monkeypatch.setattr(limits, "SIDES", (64,))


@pytest.mark.nightly
def test_the_first_run_stands_apart_from_those_of_each_seed(
    measured: Any, tiny_folder: str
) -> None:
    ran, figures = measured(tiny_folder, "--workload", "nano", *SMALL, "--seeds", "3,4")
    assert figures["first"].keys() == figures["tokens_per_second"].keys() == {NAME}
    assert len(figures["tokens_per_second"][NAME]) == 2
    assert len(set(figures["output_tokens"])) == 2
    assert "seed 3" in ran.out
    assert figures["seeds"] == [3, 4]
    assert "temperature 0.6" in figures["workload"]


@pytest.mark.nightly
def test_the_file_says_what_ran_where_and_beside_which_limit(
    measured: Any, tiny_folder: str
) -> None:
    ran, figures = measured(tiny_folder, *SMALL, "--seeds", "0", "--peer", "none")
    assert figures["command"].startswith("yaie bench throughput ")
    machine = figures["machine"]
    assert {"python", "torch", "triton", "transformers", "yaie", "gpu", "git"} <= machine.keys()
    limit = figures["limit"]
    (rate,), (most,) = figures["tokens_per_second"][NAME], limit["tokens_per_second"]
    assert limit["share"] == [pytest.approx(rate / most)]
    assert f"{rate / most:.0%} of the limit" in ran.out


@pytest.mark.nightly
def test_static_batches_stand_beside_the_bound_that_the_lengths_set(
    measured: Any, tiny_folder: str
) -> None:
    arguments = ("--seeds", "0", "--static", "--max-num-seqs", "2")
    ran, figures = measured(tiny_folder, *SMALL, *arguments)
    static = "YAIE, static batching, up to 2 at once"
    ours = figures["tokens_per_second"]["YAIE, continuous batching, up to 2 at once"]
    assert figures["ratio"] == {
        "to": static,
        "values": [ours[0] / figures["tokens_per_second"][static][0]],
    }
    assert f"the lengths allow at most {figures['static_bound'][0]['ratio']:.4g}" in ran.out


@pytest.mark.nightly
def test_vllm_is_a_peer_of_batches_too(
    measured: Any, tiny_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm.py").write_text(VLLM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    arguments = ("--prompt-tokens", "9", "--output-tokens", "4", "--batch", "2", "--seeds", "0")
    _, figures = measured(tiny_folder, "--workload", "fixed", *arguments, "--peer", "vllm")
    peer = figures["batches"]["2"]["vllm 9.9"]
    assert len(peer["prefill_ms"]) == len(peer["mean_ms"]) == 1
    asked = [json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()]
    lengths = [one["params"][0]["max_tokens"] for one in asked if "params" in one]
    assert lengths == [1, 5, 1, 5]


def test_a_fixed_batch_is_timed_while_all_of_it_decodes(measured: Any, tiny_folder: str) -> None:
    arguments = ("--prompt-tokens", "200", "--output-tokens", "6", "--batch", "1", "--batch", "3")
    budget = (
        "--token-budget",
        "16",
    )  # prompts take many steps, and the first ones decode meanwhile
    _, figures = measured(tiny_folder, "--workload", "fixed", *arguments, *budget, "--seeds", "0,1")
    assert figures["batches"].keys() == {"1", "3"}
    steps = figures["batches"]["3"]["YAIE"]
    assert len(steps["prefill_ms"]) == 2
    for low, middle, high, mean in zip(
        steps["low_ms"], steps["median_ms"], steps["high_ms"], steps["mean_ms"], strict=True
    ):
        assert 0 < low <= middle <= high
        assert low <= mean <= high
    assert steps["first"].keys() == {"prefill_ms", "mean_ms", "median_ms", "low_ms", "high_ms"}
    assert figures["limit"]["3"]["decode_ms"] > 0


@pytest.mark.nightly
def test_a_fixed_batch_is_drawn_greedily(
    measured: Any, tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[SamplingParams] = []
    add = LLMEngine.add_request

    def noted(self: LLMEngine, prompt: Any, params: SamplingParams, **given: Any) -> Any:
        asked.append(params)
        return add(self, prompt, params, **given)

    monkeypatch.setattr(LLMEngine, "add_request", noted)
    sizes = ("--prompt-tokens", "9", "--output-tokens", "4", "--batch", "1", "--seeds", "0")
    measured(tiny_folder, "--workload", "fixed", *sizes)
    assert {params.temperature for params in asked} == {0}


@pytest.mark.nightly
def test_a_batch_that_does_not_fit_at_once_is_no_figure(yaie: Yaie, tiny_folder: str) -> None:
    arguments = ("--prompt-tokens", "40", "--output-tokens", "6", "--batch", "4", "--seeds", "0")
    ran = yaie(
        "bench", "throughput", tiny_folder, "--workload", "fixed", *arguments, "--num-blocks", "9"
    )
    assert ran.code == 2
    assert "of a batch of 4 run at once" in ran.err
    ran = yaie("bench", "throughput", tiny_folder, "--workload", "fixed", "--max-num-seqs", "8")
    assert "a batch of 256 needs --max-num-seqs 256" in ran.err


@pytest.mark.nightly
def test_prefixes_are_found_as_often_as_they_can_be(
    measured: Any, tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: dict[str, EngineConfig] = {}

    def ours(name: str, config: EngineConfig, *given: Any, **named: Any) -> Ours:
        configs[name] = config
        return Ours(name, config, *given, **named)

    monkeypatch.setattr(prefix, "Ours", ours)
    sizes = ("--groups", "2", "--group-size", "3", "--shared-tokens", "40", "--own-tokens", "8")
    # One prompt fills a step: each prefix is filed before the next request of its group begins.
    ran, figures = measured(
        tiny_folder, "--workload", "prefix", *sizes, "--output-tokens", "3", "--seeds", "0",
        "--token-budget", "48",
    )  # fmt: skip
    assert figures["ideal_hit_rate"] == 2 / 3 * 32 / 48
    assert figures["hit_rate"] == [figures["ideal_hit_rate"]]
    assert figures["hit_rate_different"] == [0]
    assert figures["seconds"]["shared"].keys() == {"with the cache", "without"}
    caches = {name: config.prefix_caching for name, config in configs.items()}
    assert caches == {"with the cache": True, "without": False}
    (cost,) = figures["cost_without_hits"]
    different = figures["seconds"]["different"]
    assert cost == different["with the cache"][0] / different["without"][0] - 1
    assert "hit rate 44.4% of the prompts' tokens, ideal 44.4%" in ran.out


@pytest.mark.nightly
def test_an_ablation_names_what_is_gone_and_compares_answers(
    measured: Any, tiny_folder: str
) -> None:
    arguments = (*SMALL, "--seeds", "0", "--ablation", "--overlap", "on", "--mine", "none")
    ran, figures = measured(tiny_folder, *arguments)
    assert figures["tokens_per_second"].keys() == {NAME, "without overlap", "kernels in PyTorch"}
    assert figures["ratio"]["to"] in ("without overlap", "kernels in PyTorch")
    assert figures["same_answers"] == {"without overlap": [5], "kernels in PyTorch": [5]}
    assert "without graphs: as it is here" in ran.out


def test_parts_that_have_passed_are_one_of_the_techniques(labs: Path, tiny_folder: str) -> None:
    hand_in(labs, "sampler")
    record_pass(labs, "sampler")
    config = EngineConfig(model=tiny_folder)
    assert ablation.variants(config)[0]["the reference's parts"].mine == "none"
    config = EngineConfig(model=tiny_folder, mine="none")
    assert ablation.variants(config)[0]["with your parts"].mine == "auto"


def test_on_a_gpu_every_technique_is_one_that_can_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    cpu, triton = torch.device("cpu"), EngineConfig(backend="triton", device="cpu")
    monkeypatch.setattr(ablation, "resolve_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(ablation, "decide", lambda *_: decide(triton, cpu))
    found, _ = ablation.variants(EngineConfig(graphs="on", mine="triton_ops"))
    assert [*found] == [
        ablation.FULL, "without graphs", "without overlap", "kernels in PyTorch",
        "the reference's parts",
    ]  # fmt: skip
    changes = [one.non_default() for one in found.values()]
    assert changes[1]["graphs"] == "off"
    assert changes[2]["overlap"] == "off"
    assert changes[3] == {"backend": "torch", "graphs": "off"}
    assert changes[4]["mine"] == "none"
    choose_backend(found["kernels in PyTorch"], cpu)


@pytest.mark.nightly
def test_a_shape_stands_in_for_a_model(measured: Any, yaie: Yaie, tiny_folder: str) -> None:
    _, figures = measured("--shape", "tiny", *SMALL, "--seeds", "0", "--peer", "none")
    assert figures["model"] == "tiny"
    for arguments, said in (
        ((tiny_folder, "--shape", "tiny"), "a model or --shape, not both"),
        (
            ("--shape", "huge"),
            "--shape is one of qwen3-0.6b, llama-3.1-8b",
        ),
        ((tiny_folder, "--shape-folder", "x"), "goes with --shape"),
    ):
        ran = yaie("bench", "throughput", *arguments, "--peer", "none")
        assert ran.code == 2
        assert said in ran.err


@pytest.mark.nightly
def test_nothing_is_cached_between_two_runs(tiny_folder: str) -> None:
    jobs = [Job(list(range(100)), 2)]

    def twice(engine: LLMEngine) -> list[float]:
        return [run_at_once(engine, jobs, 0.0).hit_rate for _ in range(2)]

    assert with_engine(EngineConfig(model=tiny_folder, num_blocks=64), twice) == [0, 0]


@pytest.mark.nightly
def test_requests_are_drawn_at_the_workloads_temperature(tiny_folder: str) -> None:
    def drawn(engine: LLMEngine) -> list[list[int]]:
        return [run_at_once(engine, [Job([5], 20)], one).outputs[0] for one in (0.0, 0.0, 5.0)]

    greedy, again, hot = with_engine(EngineConfig(model=tiny_folder, num_blocks=64), drawn)
    assert greedy == again != hot


@pytest.mark.nightly
def test_a_request_that_ends_early_is_no_figure(
    tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(YaieError, match="request 0 got 2 tokens instead of 3"):
        with_engine(EngineConfig(model=tiny_folder, num_blocks=64), _aborted)


def _aborted(engine: LLMEngine) -> None:
    step, seen = engine.step, []

    def stepping() -> Any:
        outputs = step()
        seen.extend(outputs)
        if len(seen) == 2:
            engine.abort(seen[0].request_id)
        return outputs

    engine.step = stepping  # type: ignore[method-assign]
    run_at_once(engine, [Job([1, 2], 3)], 0.0)


@pytest.fixture
def said_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Any]]:
    """What a file would say of git if the project's root were that folder."""

    def ask(root: Path) -> Any:
        report._git.cache_clear()
        monkeypatch.setattr(report, "ROOT", root)
        return report.machine()["git"]

    yield ask
    report._git.cache_clear()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_checkout_is_known_by_its_commit_and_what_lies_inside_another_is_not(
    said_of: Callable[[Path], Any], tmp_path: Path
) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@x", *arguments]
        ran = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        return ran.stdout.strip()

    assert said_of(tmp_path) is None
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "x")
    commit = git("rev-parse", "HEAD")
    evidence = tmp_path / "book/evidence"
    evidence.mkdir(parents=True)
    (evidence / "recorded.json").touch()
    assert said_of(tmp_path) == {"commit": commit, "dirty": False}
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "file").touch()
    assert said_of(tmp_path) == {"commit": commit, "dirty": True}
    assert said_of(tmp_path / "inside") is None
    assert said_of(tmp_path / "missing") is None


def test_a_peer_that_is_not_installed_is_refused_before_a_model_loads(yaie: Yaie) -> None:
    ran = yaie("bench", "throughput", "/no/such/model", "--peer", "sglang")
    assert ran.code == 2
    assert "the peer sglang is not installed" in ran.err
