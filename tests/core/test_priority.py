"""A thread that steps back does so alone; one that waits for others leaves its core soon."""

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import get_native_id

import pytest

import yaie
from yaie.core import priority
from yaie.engine.background.prompts import Prompts


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux knows priorities of threads")
def test_a_thread_that_steps_back_leaves_the_others_where_they_are() -> None:
    before = niceness()
    with ThreadPoolExecutor(1, initializer=priority.step_back) as pool:
        assert pool.submit(niceness).result() == priority.LOWEST
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

    assert asyncio.run(ask()) == [priority.LOWEST, priority.LOWEST, niceness()]


def test_elsewhere_and_where_it_is_refused_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setpriority", refuse, raising=False)
    priority.step_back()
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "setpriority", raising=False)
    priority.step_back()


@pytest.mark.parametrize("given", priority.SPIN_VARIABLES)
def test_what_the_environment_says_of_waiting_stays(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in priority.SPIN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(given, "7")
    priority.spin_less()
    assert {name: os.environ.get(name) for name in priority.SPIN_VARIABLES} == {
        name: "7" if name == given else None for name in priority.SPIN_VARIABLES
    }


def test_an_engine_of_ones_own_script_waits_like_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in priority.SPIN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert yaie.LLMEngine.__name__ == "LLMEngine"
    assert os.environ["GOMP_SPINCOUNT"] == str(priority.SPINS)


@pytest.mark.nightly
@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere PyTorch computes with another OpenMP"
)
def test_openmp_reads_the_command_lines_spins() -> None:
    environment = {k: v for k, v in os.environ.items() if k not in priority.SPIN_VARIABLES}
    command = [sys.executable, "-m", "yaie", "generate", "x", "--max-tokens=1", "--mine=none"]
    ran = subprocess.run(
        command,
        env={**environment, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert f"GOMP_SPINCOUNT = '{priority.SPINS}'" in ran.stderr
