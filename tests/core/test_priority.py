"""A thread that steps back does so alone."""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import get_native_id

import pytest

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
    async def ask() -> tuple[int, int]:
        prompts = Prompts(lambda _: None)
        try:
            return await prompts.long_texts.run(niceness), await prompts.run(niceness)
        finally:
            prompts.stop()

    assert asyncio.run(ask()) == (priority.LOWEST, niceness())


def test_elsewhere_and_where_it_is_refused_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setpriority", refuse, raising=False)
    priority.step_back()
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "setpriority", raising=False)
    priority.step_back()
