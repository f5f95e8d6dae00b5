"""What runs in the process of a rank: a worker that does what control's own does, call by call."""

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

import torch

from yaie.backends import choose_backend
from yaie.core.config import EngineConfig
from yaie.core.errors import YaieError
from yaie.core.step import StepInput, StepMasks
from yaie.models.adapter import ModelAdapter
from yaie.models.loader import ModelLoader
from yaie.system.child import end_with_parent, leave_signals_to_parent
from yaie.system.gc_tuning import freeze_heap
from yaie.worker.build import Sizes, make_worker, sizes_for
from yaie.worker.parallel.groups import Rendezvous, join, use_device
from yaie.worker.parallel.messages import (
    MESSAGES,
    Broken,
    Collect,
    Done,
    End,
    Failure,
    Go,
    Here,
    Loaded,
    Ready,
    digest,
    dtype_name,
)
from yaie.worker.parallel.place import Place, answering_rank
from yaie.worker.step_future import StepFuture
from yaie.worker.threads import use_threads
from yaie.worker.windows import held_of
from yaie.worker.worker import Worker

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """A rank's part of a model: see `build.Loaded`."""

    adapter: ModelAdapter
    dtype: torch.dtype
    device: torch.device
    max_length: int


def run_rank(
    pipe: "Connection[bytes, bytes]", config: EngineConfig, place: Place, file: Path
) -> None:
    """The life of this process: until it is told to stop, a step breaks, or control is gone.

    file: through which the ranks find each other.
    """
    leave_signals_to_parent()
    end_with_parent()
    rank = Rank(pipe, config, place)
    try:
        rank.start(file, place.rank, place.size)
        rank.serve()
    except Exception as error:
        if not isinstance(error, YaieError):
            logger.error("rank %d failed", place.rank, exc_info=True)
        rank.tell(Broken(Failure.of(error)))
    os._exit(1)  # without waiting for others, who may hang


class Pipe(Protocol):
    """The way to control and back: a Connection is one. Raises OSError or EOFError at its end."""

    def send_bytes(self, data: bytes, /) -> None: ...

    def recv_bytes(self) -> bytes | bytearray: ...


class Rank:
    """A worker that does what the other end of a pipe says.

    ends_itself: whether this process is about to end with words of its own, whatever control says to it.
    """

    def __init__(self, pipe: Pipe, config: EngineConfig, place: Place) -> None:
        self._pipe = pipe
        self._config = config
        self._place = place
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._steps: dict[int, StepFuture] = {}
        self.ends_itself = self._is_serving = False
        threading.Thread(target=self._read, name="yaie-pipe", daemon=True).start()

    def tell(self, message: Any) -> None:
        """Send control a message. If it is gone, `_read` notices."""
        try:
            self._pipe.send_bytes(MESSAGES.encode(message))
        except OSError:
            if not self.ends_itself:
                os._exit(1)

    def _read(self) -> None:
        """Control's messages, in order. At the end of the pipe control is gone."""
        try:
            while True:
                message = MESSAGES.decode(self._pipe.recv_bytes())
                if isinstance(message, End):
                    self._end(message.why)
                self._inbox.put(message)
        except (EOFError, OSError):
            if not self.ends_itself:
                os._exit(1)
        except ValueError as error:
            logger.critical("rank %d cannot read what rank 0 says: %s", self._place.rank, error)
            os._exit(1)

    def _end(self, why: str) -> None:
        if self.ends_itself:
            return
        if not self._is_serving:
            logger.critical(
                "rank %d ends, for rank 0 did not start: %s",
                self._place.rank, why or "its own output says why",
            )  # fmt: skip
            os._exit(2)
        if why:
            logger.critical("rank %d ends with the others: %s", self._place.rank, why)
        os._exit(1 if why else 0)

    def start(self, rendezvous: Path | Rendezvous, index: int, beside: int) -> None:
        """Load this rank's part and make its worker, in step with the other ranks.

        rendezvous: see `groups.join`. index: of this process on its host, which takes the GPU of that
        number; beside: how many ranks there are, itself among them.
        """
        config, place = self._config, self._place
        from transformers import AutoConfig  # noqa: F401 (a second, in which control does the same)

        assert isinstance(self._inbox.get(), Go)
        use_threads(config.threads, beside)
        loader = ModelLoader(config, progress=False)
        device = use_device(loader.device, index)
        backend = choose_backend(
            config,
            device,
            loader.head_dims,
            packed=loader.is_packed,
            stateful=loader.keeps_states,
        )
        backend.prepare(device)
        self.tell(Here())
        lab = backend.parts["tensor_parallel"]
        groups = join(config, place, rendezvous, lab, device)
        adapter, _ = loader.load_adapter(
            backend.make_ops(),
            backend.dtypes,
            partial(backend.make_packed_gemm, device),
            groups.shard(lab),
        )
        part = Part(adapter, loader.dtype, device, adapter.max_length)
        held = held_of(config, adapter, part.max_length)  # as control finds: no head is on ranks
        held = None if held is None or held.kept else held
        own = sizes_for(config, backend, part, held=held)
        self.tell(Loaded(own, dtype_name(loader.dtype)))
        sizes = self._inbox.get()
        assert isinstance(sizes, Sizes)
        self._worker: Worker = make_worker(config, backend, part, sizes, held=held)
        groups.limit.set(config.rank_timeout)
        freeze_heap()
        self._is_serving = True
        self.tell(Ready())

    def serve(self) -> None:
        """Do as control's worker is told, until something breaks."""
        while True:
            match self._inbox.get():
                case StepInput() as step:
                    self._steps[step.step] = self._checked(lambda: self._worker.execute(step))
                case StepMasks() as masks:
                    self._checked(lambda: self._masked(masks))
                case Collect(number):
                    self._collect(number)

    def _masked(self, masks: StepMasks) -> StepFuture:
        handle = self._steps[masks.step]
        handle.mask(masks)
        return handle

    def _collect(self, number: int) -> None:
        handle = self._steps.pop(number)
        result = handle.result()
        self._raise_if_broken(handle)
        answers = self._place.rank == answering_rank(self._config)
        draws = self._place.stage == self._place.pipeline_parallel - 1
        self.tell(Done(number, digest(result) if draws else None, result if answers else None))

    def _checked(self, call: Callable[[], StepFuture]) -> StepFuture:
        handle = call()
        self._raise_if_broken(handle)
        return handle

    def _raise_if_broken(self, handle: StepFuture) -> None:
        """The others would wait for this rank: end it at once, so that they see it."""
        if handle.fault is not None:
            self.tell(Broken(fault=handle.fault))
            os._exit(1)
