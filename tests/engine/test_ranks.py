"""Ranks in processes of their own give the tokens of one rank, whatever the engine does with them."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.mixed import Asked, add_all, expect_same, mixed, plain, run, short
from tests.engine.warm_ranks import warm_ranks
from tests.marks import nightly_but
from tests.models.tiny import tiny_model
from yaie import LLMEngine
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.core.request import FinishReason, Request

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
QUESTIONS = ["What is a paged KV cache?", "Why does decode read all weights?", "hello"]
TIGHT: dict[str, Any] = {"num_blocks": 11, "watermark": 0.0, "max_num_seqs": 12}
SWAP: dict[str, Any] = {**TIGHT, "preemption": "swap", "swap_space": 0.04}
SHAPES: dict[str, dict[str, Any]] = {
    "2x1": {"tensor_parallel": 2, "speculate": "ngram", **TIGHT},
    "1x2": {"pipeline_parallel": 2, "overlap": "on", **TIGHT},
    "2x2": {
        "tensor_parallel": 2,
        "pipeline_parallel": 2,
        "speculate": "ngram",
        "collectives": "library",
        **SWAP,
    },
    "4x1": {"tensor_parallel": 4, "overlap": "on", "collectives": "library", **SWAP},
}
NIGHTLY: dict[str, dict[str, Any]] = {
    "2x2 ring": {"tensor_parallel": 2, "pipeline_parallel": 2, "speculate": "ngram", **SWAP},
    "4x1 ring": {"tensor_parallel": 4, "overlap": "on", **SWAP},
    "2x1 library": {"tensor_parallel": 2, "collectives": "library", "num_blocks": 300},
    "2x1 overlap": {"tensor_parallel": 2, "overlap": "on", "token_budget": 16, "num_blocks": 300},
    "2x1 torch": {"tensor_parallel": 2, "backend": "torch", "prefix_caching": False},
    "1x2 swap": {"pipeline_parallel": 2, **SWAP},
    "1x2 ngram": {"pipeline_parallel": 2, "speculate": "ngram", "token_budget": 16},
    "1x4 overlap": {"pipeline_parallel": 4, "overlap": "on", "num_blocks": 300},
    "2x2 overlap": {"tensor_parallel": 2, "pipeline_parallel": 2, "overlap": "on", **SWAP},
    "4x2": {"tensor_parallel": 4, "pipeline_parallel": 2, "num_blocks": 300},
}
FAMILIES = ("llama", "llama-biases", "mistral", "qwen2", "qwen3", "gpt2")
Reference = Callable[..., list[Request]]


@pytest.fixture(scope="module", autouse=True)
def _warm() -> Iterator[None]:
    with warm_ranks():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    root = tmp_path_factory.mktemp("models")

    def make(family: str) -> str:
        if family == "tutor":
            return family
        place: Path = root / family
        return str(place if place.exists() else tiny_model(family, place))

    return make


@pytest.fixture(scope="module")
def reference(folder: Callable[[str], str]) -> Reference:
    """What one rank gives, asked once for each model."""
    known: dict[tuple[str, Asked], list[Request]] = {}

    def ask(family: str, asked: Asked = mixed) -> list[Request]:
        if (family, asked) not in known:
            # Two threads on cores that others use wait for each other, which costs more than they save.
            engine = LLMEngine(model=folder(family), mine="none", num_blocks=300, threads=1)
            known[family, asked] = add_all(engine, asked)
            run(engine)
        return known[family, asked]

    return ask


def expect_survivors(engine: LLMEngine, expected: list[Request]) -> None:
    """So do those that are not aborted on the way."""
    again = add_all(engine)
    doomed = again[::3]

    def abort(step: int) -> None:
        if step % 2 == 0 and step // 2 <= len(doomed):
            engine.abort(doomed[step // 2 - 1].request_id)

    run(engine, abort)
    survivors = [
        (one, other)
        for one, other in zip(again, expected, strict=True)
        if one.finish_reason is not FinishReason.ABORT
    ]
    assert len(survivors) < len(again)
    assert all(one.token_ids == other.token_ids for one, other in survivors)
    assert engine.stats()["used_blocks"] == 0


def expect_shape(
    folder: str,
    expected: list[Request],
    settings: dict[str, Any],
    *,
    aborts: bool = False,
    asked: Asked = mixed,
) -> None:
    threads = torch.get_num_threads()
    engine = LLMEngine(EngineConfig(model=folder, mine="none", **settings))
    try:
        expect_same(engine, expected, asked)
        if aborts and engine.config.num_ranks == 2:  # four take turns on the two cores of CI
            expect_survivors(engine, expected)
        if settings.get("num_blocks") == 11:
            assert engine.stats()["preemptions"]
    finally:
        engine.close()
        torch.set_num_threads(threads)


@pytest.mark.nightly
@pytest.mark.parametrize("shape", SHAPES)
def test_the_tutor_on_ranks_gives_the_tokens_of_one(
    folder: Callable[[str], str], reference: Reference, shape: str
) -> None:
    expect_shape(folder("tutor"), reference("tutor"), SHAPES[shape], aborts=True)


@pytest.mark.parametrize("family", nightly_but(["qwen3"], FAMILIES))
def test_every_family_on_two_ranks_gives_the_tokens_of_one(
    folder: Callable[[str], str], reference: Reference, family: str
) -> None:
    """Without the document, which takes 120 steps: the tutor draws it on ranks of every shape."""
    settings = {"tensor_parallel": 2, "num_blocks": 60}
    expect_shape(folder(family), reference(family, short), settings, asked=short)


@pytest.mark.nightly
@pytest.mark.parametrize("shape", NIGHTLY)
def test_other_settings_change_no_token(
    folder: Callable[[str], str], reference: Reference, shape: str
) -> None:
    expect_shape(folder("tutor"), reference("tutor"), NIGHTLY[shape], aborts=True)


@pytest.mark.nightly
@pytest.mark.parametrize("shape", [(4, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_in_other_shapes(
    folder: Callable[[str], str], reference: Reference, family: str, shape: tuple[int, int]
) -> None:
    settings = {"tensor_parallel": shape[0], "pipeline_parallel": shape[1], "num_blocks": 60}
    expect_shape(folder(family), reference(family), settings)


@pytest.mark.nightly
def test_kernels_draw_from_split_logits_as_from_joined_ones(reference: Reference) -> None:
    """In the interpreter, which takes a second a token; padded, as a GPU replays the steps."""
    settings = {"tensor_parallel": 2, "num_blocks": 40, "max_num_seqs": 4, "graphs": "padded"}
    expected = reference("tutor", plain)
    expect_shape("tutor", expected, settings | {"backend": "triton"}, asked=plain)


@pytest.mark.nightly
@pytest.mark.parametrize("to", [("int8",), ("int4", "--group-size", "16")])
def test_the_quantized_tutor_on_two_ranks_gives_the_tokens_of_one(
    tmp_path: Path, to: tuple[str, ...]
) -> None:
    command = ("quantize", "tutor", "--to", *to, "--windows", "4", "--out", str(tmp_path / "q"))
    subprocess.run([sys.executable, "-m", "yaie", *command], check=True, cwd=ROOT)
    whole, split = (
        LLMEngine(model=str(tmp_path / "q"), mine="none", num_blocks=300, tensor_parallel=size)
        for size in (1, 2)
    )
    try:
        asked = {"temperature": 0.0, "max_tokens": 48, "ignore_eos": True}
        assert split.generate(QUESTIONS, **asked) == whole.generate(QUESTIONS, **asked)
    finally:
        split.close()
        whole.close()


def test_what_cannot_work_is_said_before_anything_is_loaded() -> None:
    with pytest.raises(ConfigError, match="tensor_parallel 7 does not divide"):
        LLMEngine(tensor_parallel=7, mine="none")
    with pytest.raises(ConfigError, match="pipeline_parallel 99 is more than"):
        LLMEngine(pipeline_parallel=99, mine="none")
