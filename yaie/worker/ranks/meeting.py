"""How ranks on several hosts find each other, and make sure that they were started alike."""

import ipaddress
import json
import logging
import os
import socket
import time
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from yaie import __version__
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, RankError
from yaie.worker.ranks.groups import START_SECONDS, Meeting, make_group
from yaie.worker.ranks.launch import Launch

logger = logging.getLogger(__name__)

INTERFACE = "GLOO_SOCKET_IFNAME"
"""The variable by which torch's users tell gloo which network to take."""
OWN = ("threads",)
"""Settings that may differ from host to host."""
LOOK_SECONDS = 0.05
TELL_SECONDS = 10.0
"""After which a rank says whom it waits for."""


def meet(launch: Launch, config: EngineConfig) -> Meeting:
    """Returns once all processes of the launch are there.

    Raises ConfigError for a port that is taken and for addresses at which hosts do not reach each other,
    RankError if some do not come within START_SECONDS, which it names.
    """
    try:
        store = _store(launch)
        if launch.rank == 0:
            store.set("yaie/terms", json.dumps(_terms(config)))
        store.set(_key(launch.rank), own_address(launch))
    except OSError as error:
        raise ConfigError(f"no host is called {launch.address!r} (MASTER_ADDR): {error}") from error
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        if "EADDRINUSE" in reason:
            raise ConfigError(
                f"port {launch.port} of {launch.address} is in use (MASTER_PORT), where the ranks are "
                "to meet. Stop what listens there, or choose another port (torchrun: --master-port).",
                param="MASTER_PORT",
            ) from error
        raise RankError(
            f"rank {launch.rank} did not meet rank 0 at {_where(launch)} within {START_SECONDS:g} "
            f"seconds: {reason}. Start rank 0 there, and see that its port can be reached from here."
        ) from error
    _wait_for_all(launch, store)
    addresses = [store.get(_key(rank)).decode() for rank in range(launch.size)]
    interface = os.environ.get(INTERFACE, "")
    if not interface:
        _check_addresses(addresses)
    return Meeting(store, addresses[launch.rank], interface)


def _store(launch: Launch) -> Any:
    """Where all meet: torchrun has one at that port already, else rank 0 makes it. As torch's own
    `rendezvous` would, but without its wait, which cannot say who did not come."""
    has_launchers = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return dist.TCPStore(
        launch.address,
        launch.port,
        launch.size,
        is_master=launch.rank == 0 and not has_launchers,
        timeout=timedelta(seconds=START_SECONDS),
        wait_for_workers=False,
        multi_tenant=not has_launchers,
    )


def _wait_for_all(launch: Launch, store: Any) -> None:
    """Return once every rank has told its address. Raises RankError."""
    missing = list(range(launch.size))
    began, has_told = time.monotonic(), False
    while True:
        try:
            missing = [rank for rank in missing if not store.check([_key(rank)])]
        except RuntimeError as error:
            raise RankError(
                f"rank 0 has ended at {_where(launch)} while {_named(missing)} had not come: what it "
                "has printed says why"
            ) from error
        if not missing:
            return
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
    alone = [rank for rank, one in enumerate(addresses) if ipaddress.ip_address(one).is_loopback]
    if alone and len(alone) < len(addresses):
        raise ConfigError(
            f"rank {alone[0]} would listen at {addresses[alone[0]]}, which other hosts do not reach: "
            "give the address of rank 0's host as a number (torchrun: --master-addr), or name the "
            f"network in {INTERFACE} on every host",
            param="MASTER_ADDR",
        )


def channels(launch: Launch, meeting: Meeting) -> tuple[Any, Any]:
    """Two process groups of all ranks over gloo: for what rank 0 tells all others, and for what they
    tell it. Raises RankError."""
    try:
        steps, answers = (
            make_group(name, meeting, launch.rank, launch.size, torch.device("cpu"))
            for name in ("steps", "answers")
        )
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise RankError(f"the ranks could not connect: {reason}") from error
    return steps, answers


def check_terms(launch: Launch, config: EngineConfig, meeting: Meeting) -> None:
    """Raise ConfigError unless rank 0 has the same version and settings."""
    there, here = json.loads(meeting.store.get("yaie/terms")), _terms(config)
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
