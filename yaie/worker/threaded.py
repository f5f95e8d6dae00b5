"""A worker on a thread of its own: on a CPU, control then goes on while a step computes.

Both threads run Python, so only one of them moves. A result therefore waits, if another step has been
sent already, until that step's model begins: what control does with it would only delay that.
"""

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

import torch

from yaie.core.step import StepInput, StepMasks, StepResult
from yaie.worker.step_future import FOR_MASKS, FOR_THE_END, Stages, StepFuture
from yaie.worker.worker import Worker


class Item:
    """A step on its way to the thread, and back."""

    def __init__(self, step: StepInput) -> None:
        self.step = step
        self.masks: Future[StepMasks | None] = Future()
        self.done: Future[StepResult] = Future()


Inbox = SimpleQueue[Item | None]


class ThreadedWorker:
    """Another worker, called on one thread, step after step. See `yaie.core.contracts.Worker`."""

    def __init__(self, worker: Worker, num_threads: int | None = None) -> None:
        """num_threads: that PyTorch may use there; it keeps this setting for each thread."""
        self._inbox: Inbox = SimpleQueue()
        self._unmasked: list[Item] = []
        # The thread knows the inbox and not this object, which may thus be collected while it waits.
        arguments = (self._inbox, worker, num_threads)
        thread = threading.Thread(target=_run, args=arguments, name="yaie-worker", daemon=True)
        thread.start()
        self._end = weakref.finalize(self, _end, self._inbox, thread, self._unmasked)

    def execute(self, step: StepInput) -> StepFuture:
        """See the contract."""
        item = Item(step)
        if step.masked:
            self._unmasked[:] = [one for one in self._unmasked if not one.masks.done()] + [item]
        self._inbox.put(item)
        return StepFuture(step, _awaited(item))

    def close(self) -> None:
        """End the thread, after the steps that were sent."""
        self._end()


def _awaited(item: Item) -> Stages:
    """A step that is on its way. It does not know the worker, which may thus be collected."""
    if item.step.masked:
        item.masks.set_result((yield FOR_MASKS))
    yield FOR_THE_END
    return item.done.result()


def _end(inbox: Inbox, thread: threading.Thread, unmasked: list[Item]) -> None:
    inbox.put(None)
    for item in unmasked:
        if not item.masks.done():
            item.masks.set_result(None)  # they are not sent any more
    if thread is not threading.current_thread():
        thread.join()


def _run(inbox: Inbox, worker: Worker, num_threads: int | None) -> None:
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    results: list[Callable[[], None]] = []  # that are to be handed over

    def hand_over() -> None:
        while results:
            results.pop()()

    worker.before_forward = hand_over
    while (item := inbox.get()) is not None:
        results.append(_carry_out(worker, item, hand_over))
        del item  # what a step holds must not outlive it here
        if inbox.empty():
            hand_over()
    hand_over()
    worker.close()


def _carry_out(worker: Worker, item: Item, hand_over: Callable[[], None]) -> Callable[[], None]:
    """Returns what tells the result to whoever waits for it."""
    done = item.done
    try:
        handle = worker.execute(item.step)
        hand_over()  # a step that only moves blocks has no forward pass; masks may wait for the result
        if item.step.masked and (masks := item.masks.result()) is not None:
            handle.mask(masks)
        result = handle.result()
    except BaseException as error:  # noqa: BLE001, it is raised where the result is read
        hand_over()
        failure = error
        return lambda: done.set_exception(failure)
    return lambda: done.set_result(result)
