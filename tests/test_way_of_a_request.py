"""The way of one streamed chat through the engine is no longer than it was: the ceilings only fall."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.way import ROOT, Call, Way, steps_of, way_of

MOST_FILES, MOST_LINES = 50, 7_585
"""On the way, and in them."""
NOW_AND_THEN = {
    "yaie/system/core_use.py", "yaie/system/processor.py", "yaie/server/logs.py",
    "yaie/server/unread.py", "yaie/server/late_heads.py", "yaie/server/connections.py",
}  # fmt: skip
"""Not counted, as they may fall into an answer: how busy the cores are is looked at ten times a second,
who leaves answers unread every five seconds, whose request's head is late every ten, and as often a line
is logged."""
MOST_STEP_FILES, MOST_STEP_CALLS = 25, 100
"""Of a decode step, without model and server."""
ROOMS = (
    "yaie/worker/rules/", "yaie/worker/readouts/", "yaie/worker/parallel/", "yaie/engine/drafting/",
    "yaie/engine/handover/", "yaie/engine/watching/", "yaie/models/gguf/", "yaie/backends/states/",
    "yaie/engine/windows/", "yaie/worker/windows.py",
)  # fmt: skip
"""Of what a plain chat does not ask for, and this engine is not set to do."""
ENGINE, SERVER = 1, 2
CRASHES = 3
"""Runs at most. A profile hook makes a frame object of every call, and CPython before 3.11.5 frees one
twice, once in some hundred runs (https://github.com/python/cpython/issues/106092)."""


@pytest.fixture(scope="module")
def way() -> Way:
    """From a process that has nothing else in it, with one thread: what chooses among several is 219
    lines more, and whether it stands on the way would depend on how many processes run tests."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.way", "--json"]
    for _ in range(CRASHES):
        told = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=200,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        if told.returncode != -signal.SIGSEGV:
            break
    assert told.returncode == 0, told.stderr
    return Way(**json.loads(told.stdout))


@pytest.mark.slow
def test_a_streamed_chat_touches_no_more_files(way: Way) -> None:
    files = way.files.keys() - NOW_AND_THEN
    assert len(files) <= MOST_FILES, files
    assert sum(way.lines[path] for path in files) <= MOST_LINES


@pytest.mark.slow
def test_a_decode_step_makes_no_more_calls(way: Way) -> None:
    assert len(way.step_files) <= MOST_STEP_FILES, way.step_files
    assert way.step_calls <= MOST_STEP_CALLS, way.step_files


@pytest.mark.slow
def test_what_is_off_is_not_called(way: Way) -> None:
    assert [path for path in way.files if path.startswith(ROOMS)] == []


@pytest.mark.slow
def test_the_way_goes_from_the_route_to_the_sampler_and_back(way: Way) -> None:
    order = list(way.files)
    stations = [
        "solutions/api_server/routes.py",
        "solutions/scheduler/scheduler.py",
        "yaie/worker/worker.py",
        "yaie/models/llama.py",
        "solutions/sampler/sampler.py",
    ]
    assert [order.index(path) for path in stations] == sorted(map(order.index, stations))


def test_a_step_is_counted_on_the_engines_thread_alone_and_without_model_and_server() -> None:
    loop, cache = "yaie/engine/llm_engine.py", "solutions/paged_cache/block_manager.py"
    step = Call(ENGINE, loop, "LLMEngine.step")
    inside = [
        Call(SERVER, "yaie/engine/background/async_engine.py", "AsyncEngine.submit"),
        Call(ENGINE, "yaie/models/llama.py", "LlamaAdapter.forward"),
        Call(ENGINE, cache, "BlockManager.num_free"),
    ]
    calls = [step, *inside, step, *inside, step, *inside, *inside, step, step]
    assert steps_of(calls) == [{loop: 1, cache: 2}, {loop: 1}]
    assert way_of(calls).step_calls == 3
    assert list(way_of(calls).files)[:2] == [loop, "yaie/engine/background/async_engine.py"]
