"""How ranks on several hosts find each other, and make sure that they were started alike."""

import ipaddress
import json
import os
import socket
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

INTERFACE = "GLOO_SOCKET_IFNAME"
"""The variable by which torch's users tell gloo which network to take."""
OWN = ("threads",)
"""Settings that may differ from host to host."""


def meet(launch: Launch, config: EngineConfig) -> Meeting:
    """Returns once all processes of the launch are there.

    Raises ConfigError for a port that is taken and for addresses at which hosts do not reach each other,
    RankError if one does not come.
    """
    where = f"{launch.address} port {launch.port}"
    try:
        store, _, _ = next(dist.rendezvous(launch.url, timeout=timedelta(seconds=START_SECONDS)))
        if launch.rank == 0:
            store.set("yaie/terms", json.dumps(_terms(config)))
        addresses = _exchanged(launch, store)
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
        raise RankError(f"the ranks did not meet at {where}: {reason}") from error
    interface = os.environ.get(INTERFACE, "")
    if not interface:
        _check_addresses(addresses)
    return Meeting(store, addresses[launch.rank], interface)


def _exchanged(launch: Launch, store: Any) -> list[str]:
    """The address of every rank, once all have told it."""
    store.set(f"yaie/address{launch.rank}", own_address(launch))
    return [store.get(f"yaie/address{rank}").decode() for rank in range(launch.size)]


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
