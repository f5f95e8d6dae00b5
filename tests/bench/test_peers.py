"""Peers in processes of their own: what they are sent, what they answer, and how they fail."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress

from tests.models.tiny import tiny_model
from yaie.bench.peers.engines import Static
from yaie.bench.peers.process import Peer, _signal, check_peers, settings_for
from yaie.bench.throughput.contestants import race
from yaie.bench.workload import Job
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, YaieError

# Engines that write what they are given to a file, and answer at once.
VLLM = """
import json, os, sys
from types import SimpleNamespace
__version__ = "9.9"

def note(**what):
    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps(what | {"pid": os.getpid()}) + "\\n")

class SamplingParams:
    def __init__(self, **values):
        self.values = values

class LLM:
    def __init__(self, **options):
        print("vllm talks on stdout, and on")
        if options["model"] == "none":
            raise OSError("no such model here")
        note(options=options)

    def reset_prefix_cache(self):
        note(reset=True)

    def generate(self, prompts, params, use_tqdm):
        note(prompts=prompts, params=[one.values for one in params])
        short = int(os.environ.get("SHORT", "0"))
        lengths = [one.values["max_tokens"] - short for one in params]
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=[0] * n)]) for n in lengths]
"""
SGLANG = """
__version__ = "8.8"

class Engine:
    def __init__(self, **options):
        assert options["context_length"] == 512 and options["disable_radix_cache"] is False

    def flush_cache(self):
        pass

    def generate(self, input_ids, sampling_params):
        assert [len(ids) for ids in input_ids] == [3, 1]
        return [{"meta_info": {"completion_tokens": one["max_new_tokens"]}} for one in sampling_params]

    def shutdown(self):
        open(__file__ + ".ended", "w").close()
"""
JOBS = [Job([1, 2, 3], 4), Job([5], 2)]
SETTINGS = settings_for(EngineConfig(), "m", "bfloat16", "cuda", 512)


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both fakes, on the path of processes that are started."""
    for name, source in (("vllm", VLLM), ("sglang", SGLANG)):
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    return tmp_path


def notes(fakes: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (fakes / "notes").read_text().splitlines()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_vllm_gets_token_ids_lengths_and_our_settings(fakes: Path) -> None:
    check_peers(["vllm"], None)
    peer = Peer("vllm", "vllm", SETTINGS, [JOBS, JOBS[1:]], temperature=0.6)
    with peer.opened() as run:
        first, second = run(0), run(1)
    assert (first.output_tokens, second.output_tokens) == (6, 2)
    assert first.rate > 0
    assert peer.about == {"version": "9.9"}
    loaded, _, whole, reset, _ = notes(fakes)
    options = {
        "model": "m",
        "dtype": "bfloat16",
        "max_model_len": 512,
        "enable_prefix_caching": True,
    }
    assert options.items() <= loaded["options"].items()
    assert whole["prompts"] == [{"prompt_token_ids": [1, 2, 3]}, {"prompt_token_ids": [5]}]
    drawn = {"temperature": 0.6, "ignore_eos": True, "detokenize": False}
    assert whole["params"] == [{**drawn, "max_tokens": 4}, {**drawn, "max_tokens": 2}]
    assert reset["reset"]
    assert not is_alive(loaded["pid"])


def test_sglang_is_shut_down_at_the_end(fakes: Path) -> None:
    with Peer("sglang", "sglang", SETTINGS, [JOBS]).opened() as run:
        assert run(0).output_tokens == 6
    assert (fakes / "sglang.py.ended").exists()


def test_a_peer_that_fails_shows_what_it_wrote_last(fakes: Path) -> None:
    peer = Peer("vllm", "vllm", SETTINGS | {"model": "none"}, [JOBS])
    with (
        pytest.raises(YaieError, match=r"(?s)the peer vllm failed.*no such model here"),
        peer.opened(),
    ):
        pass


def test_a_peer_that_is_short_of_a_token_gives_no_figure(
    fakes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHORT", "1")
    with (
        pytest.raises(YaieError, match="request 0 got 3 tokens instead of 4"),
        Peer("vllm", "vllm", SETTINGS, [JOBS]).opened() as run,
    ):
        run(0)
    assert not is_alive(notes(fakes)[0]["pid"])


def test_ctrl_c_ends_the_process(fakes: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Peer("vllm", "vllm", SETTINGS, [JOBS]).opened():
        raise KeyboardInterrupt
    assert not is_alive(notes(fakes)[0]["pid"])


def test_a_peer_that_is_not_installed_is_named_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?s)sglang is not installed.*pip install sglang"):
        check_peers(["static", "sglang"], None)
    with pytest.raises(ConfigError, match="cannot be run"):
        check_peers(["vllm"], str(tmp_path / "python"))


def test_peers_take_turns_or_have_the_machine_to_themselves() -> None:
    seen: list[tuple[str, object]] = []

    def contestant(name: str) -> Any:
        from contextlib import contextmanager
        from types import SimpleNamespace

        @contextmanager
        def opened() -> Any:
            seen.append((name, "open"))
            yield lambda number: seen.append((name, number))
            seen.append((name, "closed"))

        return SimpleNamespace(name=name, opened=opened)

    with Progress(disable=True) as bar:
        race([contestant("a"), contestant("b")], 2, bar, in_turn=True)
        together = seen[2:6]
        seen.clear()
        race([contestant("a"), contestant("b")], 2, bar, in_turn=False)
    assert together == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert seen[:4] == [("a", "open"), ("a", 0), ("a", 1), ("a", "closed")]


def test_static_is_our_engine_in_static_batches(tmp_path: Path) -> None:
    model = str(tiny_model("llama", tmp_path / "llama"))
    config = EngineConfig(model=model, num_blocks=64, mine="none", overlap="on")
    static = Static(settings_for(config, model, "float32", "cpu", 512))
    assert static._engine.config.batching == "static"
    assert static.run([[5]], [2], 0.0) == [2]
    static.close()


@pytest.mark.nightly  # by day `yaie bench throughput` runs both, see tests/cli/test_bench.py
def test_transformers_and_static_run_the_same_requests(tmp_path: Path) -> None:
    model = str(tiny_model("llama", tmp_path / "llama"))
    config = EngineConfig(model=model, max_num_seqs=2, num_blocks=64, mine="none")
    settings = settings_for(config, model, "float32", "cpu", 512) | {"batch": 2}
    jobs = [Job([3] * 9, 5), Job([4] * 2, 1), Job([5], 3)]
    for kind in ("transformers", "static"):
        with Peer(kind, kind, settings, [jobs], temperature=0.6).opened() as run:
            assert run(0).output_tokens == 9


def test_a_group_of_processes_is_signalled_and_one_that_has_ended_is_no_error() -> None:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    _signal(process.pid, signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL
    _signal(process.pid, signal.SIGKILL)
