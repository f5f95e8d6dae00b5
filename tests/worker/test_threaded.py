"""A worker on a thread of its own answers as it does in the caller's, and its thread ends."""

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tests.worker.rig import VOCAB, Rig, make_worker, mixed_requests, naive_tokens, request_of
from yaie.core.step import StepInput, StepMasks, StepResult
from yaie.worker.step_future import StepFuture
from yaie.worker.threaded import ThreadedWorker

pytestmark = pytest.mark.timeout(60)


def worker_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "yaie-worker"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(worker_threads())
    yield
    if not set(worker_threads()) <= before:
        gc.collect()
    assert set(worker_threads()) <= before


@pytest.fixture
def threaded() -> Iterator[ThreadedWorker]:
    worker = ThreadedWorker(make_worker(), num_threads=1)
    yield worker
    worker.close()


def masks_for(step: StepInput) -> StepMasks:
    """Seat 1 may draw what is odd."""
    odd = np.tile(np.array([0, 1], np.uint8), VOCAB // 2)[None]
    bits = np.packbits(odd, axis=1, bitorder="little")
    return StepMasks(step.step, np.array([1], np.int32), bits)


def story(rig: Rig) -> list[StepResult]:
    """Prompts in chunks, a constrained seat, drafts, a seat that changes hands."""
    requests = mixed_requests()
    requests[1].matcher = object()
    results = [rig.step(enter={0: requests[0], 2: requests[2]}, most=4) for _ in range(1)]
    results += [rig.step(most=4) for _ in range(3)]
    results.append(rig.step(enter={1: requests[1]}, masks=masks_for))
    results += [rig.step(masks=masks_for) for _ in range(2)]
    del rig.requests[1]
    results += [rig.step(drafts={0: [1, 2], 2: [3]}) for _ in range(2)]
    results.append(rig.step(enter={1: request_of([4, 5], 7, temperature=1.0, logprobs=2)}))
    results += [rig.step() for _ in range(3)]
    return results


def test_results_are_those_of_a_worker_in_the_caller_s_thread(threaded: ThreadedWorker) -> None:
    results = story(Rig(threaded))
    assert results == story(Rig())
    assert all(result.fault is None for result in results)


def test_steps_are_sent_before_the_one_before_is_read(threaded: ThreadedWorker) -> None:
    rig = Rig(threaded)
    request = mixed_requests()[3]
    handles = [threaded.execute(rig.plan(enter={3: request}))]
    computed = len(request.token_ids)
    for _ in range(5):
        rig.computed[3], computed = computed, computed + 1
        step = rig.plan(3)
        step.num_tokens[:] = 1  # its token is known to the worker alone
        step.samples[:] = True
        handles.append(threaded.execute(step))
    drawn = [handle.result().token_ids for handle in handles]
    assert drawn == [[[token]] for token in naive_tokens(request, 6)]


def test_step_behind_one_that_waits_for_masks_waits_too(threaded: ThreadedWorker) -> None:
    rig = Rig(threaded)
    request = request_of([4, 4, 6])
    request.matcher = object()
    first = rig.plan(enter={1: request})
    first.masked = True
    waiting = threaded.execute(first)
    rig.computed[1] = 3
    second = rig.plan(1)
    second.num_tokens[:], second.samples[:], second.masked = 1, True, True
    behind = threaded.execute(second)
    waiting.mask(masks_for(first))
    behind.mask(masks_for(second))
    drawn = [waiting.result().token_ids[0][0], behind.result().token_ids[0][0]]

    rig = Rig()
    rig.step(enter={1: request}, masks=masks_for)
    rig.step(masks=masks_for)
    assert drawn == rig.output(1)
    assert all(token % 2 for token in drawn)


def test_close_ends_the_thread_after_the_steps_that_were_sent() -> None:
    worker = ThreadedWorker(make_worker())
    rig = Rig(worker)
    handle = worker.execute(rig.plan(enter={0: request_of([1, 2])}))
    worker.close()
    worker.close()  # twice is harmless
    assert handle.result().fault is None


def test_worker_inside_is_closed_on_its_thread() -> None:
    class Inner:
        closed_on = ""

        def execute(self, step: StepInput) -> StepFuture:
            raise AssertionError("no step was sent")

        def close(self) -> None:
            self.closed_on = threading.current_thread().name

    inner = Inner()
    ThreadedWorker(inner).close()
    assert inner.closed_on == "yaie-worker"


def test_dropped_worker_is_collected_and_its_thread_ends() -> None:
    before = set(worker_threads())
    worker = ThreadedWorker(make_worker())
    rig = Rig(worker)
    rig.step(enter={0: request_of([1, 2])})
    (thread,) = set(worker_threads()) - before
    del worker, rig
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("how", ["close", "drop"])
@pytest.mark.parametrize("num_steps", [1, 2])
def test_masks_that_never_come_keep_no_thread(how: str, num_steps: int) -> None:
    """Control failed between sending steps and masking them, or the interpreter ends there."""
    before = set(worker_threads())
    worker = ThreadedWorker(make_worker())
    rig = Rig(worker)
    handles = []
    for _ in range(num_steps):
        request = request_of([1, 2])
        request.matcher = object()
        step = rig.plan(enter={1: request})
        step.masked = True
        handles.append(worker.execute(step))
    (thread,) = set(worker_threads()) - before

    def end() -> None:
        nonlocal worker, rig
        if how == "close":
            worker.close()
        del worker, rig
        gc.collect()

    ending = threading.Thread(target=end, daemon=True)
    ending.start()
    thread.join(10)
    stuck = thread.is_alive()
    for handle in handles if stuck else []:  # or the fixture would find it
        handle.mask(None)
    assert not stuck


class Raising:
    """A worker that is broken itself."""

    def execute(self, step: StepInput) -> StepFuture:
        """See the contract."""
        raise LookupError("no such seat")

    def close(self) -> None:
        """See the contract."""


def test_what_a_worker_raises_is_raised_where_the_result_is_read() -> None:
    worker = ThreadedWorker(Raising())
    rig = Rig()
    handles = [worker.execute(rig.plan(enter={0: request_of([1])})) for _ in range(2)]
    for handle in handles:
        with pytest.raises(LookupError, match="no such seat"):
            handle.result()
    worker.close()
