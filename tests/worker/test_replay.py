"""The same steps, carried out in another process by a worker that has never met the first, give the same
results: whatever a worker needs stands in the steps."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType
from transformers import AutoConfig

from tests.marks import nightly_but
from tests.models.gguf.test_served import wide_model
from tests.models.gguf.tiny_ggufs import all_as, write_gguf
from tests.models.own_heads import random_head, with_head
from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.constraint import Constraint
from yaie.core.contracts import Worker
from yaie.core.step import StepInput, StepMasks, StepResult
from yaie.engine.build import build
from yaie.worker.build import sizes_for
from yaie.worker.replay import Recorder, main

ROOT = Path(__file__).parents[2]
LONG = list(range(20, 70))
PROMPTS = [LONG, LONG[:40], [5, 6], LONG[3:33]]
COMMON = {"temperature": 1.0, "max_tokens": 20, "ignore_eos": True}
ASKED = [
    SamplingParams(**COMMON, seed=1, logprobs=2, prompt_logprobs=1),
    SamplingParams(**COMMON, seed=2, frequency_penalty=1.0, repetition_penalty=1.2),
    SamplingParams(temperature=1.0, seed=3, constraint=Constraint("lark", "start: /[a-z]{6}/")),
    SamplingParams(
        **COMMON,
        seed=4,
        top_k=20,
        logit_bias=((9, 3.0),),
        min_tokens=9,
        stop_token_ids=tuple(range(100)),
        logprobs=0,
        logprob_token_ids=(7, 5),
    ),
]
SETTINGS: dict[str, dict[str, Any]] = {
    "tutor": {"overlap": "on"},
    "llama": {"overlap": "off", "preemption": "swap", "swap_space": 0.01},
    "gemma3": {"overlap": "off"},  # with two groups of layers
    "head": {"overlap": "off", "speculate": "mtp", "num_drafts": 2},  # of the tutor
    "own head": {"overlap": "off", "speculate": "mtp", "num_drafts": 2},
    "gguf": {"overlap": "off"},  # whose blocks are multiplied as they lie in the file
}
OFTEN = ("llama", "gemma3", "head", "gguf")


def record(model: str, file: Path, **settings: Any) -> LLMEngine:
    """Run an engine with a pool too small for its requests, and write down its steps."""
    few: dict[str, Any] = {"num_blocks": 8, "watermark": 0.0, "token_budget": 24, "threads": 1}
    engine = LLMEngine(model=model, **few, **settings)
    engine.close()
    held, drafting = engine._held, engine._drafting
    sizes = sizes_for(engine.config, engine.backend, engine.model, drafting, held)
    with file.open("wb") as recording:

        def recorded(worker: Worker) -> Worker:
            return Recorder(worker, recording, engine.config, sizes)

        engine._machine = build(
            engine.config,
            engine.backend,
            engine.model,
            engine._counters,
            recorded,
            drafting,
            held=held,
        )
        pairs = zip(PROMPTS, ASKED, strict=True)
        requests = [engine.add_request(prompt, params)[0] for prompt, params in pairs]
        while engine.has_work:
            engine.step()
            engine.check()
        engine.close()
    assert [request.error for request in requests] == [None] * len(requests)
    assert engine.stats()["preemptions"] > 0
    return engine


def items_of(file: Path) -> Iterator[Any]:
    """What stands in a recording."""
    with file.open("rb") as recording:
        while True:
            try:
                yield pickle.load(recording)
            except EOFError:
                return


def made(name: str, folder: Path) -> str:
    """The model of these SETTINGS, in a folder."""
    if name in ("tutor", "head"):
        return "tutor"
    if name == "own head":
        plain = tiny_model("qwen3_5", folder / "plain")
        return str(
            with_head(plain, folder / "headed", random_head(AutoConfig.from_pretrained(plain)))
        )
    if name == "gguf":
        blocks = all_as(GGMLQuantizationType.Q8_0)
        folder.mkdir()
        wide = wide_model("llama", folder / "wide")
        return str(write_gguf(wide, folder / "tiny.gguf", blocks))
    return str(tiny_model(name, folder))


class Recordings(dict[str, Path]):
    """By the name of its SETTINGS; recorded when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __missing__(self, name: str) -> Path:
        self[name] = self._folder / f"{name}.pkl"
        record(made(name, self._folder / name), self[name], **SETTINGS[name])
        return self[name]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("recordings")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("YAIE_CACHE", str(folder / "cache"))
        yield Recordings(folder)


def all_equal(file: Path) -> str:
    """What is printed if no result differs."""
    count = sum(isinstance(item, StepResult) for item in items_of(file))
    return f"{count} of {count} steps gave the same result\n"


@pytest.mark.nightly
def test_another_process_gives_the_same_results(recordings: dict[str, Path]) -> None:
    command = [sys.executable, "-m", "yaie.worker.replay", str(recordings["tutor"])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == all_equal(recordings["tutor"])


@pytest.mark.parametrize("name", nightly_but(OFTEN, [*OFTEN, "own head"]))
def test_another_worker_gives_the_same_results(
    recordings: dict[str, Path], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main([str(recordings[name])]) == 0
    assert capsys.readouterr().out == all_equal(recordings[name])


@pytest.mark.parametrize("name", nightly_but(OFTEN, SETTINGS))
def test_recording_has_something_of_everything(recordings: dict[str, Path], name: str) -> None:
    """Or the tests above would show little."""
    items = list(items_of(recordings[name]))
    steps = [item for item in items if isinstance(item, StepInput)]
    entered = [seat for step in steps if step.new for seat in step.new.seats.tolist()]
    assert len(entered) > len(PROMPTS)  # some came back after a preemption
    assert any(not step.samples.all() for step in steps)  # chunks of prompts
    assert any(isinstance(item, StepMasks) for item in items)
    results = [item for item in items if isinstance(item, StepResult)]
    assert any("logprobs" in result.extras for result in results)
    assert any("prompt_logprobs" in result.extras for result in results)
    moved = any(len(step.swap_in) for step in steps)
    assert moved == ("swap_space" in SETTINGS[name])
    drafted = any("proposals" in result.extras for result in results)
    assert drafted == ("speculate" in SETTINGS[name])


def test_a_result_that_differs_is_named(
    recordings: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    altered = tmp_path / "altered.pkl"
    count = 0
    with altered.open("wb") as file:
        for item in items_of(recordings["llama"]):
            if isinstance(item, StepResult):
                count += 1
                if item.step == 7:
                    item.token_ids[0][0] += 1
            pickle.dump(item, file, protocol=5)
    assert main([str(altered)]) == 1
    assert capsys.readouterr().out == (
        f"{count - 1} of {count} steps gave the same result\ndifferent: 7\n"
    )


def test_recording_without_steps_proves_nothing(
    recordings: dict[str, Path], tmp_path: Path
) -> None:
    empty = tmp_path / "empty.pkl"
    empty.write_bytes(pickle.dumps(next(items_of(recordings["llama"])), protocol=5))
    assert main([str(empty)]) == 1
