"""The ranks in other processes, as control sees them."""

import contextlib
import logging
import tempfile
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from yaie.backends import Backend
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, EngineDeadError
from yaie.core.step import Fault, StepInput, StepMasks, StepResult
from yaie.models.shard import Shard
from yaie.worker.build import Sizes
from yaie.worker.parallel.groups import Rendezvous, join
from yaie.worker.parallel.hosts import Hosts
from yaie.worker.parallel.launch import Launch
from yaie.worker.parallel.members import Members
from yaie.worker.parallel.messages import (
    MESSAGES,
    Collect,
    Go,
    Here,
    Loaded,
    Ready,
    digest,
    dtype_name,
)
from yaie.worker.parallel.place import answering_rank, places
from yaie.worker.parallel.processes import Processes
from yaie.worker.parallel.rank_monitor import RankMonitor

logger = logging.getLogger(__name__)

LEAVE_SECONDS = 5.0


class RankExecutor:
    """Ranks 1 to size - 1. They get each step that control's own worker gets, and tell when one is done.

    shard: what rank 0, which is here, holds of the model.
    """

    shard: Shard

    def __init__(self, config: EngineConfig, launch: Launch | None = None) -> None:
        """Begin to start the processes, or wait for those that a launcher has started.

        Raises ConfigError and RankError if these do not meet.
        """
        self._config = config
        self._answers = answering_rank(config)
        self._files = contextlib.ExitStack()
        members: Members
        self._rendezvous: Path | Rendezvous
        if launch is None:
            folder = tempfile.TemporaryDirectory(prefix="yaie-ranks-")
            self._rendezvous = Path(self._files.enter_context(folder)) / "store"
            members = Processes(config, places(config)[1:], self._rendezvous)
        else:
            members = Hosts(launch, config)
            self._rendezvous = members.rendezvous
        self._monitor = RankMonitor(config, members)
        # The monitor's thread does not know this object, which may thus be collected while it waits.
        self._end = weakref.finalize(self, _end, self._monitor, self._files)

    # --- as they start ---

    def meet(self, backend: Backend, device: torch.device) -> None:
        """Let the others begin, and connect rank 0 to them. Raises what keeps one from starting."""
        self.send(Go())
        self._monitor.each(Here)
        lab = backend.parts["tensor_parallel"]
        self._device = device
        self._groups = join(self._config, places(self._config)[0], self._rendezvous, lab, device)
        self._monitor.on_end(partial(self._groups.limit.abort, device))
        self._files.close()
        self.shard = self._groups.shard(lab)

    def agree(self, own: Sizes, dtype: torch.dtype) -> Sizes:
        """What fits on every rank, which each is told. own: what fits on rank 0. dtype: of its states.

        Raises ConfigError for a rank whose states are of another one: its host has another processor.
        """
        loaded = self._monitor.each(Loaded)
        here = dtype_name(dtype)
        for there in {one.dtype for one in loaded} - {here}:
            raise ConfigError(
                f"dtype 'auto' is {here} on rank 0's host and {there} on another: set dtype",
                param="dtype",
            )
        found = [own, *(message.sizes for message in loaded)]
        sizes = Sizes(
            num_blocks=min(one.num_blocks for one in found),
            num_host_blocks=min(one.num_host_blocks for one in found),
            bytes_per_block=own.bytes_per_block,
            num_seats=min(one.num_seats for one in found),
            bytes_per_slot=own.bytes_per_slot,
            num_checkpoints=min(one.num_checkpoints for one in found),
            num_windowed_blocks=min(one.num_windowed_blocks for one in found),
            bytes_per_windowed_block=own.bytes_per_windowed_block,
        )
        self.send(sizes)
        return sizes

    def begin(self) -> None:
        """Wait until every rank waits for steps."""
        self._monitor.each(Ready)
        self._groups.limit.set(self._config.rank_timeout)
        self._monitor.watch(whole_steps=self._device.type == "cuda")

    # --- step by step ---

    def send(self, message: StepInput | StepMasks | Collect | Sizes | Go) -> None:
        """The same to every rank. Raises EngineDeadError if one is gone."""
        self.raise_if_lost()
        if isinstance(message, StepInput):
            self._monitor.began(message.step)
        self._monitor.send(MESSAGES.encode(message))

    def settled(self, step: int, result: StepResult) -> StepResult:
        """The result that counts of a step, of which rank 0 has this.

        Raises EngineDeadError, also for a step in which a GPU gave up waiting for a rank: what it
        computed from there on means nothing.
        """
        self.raise_if_lost()
        draws = self._config.pipeline_parallel == 1
        self._monitor.settled(step, digest(result) if draws else None)
        return result if self._answers == 0 else self._monitor.answer(step)

    def raise_if_lost(self) -> None:
        """Raise EngineDeadError if a rank is gone."""
        if self._monitor.loss:
            raise self._monitor.dead()

    def failure(self, fault: Fault) -> EngineDeadError:
        """What to raise after a step broke on rank 0: the cause may lie elsewhere."""
        self._monitor.broke(fault)
        return self._monitor.dead()

    def on_loss(self, tell: Callable[[EngineDeadError], None]) -> None:
        """Call this, on a thread of its own, when a rank is lost."""
        self._monitor.on_loss(tell)

    def close(self) -> None:
        """End every rank's process."""
        self._end()

    def leave(self) -> None:
        """Wait until the library lets go of what connected the ranks; no graph may hold it any more."""
        if not self._groups.limit.aborted(LEAVE_SECONDS):
            logger.warning("the library still holds the ranks' connections")


def _end(monitor: RankMonitor, files: contextlib.ExitStack) -> None:
    monitor.stop()
    with contextlib.suppress(OSError):
        files.close()
