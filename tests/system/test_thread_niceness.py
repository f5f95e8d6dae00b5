"""A thread that steps back does so alone; one that waits for others leaves its core soon."""

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import get_native_id

import pytest

import yaie
from yaie.engine.background.prompts import Prompts
from yaie.system import thread_niceness


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux knows priorities of threads")
def test_a_thread_that_steps_back_leaves_the_others_where_they_are() -> None:
    before = niceness()
    with ThreadPoolExecutor(1, initializer=thread_niceness.step_back) as pool:
        assert pool.submit(niceness).result() == thread_niceness.LOWEST
    assert niceness() == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux knows priorities of threads")
def test_long_texts_are_tokenized_behind_the_engine_and_short_ones_are_not() -> None:
    async def ask() -> list[int]:
        prompts = Prompts(lambda _: None)
        threads = prompts.longest_texts, prompts.long_texts, prompts.short_texts
        try:
            return [await thread.run(niceness) for thread in threads]
        finally:
            prompts.stop()

    assert asyncio.run(ask()) == [thread_niceness.LOWEST, thread_niceness.LOWEST, niceness()]


def test_elsewhere_and_where_it_is_refused_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setpriority", refuse, raising=False)
    thread_niceness.step_back()
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "setpriority", raising=False)
    thread_niceness.step_back()


@pytest.mark.parametrize("given", thread_niceness.SPIN_VARIABLES)
def test_what_the_environment_says_of_waiting_stays(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in thread_niceness.SPIN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(given, "7")
    thread_niceness.spin_less()
    assert {name: os.environ.get(name) for name in thread_niceness.SPIN_VARIABLES} == {
        name: "7" if name == given else None for name in thread_niceness.SPIN_VARIABLES
    }


def test_an_engine_of_ones_own_script_waits_like_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in thread_niceness.SPIN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert yaie.LLMEngine.__name__ == "LLMEngine"
    assert os.environ["GOMP_SPINCOUNT"] == str(thread_niceness.SPINS)


@pytest.mark.nightly
@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere PyTorch computes with another OpenMP"
)
def test_openmp_reads_the_command_lines_spins() -> None:
    environment = {k: v for k, v in os.environ.items() if k not in thread_niceness.SPIN_VARIABLES}
    command = [sys.executable, "-m", "yaie", "generate", "x", "--max-tokens=1", "--mine=none"]
    ran = subprocess.run(
        command,
        env={**environment, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert f"GOMP_SPINCOUNT = '{thread_niceness.SPINS}'" in ran.stderr
