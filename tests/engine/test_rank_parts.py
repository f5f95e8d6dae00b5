"""A learner's part that fails on a rank ends the engine, and clients read which part it was."""

from pathlib import Path
from typing import Any

import pytest

from tests.learner import hand_in
from tests.models.tiny import tiny_model
from tests.server.conftest import serving
from yaie import LLMEngine

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
SAMPLED: dict[str, Any] = {"prompt": "hello", "max_tokens": 40, "seed": 1, "ignore_eos": True}
FAILS = """

from multiprocessing import parent_process

_real, _calls = Sampler.sample, []


def _failing(self, *args, **kwargs):
    _calls.append(0)
    if (parent_process() is None) is {here} and len(_calls) > 2:
        raise IndexError("boom")
    return _real(self, *args, **kwargs)


Sampler.sample = _failing
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_the_client_reads_lab_file_and_line(labs: Path, tmp_path: Path, rank: int) -> None:
    hand_in(labs, "sampler", FAILS.format(here=rank == 0))
    folder = str(tiny_model("llama", tmp_path / "llama"))
    load = lambda: LLMEngine(  # noqa: E731
        model=folder, num_blocks=64, mine="sampler", tensor_parallel=2
    )
    with serving(load) as server:
        for _ in range(2):  # the request that met it, and one that comes later
            failed = server.http.post("/v1/completions", json=SAMPLED)
            assert failed.status_code == 503
            error = failed.json()["error"]
            assert "your part sampler failed: IndexError: boom (labs/sampler/" in error["message"]
            assert error["code"] == "part_error"
        assert server.http.get("/health").json()["status"] == "dead"
