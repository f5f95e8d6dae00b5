"""The process groups of a rank, and what runs on them: links, and the library's collectives.

Groups are made of torch.distributed's backends directly, not of its process-wide default group: two
engines in one process do not meet. They find each other through a file, and gloo listens on this host
alone.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from yaie.core.config import EngineConfig
from yaie.core.contracts.ranks import Collectives, Link
from yaie.core.errors import ConfigError, RankError
from yaie.models.shard import Shard
from yaie.models.whole import Passing
from yaie.worker.parallel.links import GroupTransfer
from yaie.worker.parallel.place import Place

if TYPE_CHECKING:
    from yaie.worker.parallel.peer_memory import PeerCollectives

START_SECONDS = 120.0
"""While ranks start: one may compile or read for longer than the others."""
THIS_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where ranks find each other.

    store: of torch.distributed. address: of this host, at which gloo listens; interface: the networks
    that it takes instead, if a user has named some. bare_store: another one for NCCL, if `store` is one
    of Python's: NCCL's threads ask it when Python may be gone.
    """

    store: Any
    address: str = THIS_HOST
    interface: str = ""
    bare_store: Any = None


class Limit:
    """How long a transfer may take: more while ranks start than later."""

    def __init__(self) -> None:
        self.seconds = START_SECONDS
        self.groups: list[Any] = []
        self.peers: PeerCollectives | None = None
        self._aborting: threading.Thread | None = None

    def of(self, tensor: Tensor) -> float | None:
        """For this tensor. None on a GPU: a process that watched a transfer could not go on to the next
        launch, nor record a graph; whole steps are watched there."""
        return None if tensor.is_cuda else self.seconds

    def abort(self, device: torch.device) -> None:
        """Give up what kernels still wait for, or a process that ends waits for a rank that is gone.

        On a thread of its own: NCCL tells the kernels at once, and then waits until no graph holds a
        collective any more. See `aborted`.
        """
        if device.type == "cuda" and self._aborting is None:
            if self.peers is not None:
                self.peers.abort()
            self._aborting = threading.Thread(target=self._abort, name="yaie-abort", daemon=True)
            self._aborting.start()

    def _abort(self) -> None:
        for group in self.groups:
            with contextlib.suppress(RuntimeError):
                group.abort()

    def aborted(self, seconds: float) -> bool:
        """Wait until what `abort` began is done, no longer than this. Whether it is."""
        if self._aborting is not None:
            self._aborting.join(seconds)
        return self._aborting is None or not self._aborting.is_alive()

    def set(self, seconds: float) -> None:
        """From here on. The library's own calls end by then, too."""
        self.seconds = seconds
        for group in self.groups:
            group._set_default_timeout(timedelta(seconds=seconds))


class RankLink:
    """See `yaie.core.contracts.ranks.Link`. Messages carry tensors as they lie on their device."""

    def __init__(self, group: Any, limit: Limit) -> None:
        """group: a backend of torch.distributed."""
        self.rank: int = group.rank()
        self.size: int = group.size()
        self._group = group
        self._limit = limit

    def send(self, tensor: Tensor, to: int) -> GroupTransfer:
        return self._begin(self._group.send, tensor, to, f"sending to rank {to}")

    def receive(self, into: Tensor, source: int) -> GroupTransfer:
        return self._begin(self._group.recv, into, source, f"receiving from rank {source}")

    def _begin(self, call: Any, tensor: Tensor, peer: int, what: str) -> GroupTransfer:
        # Both sides know the shape: an empty tensor need not be sent.
        work = _begun(lambda: call([tensor], peer, 0), what) if tensor.numel() else None
        return GroupTransfer(work, what, self._limit.of(tensor))


class LibraryCollectives:
    """See `yaie.core.contracts.ranks.Collectives`: NCCL's on GPUs, which CUDA graphs record, or gloo's
    on a CPU."""

    def __init__(self, group: Any, limit: Limit) -> None:
        """group: a backend of torch.distributed."""
        self.rank: int = group.rank()
        self.size: int = group.size()
        self._group = group
        self._limit = limit

    def all_reduce(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        self._run(lambda: self._group.allreduce([x]), "the all-reduce", x)
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        gathered = x.new_empty(self.size, *x.shape)
        flat = x.contiguous().view(-1)
        call = self._group._allgather_base  # a list of tensors would be copied once more
        self._run(lambda: call(gathered.view(-1), flat), "the all-gather", x)
        return gathered

    def _run(self, call: Callable[[], Any], what: str, x: Tensor) -> None:
        GroupTransfer(_begun(call, what), what, self._limit.of(x)).wait()


def _begun(call: Callable[[], Any], what: str) -> Any:
    try:
        return call()
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise RankError(f"{what} failed: {reason}") from error


@dataclass(slots=True)
class Groups:
    """What a rank speaks to the others through.

    collectives: with the ranks that split its stage's layers. stages: the way to the same column of the
    other stages, None if there are none. draws: the same once more, for what the last stage draws: NCCL
    carries out what goes one way in order, and these must not wait for states.
    """

    collectives: Collectives
    stages: Link | None
    draws: Link | None
    limit: Limit
    place: Place

    def shard(self, part: ModuleType) -> Shard:
        """What this rank holds. part: lab 20's."""
        passing = None
        if self.stages is not None and self.draws is not None:
            passing = Passing(part.Pipeline(self.stages), self.draws)
        return Shard(part, self.collectives, passing)


def join(
    config: EngineConfig, place: Place, rendezvous: Path | Rendezvous, part: ModuleType, device: Any
) -> Groups:
    """Meet the other ranks. rendezvous: where, on one host a file; it may go once this has returned
    everywhere. part: lab 20's. Raises RankError if they do not come."""
    limit = Limit()
    if isinstance(rendezvous, Path):
        rendezvous = Rendezvous(dist.FileStore(str(rendezvous), place.size))
    try:
        columns = make_group(
            f"stage{place.stage}", rendezvous, place.column, place.tensor_parallel, device
        )
        stages, draws = (
            make_group(
                f"{name}{place.column}", rendezvous, place.stage, place.pipeline_parallel, device
            )
            for name in ("stages", "draws")
        )
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise RankError(f"the ranks could not connect: {reason}") from error
    limit.groups = [columns, stages, draws]
    try:
        return _joined(config, place, rendezvous.store, part, device, limit)
    except BaseException:
        limit.abort(device)
        raise


def _joined(
    config: EngineConfig, place: Place, store: Any, part: ModuleType, device: Any, limit: Limit
) -> Groups:
    """The collectives and links over the groups of `limit`, after every rank has greeted the others."""
    columns, stages, draws = limit.groups
    collectives: Collectives
    if config.has_ring(device.type):
        collectives = part.Ring(RankLink(columns, limit))
    else:
        collectives = LibraryCollectives(columns, limit)
    groups = Groups(collectives, None, None, limit, place)
    if place.pipeline_parallel > 1:
        groups.stages, groups.draws = RankLink(stages, limit), RankLink(draws, limit)
    _greet(groups, device)
    if device.type == "cuda" and config.collectives == "auto" and place.tensor_parallel > 1:
        from yaie.worker.parallel.peer_memory import PeerCollectives, share_a_host  # needs triton

        if share_a_host(collectives, device):
            peers = dist.PrefixStore(f"peers{place.stage}", store)
            limit.peers = groups.collectives = PeerCollectives(collectives, peers, device)
    return groups


def make_group(
    name: str, rendezvous: Rendezvous, rank: int, size: int, device: torch.device
) -> Any:
    """A backend of torch.distributed for this device. Raises RuntimeError if others do not come."""
    timeout = timedelta(seconds=START_SECONDS)
    if device.type == "cuda":
        store = rendezvous.store if rendezvous.bare_store is None else rendezvous.bare_store
        return nccl_group(dist.PrefixStore(name, store), rank, size)
    prefixed = dist.PrefixStore(name, rendezvous.store)
    backend: Any = dist.ProcessGroupGloo  # whose type says nothing of its options
    gloo = backend._Options()
    gloo._timeout = timeout
    if rendezvous.interface:
        names = rendezvous.interface.split(",")
        gloo._devices = [backend.create_device(interface=name) for name in names]
    else:
        gloo._devices = [backend.create_device(hostname=rendezvous.address)]
    return backend(prefixed, rank, size, gloo)


def nccl_group(store: Any, rank: int, size: int) -> Any:
    """NCCL's backend of torch.distributed, on the current GPU.

    Its own monitor of other ranks is off: the engine watches them, and the monitor would go on asking
    the store, whose file is gone once all have met, and keep this process from letting go of the group.
    """
    os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "0")
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=START_SECONDS)
    return dist.ProcessGroupNCCL(store, rank, size, options)


def _greet(groups: Groups, device: torch.device) -> None:
    """NCCL connects when it is first used; once everybody has been heard, the file is not needed."""
    hello = torch.ones(groups.collectives.size, device=device)
    groups.collectives.all_reduce(hello)
    for link in (groups.stages, groups.draws):
        if link is None:
            continue
        # One pair after the other, and in a pair one way after the other: NCCL connects a way once both
        # of its ends have asked for this one.
        for source, to in permutations(range(link.size), 2):
            if link.rank == source:
                link.send(hello[:1], to).wait()
            elif link.rank == to:
                link.receive(torch.empty_like(hello[:1]), source).wait()
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def use_device(device: torch.device, rank: int) -> torch.device:
    """The device of a rank on this host, which is the current one of this process from here on."""
    if device.type == "cuda":
        torch.cuda.set_device(rank)
    return device


def check_devices(config: EngineConfig, device: torch.device, here: int | None = None) -> None:
    """Raise ConfigError if there are fewer GPUs than ranks. here: how many ranks there are on this host;
    all if None."""
    if device.type != "cuda" or config.num_ranks == 1:
        return
    there, wanted = torch.cuda.device_count(), config.num_ranks
    if here is not None and there < here:
        raise ConfigError(
            f"the launcher started {here} ranks on this host (LOCAL_WORLD_SIZE), and torch sees {there} "
            "GPUs: start fewer here, or let CUDA_VISIBLE_DEVICES name more",
            param="LOCAL_WORLD_SIZE",
        )
    if here is None and there < wanted:
        raise ConfigError(
            f"tensor_parallel {config.tensor_parallel} times pipeline_parallel "
            f"{config.pipeline_parallel} is {wanted} ranks, and torch sees {there} GPUs: choose fewer, "
            "or let CUDA_VISIBLE_DEVICES name more",
            param="tensor_parallel",
        )
