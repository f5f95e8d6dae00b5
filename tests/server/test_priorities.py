"""Heavy work of the server leaves the cores to the engine."""

import gc
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from yaie.engine.background.engine_thread import EngineThread
from yaie.system import json_slices
from yaie.system.gc_tuning import NEVER, few_collections
from yaie.system.thread_niceness import LOWEST


def _never() -> None:
    raise AssertionError("it is not started")


@pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads are Linux's")
@pytest.mark.parametrize(
    "pool",
    [json_slices._writer, EngineThread(_never)._checker],
    ids=["answers", "grammars"],
)
def test_large_answers_and_grammars_have_the_lowest_priority(
    pool: ThreadPoolExecutor,
) -> None:
    def own() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    assert pool.submit(own).result(10) == LOWEST


def test_only_young_objects_are_collected_while_a_large_answer_is_written() -> None:
    before = gc.get_threshold()
    with few_collections():
        assert gc.get_threshold() == (*before[:2], NEVER)
    assert gc.get_threshold() == before
