"""How ranks on several hosts find each other, and make sure that they were started alike."""

import errno
import json
import logging
import os
import socket
import time
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from yaie import __version__
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, RankError
from yaie.system.addresses import is_loopback
from yaie.system.codec import Codec
from yaie.system.seals import NamedSeal
from yaie.worker.parallel.groups import START_SECONDS, Rendezvous, make_group
from yaie.worker.parallel.launch import SECRET, Launch
from yaie.worker.parallel.session import Session, new_number

logger = logging.getLogger(__name__)
Left = TypeVar("Left")

INTERFACE = "GLOO_SOCKET_IFNAME"
"""The variable by which torch's users tell gloo which network to take."""
OWN = ("threads",)
"""Settings that may differ from host to host."""
TERMS = "yaie/terms"
LOOK_SECONDS = 0.05
TELL_SECONDS = 10.0
"""After which a rank says whom it waits for."""


@dataclass(frozen=True, slots=True)
class HostRendezvous(Rendezvous):
    """Of ranks that a launcher has started. session: by which they know each other."""

    session: Session = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class _Here:
    """What a rank leaves for the others. number: see `session.new_number`."""

    address: str
    number: str


@dataclass(frozen=True, slots=True)
class _At:
    """What rank 0 leaves where torchrun's processes meet: the port of its own store."""

    port: int


_LEFT = Codec(_Here, _At)


def meet(launch: Launch, config: EngineConfig) -> HostRendezvous:
    """Returns once all processes of the launch are there.

    Raises ConfigError for a port that is taken, for addresses at which hosts do not reach each other and
    for secrets that differ; RankError if some do not come within START_SECONDS, which it names.
    """
    seal = NamedSeal(launch.secret, "rendezvous")
    try:
        store = _store(launch, seal)
        here = _Here(own_address(launch), new_number())
        store.set(_key(launch.rank), seal.close(_key(launch.rank), _LEFT.encode(here)))
    except OSError as error:
        raise ConfigError(f"no host is called {launch.address!r} (MASTER_ADDR): {error}") from error
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise RankError(
            f"rank {launch.rank} did not meet rank 0 at {_where(launch)} within {START_SECONDS:g} "
            f"seconds: {reason}. Start rank 0 there, and see that its port can be reached from here."
        ) from error
    there = _all(launch, store, seal)
    interface = os.environ.get(INTERFACE, "")
    if not interface:
        _check_addresses([one.address for one in there])
    session = Session(launch.secret, tuple(one.number for one in there))
    sealed = session.store(store)
    if launch.rank == 0:
        sealed.set(TERMS, json.dumps(_terms(config)))
    return HostRendezvous(
        sealed, there[launch.rank].address, interface, bare_store=store, session=session
    )


def _store(launch: Launch, seal: NamedSeal) -> Any:
    """Where all meet: rank 0 makes it, at MASTER_ADDR alone. torchrun has one of its own at MASTER_PORT,
    which listens on all networks; there rank 0 only leaves the port of its own.

    Raises ConfigError, OSError and RuntimeError.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        listener = listen_at(launch.address, launch.port) if launch.rank == 0 else None
        return _connected(launch, launch.port, listener)
    launchers = _connected(launch, launch.port, None)
    key = f"yaie/store{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if launch.rank == 0:
        listener = listen_at(launch.address, 0)
        port = listener.getsockname()[1]
        store = _connected(launch, port, listener)
        launchers.set(key, seal.close(key, _LEFT.encode(_At(port))))
        return store
    launchers.wait([key], timedelta(seconds=START_SECONDS))
    return _connected(launch, _opened(launchers, key, seal, _At, 0).port, None)


def _connected(launch: Launch, port: int, listener: socket.socket | None) -> Any:
    """torch's store at this port, which listens there if it is given a socket that does. Its own
    `rendezvous` would bind it to all networks, and its wait cannot say who did not come."""
    return dist.TCPStore(
        launch.address,
        port,
        launch.size,
        is_master=listener is not None,
        timeout=timedelta(seconds=START_SECONDS),
        wait_for_workers=False,
        master_listen_fd=None if listener is None else listener.detach(),
    )


def listen_at(host: str, port: int) -> socket.socket:
    """A listening socket, at this address alone. Raises ConfigError, and OSError for no known host."""
    error: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
        except OSError as failed:
            listener.close()
            error = failed
        else:
            return listener
    assert error is not None
    if error.errno == errno.EADDRINUSE:
        raise ConfigError(
            f"port {port} of {host} is in use (MASTER_PORT), where the ranks are to meet. Stop what "
            "listens there, or choose another port (torchrun: --master-port).",
            param="MASTER_PORT",
        )
    raise ConfigError(
        f"rank 0 cannot listen at {host} port {port} (MASTER_ADDR): {error.strerror}. Start rank 0 on "
        "the host that has this address, or name another address of its own.",
        param="MASTER_ADDR",
    )


def _all(launch: Launch, store: Any, seal: NamedSeal) -> list[_Here]:
    """What every rank has left, once all have. Raises ConfigError and RankError."""
    found: dict[int, _Here] = {}
    began, has_told = time.monotonic(), False
    while True:
        missing = [rank for rank in range(launch.size) if rank not in found]
        try:
            for rank in missing:
                if store.check([_key(rank)]):
                    found[rank] = _opened(store, _key(rank), seal, _Here, rank)
        except RuntimeError as error:
            raise RankError(
                f"rank 0 has ended at {_where(launch)} while {_named(missing)} had not come: what it "
                "has printed says why"
            ) from error
        missing = [rank for rank in missing if rank not in found]
        if not missing:
            return [found[rank] for rank in range(launch.size)]
        waited = time.monotonic() - began
        if waited > START_SECONDS:
            raise RankError(
                f"{_named(missing)} of {launch.size} did not come to {_where(launch)} within "
                f"{START_SECONDS:g} seconds. Start what is missing with this MASTER_ADDR and "
                "MASTER_PORT (torchrun: the same --nnodes, --master-addr and --master-port on every "
                "host); if it was started, see what it has printed, and whether its host reaches that "
                "port."
            )
        if waited > TELL_SECONDS and not has_told:
            has_told = True
            logger.warning(
                "rank %d waits for %s, up to %g seconds",
                launch.rank,
                _named(missing),
                START_SECONDS,
            )
        time.sleep(LOOK_SECONDS)


def _opened(store: Any, key: str, seal: NamedSeal, kind: type[Left], rank: int) -> Left:
    """What this rank has left there. Raises ConfigError if it has another secret."""
    try:
        left = _LEFT.decode(seal.open(key, store.get(key)))
    except ValueError:
        left = None
    if not isinstance(left, kind):
        raise ConfigError(
            f"what rank {rank} has left for the others was not made with the {SECRET} of this process: "
            "set it to the same secret for every process, on every host. If it is the same, someone "
            "else writes to the port where they meet: keep it on a private network.",
            param=SECRET,
        )
    return left


def _key(rank: int) -> str:
    return f"yaie/address{rank}"


def _where(launch: Launch) -> str:
    return f"{launch.address} port {launch.port}"


def _named(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def own_address(launch: Launch) -> str:
    """This host's address on the network over which rank 0's host is reached. Raises OSError."""
    family, kind, _, _, there = socket.getaddrinfo(
        launch.address, launch.port, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind) as probe:
        probe.connect(there)  # sends nothing
        return str(probe.getsockname()[0])


def _check_addresses(addresses: list[str]) -> None:
    """Raise ConfigError if one host has told an address that only it reaches."""
    alone = [rank for rank, one in enumerate(addresses) if is_loopback(one)]
    if alone and len(alone) < len(addresses):
        raise ConfigError(
            f"rank {alone[0]} would listen at {addresses[alone[0]]}, which other hosts do not reach: "
            "give the address of rank 0's host as a number (torchrun: --master-addr), or name the "
            f"network in {INTERFACE} on every host",
            param="MASTER_ADDR",
        )


def channels(launch: Launch, rendezvous: Rendezvous) -> tuple[Any, Any]:
    """Two process groups of all ranks over gloo: for what rank 0 tells all others, and for what they
    tell it. Raises RankError."""
    try:
        steps, answers = (
            make_group(name, rendezvous, launch.rank, launch.size, torch.device("cpu"))
            for name in ("steps", "answers")
        )
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise RankError(f"the ranks could not connect: {reason}") from error
    return steps, answers


def check_terms(launch: Launch, config: EngineConfig, rendezvous: Rendezvous) -> None:
    """Raise ConfigError unless rank 0 has the same version and settings."""
    there, here = json.loads(rendezvous.store.get(TERMS)), _terms(config)
    for name in sorted(there.keys() | here.keys()):
        if there.get(name) != here.get(name):
            raise ConfigError(
                f"rank {launch.rank} has {name} {here.get(name)!r}, and rank 0 {there.get(name)!r}: "
                "start all of them with the same command and version",
                param=name,
            )


def _terms(config: EngineConfig) -> dict[str, Any]:
    settings = {name: value for name, value in asdict(config).items() if name not in OWN}
    return {"version": __version__, **settings}
