"""The same behind AsyncEngine and over HTTP: clients read lab, file and line, and the server goes on."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.learner import faults_of, hand_in_faulty
from tests.models.tiny import tiny_model
from tests.server.conftest import LiveServer, serving
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.background.engine_life import EngineState
from yaie.engine.background.streams import RequestStream
from yaie.engine.llm_engine import LLMEngine

PARAMS = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
BODY: dict[str, Any] = {"prompt": "hello", "max_tokens": 6, "temperature": 0, "ignore_eos": True}
FAILURE = "your part sampler failed: IndexError: boom (labs/sampler/__init__.py, line "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model("llama", tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture
def server(labs: Path, folder: str) -> Iterator[LiveServer]:
    """A server on a sampler of the learner's that does what its `faults` say."""
    hand_in_faulty(labs, "sampler", "Sampler.sample")
    load = lambda: LLMEngine(model=folder, num_blocks=64, mine="sampler", threads=1)  # noqa: E731
    with serving(load) as server:
        yield server


async def reasons_of(stream: RequestStream) -> list[FinishReason | None]:
    return [output.finish_reason async for output in stream if output.finish_reason is not None]


def test_every_stream_gets_its_end_and_the_next_one_an_answer(labs: Path, folder: str) -> None:
    hand_in_faulty(labs, "scheduler", "Scheduler.schedule")

    async def run() -> None:
        engine = AsyncEngine(
            lambda: LLMEngine(model=folder, num_blocks=64, mine="scheduler", max_num_seqs=2)
        )
        await engine.start()
        faults_of("scheduler").extend([None, None, IndexError("boom")])
        streams = [await engine.submit([5 + i, 6, 7], PARAMS) for i in range(6)]
        ends = await asyncio.gather(*(reasons_of(stream) for stream in streams))
        assert ends.count([FinishReason.ERROR]) in range(1, 6)
        assert all(len(end) == 1 for end in ends)
        assert await reasons_of(await engine.submit([5, 6, 7], PARAMS)) == [FinishReason.LENGTH]
        assert engine.state is EngineState.READY
        assert engine.num_streams == 0
        await engine.shutdown()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_client_reads_lab_file_and_line_and_the_next_one_is_served(server: LiveServer) -> None:
    before = server.http.post("/v1/completions", json=BODY).json()["choices"]
    faults_of("sampler").extend([None, IndexError("boom")])
    failed = server.http.post("/v1/completions", json=BODY)
    assert failed.status_code == 500
    assert failed.json()["error"]["message"].startswith(FAILURE)
    after = server.http.post("/v1/completions", json=BODY)
    assert after.status_code == 200
    assert after.json()["choices"] == before
    assert server.http.get("/health").json()["status"] == "ready"


def test_a_stream_that_has_begun_ends_with_an_error_event(server: LiveServer) -> None:
    faults_of("sampler").extend([None, None, None, IndexError("boom")])
    failed = server.http.post("/v1/completions", json={**BODY, "stream": True})
    assert failed.status_code == 200
    *events, done = [line for line in failed.text.split("\n\n") if line]
    assert done == "data: [DONE]"
    error = json.loads(events[-1].removeprefix("data: "))["error"]
    assert error["message"].startswith(FAILURE)
    assert server.http.post("/v1/completions", json=BODY).status_code == 200


def test_health_says_whose_parts_run_and_why(server: LiveServer) -> None:
    parts = {part["lab"]: part for part in server.http.get("/health").json()["parts"]}
    assert parts["sampler"] == {
        "lab": "sampler",
        "owner": "yours",
        "module": "labs.sampler",
        "reason": "forced by --mine",
    }
    assert parts["scheduler"]["reason"] == "not in --mine"
