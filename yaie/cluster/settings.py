"""Every setting of `yaie cluster` beyond those of the engine and of the server, in one dataclass.

Imports neither Ray nor anything else that is heavy: the command line reads it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from yaie.core.compat import Self
from yaie.core.errors import ConfigError
from yaie.core.settings import check_types, from_environment, require, setting
from yaie.core.variables import known_variables, refuse_misspelled
from yaie.server.settings import ServerSettings

REPLICAS, RAY = "Replicas", "Ray"

NOT_HERE = {
    "step": "the page can hold one engine at its steps, not several; use yaie serve --step",
    "log_file": "each replica logs to stderr, which Ray keeps below its session folder",
    "max_connections": "connections are those of Ray Serve's proxy, which has no such limit",
    "role": "each replica computes prompts and decodes; for the two apart start yaie serve twice",
    "handover": "replicas hand no prompts over",
    "handover_tokens": "replicas hand no prompts over",
    "handover_key_file": "replicas hand no prompts over",
    "tenant_keys": "replicas are not told which key a request came with; send cache_salt with it",
}
"""Settings of the server that do not hold for a cluster, and why."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Immutable; checked on construction. `ConfigError` names the setting and the fix."""

    min_replicas: int = setting(2, "Replicas, at least.", panel=REPLICAS)
    max_replicas: int | None = setting(
        None, "Replicas, at most; as many as min_replicas if not given.", panel=REPLICAS
    )
    target_ongoing_requests: float = setting(
        32.0,
        "Requests in progress for each replica, queued ones included, that their number is chosen for.",
        panel=REPLICAS,
    )
    max_ongoing_requests: int = setting(
        256, "Requests that one replica gets at a time, at most; others wait.", panel=REPLICAS
    )
    upscale_delay: float = setting(
        10.0, "Seconds of more load after which replicas are added.", panel=REPLICAS
    )
    downscale_delay: float = setting(
        300.0, "Seconds of less load after which replicas are taken away.", panel=REPLICAS
    )
    imbalance: int = setting(
        16,
        "A request goes where its prompt's beginning was computed, unless that replica has so many "
        "requests more than the least busy one.",
        panel=REPLICAS,
    )
    cpus_per_replica: float = setting(
        1.0, "CPU cores that Ray reserves for a replica.", panel=REPLICAS
    )
    gpus_per_replica: int | None = setting(
        None,
        "GPUs of a replica; if not given, one for each rank where there are GPUs.",
        panel=REPLICAS,
    )
    health_check_period: float = setting(
        5.0,
        "Seconds between two looks at a replica; one that is not well is replaced.",
        panel=REPLICAS,
    )
    ray_address: str | None = setting(
        None,
        "A Ray cluster to run on, or auto for this machine's; if not given, a new one.",
        panel=RAY,
    )
    ray_dashboard: bool = setting(False, "Ray's dashboard, on port 8265.", panel=RAY)

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("min_replicas", "max_ongoing_requests"):
            require(getattr(self, name) >= 1, name, "must be at least 1", getattr(self, name))
        require(
            self.most_replicas >= self.min_replicas,
            "max_replicas",
            f"must not be less than min_replicas ({self.min_replicas})",
            self.max_replicas,
        )
        for name in ("upscale_delay", "downscale_delay"):
            value = getattr(self, name)
            require(0 <= value < float("inf"), name, "must be 0 or more seconds", value)
        for name in ("target_ongoing_requests", "cpus_per_replica", "health_check_period"):
            value = getattr(self, name)
            require(0 < value < float("inf"), name, "must be above 0", value)
        require(self.imbalance >= 0, "imbalance", "must be 0 or more", self.imbalance)
        gpus = self.gpus_per_replica
        require(gpus is None or gpus >= 0, "gpus_per_replica", "must be 0 or more", gpus)
        require(
            self.cpus_per_replica < 1 or self.cpus_per_replica == int(self.cpus_per_replica),
            "cpus_per_replica",
            "must be a whole number above 1",
            self.cpus_per_replica,
        )

    @property
    def most_replicas(self) -> int:
        """How many there may be."""
        return self.min_replicas if self.max_replicas is None else self.max_replicas

    @classmethod
    def load(
        cls, given: Mapping[str, Any] | None = None, *, environ: Mapping[str, str] | None = None
    ) -> Self:
        """Merge what is given, None being absent, and the environment (`YAIE_MIN_REPLICAS=4`)."""
        environ = os.environ if environ is None else environ
        refuse_misspelled(environ, known_variables(cls))
        values = from_environment(environ, cls)
        values |= {name: value for name, value in (given or {}).items() if value is not None}
        return cls(**values)


def refuse_what_does_not_hold(settings: ServerSettings) -> None:
    """Raise ConfigError for a setting of the server that a cluster would not heed."""
    for item in fields(settings):
        if item.name in NOT_HERE and getattr(settings, item.name) != item.default:
            raise ConfigError(
                f"{item.name} has no effect on a cluster: {NOT_HERE[item.name]}", param=item.name
            )
