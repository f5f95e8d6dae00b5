"""Starts Ray, or connects to one that runs, and says in a sentence why that failed."""

import logging
from contextlib import suppress
from typing import Any

import psutil

from yaie.cluster.settings import ClusterSettings
from yaie.core.errors import ConfigError

logger = logging.getLogger(__name__)

ATTEMPTS = 2
"""To start a Ray of our own. It gives its processes 30 seconds, which no setting changes, and on a busy
machine they take longer the first time, when their files are read from the disk."""
STORE_BYTES = 512 * 2**20
"""Of shared memory for Ray, which is for pieces of answers: what is larger goes to the disk."""


def start_ray(cluster: ClusterSettings, namespace: str) -> None:
    """Call `ray.init`; a Ray of our own is started once more if it does not come up in time.

    Raises ConfigError if there is no Ray then; nothing of it is left.
    """
    import ray

    is_own = cluster.ray_address is None
    own: dict[str, Any] = {
        "address": "local",  # or it would join one that runs here
        "include_dashboard": cluster.ray_dashboard, "object_store_memory": STORE_BYTES,
    }  # fmt: skip
    options = own if is_own else {"address": cluster.ray_address}
    for attempt in range(1, ATTEMPTS + 1):
        others = set(psutil.Process().children(recursive=True))
        try:
            ray.init(namespace=namespace, logging_level=logging.ERROR, **options)
            return
        # On a machine that is too busy, Ray raises an Exception of no type of its own.
        except Exception as error:  # noqa: BLE001
            if not is_own:
                raise ConfigError(
                    f"Ray cannot be reached at {cluster.ray_address}: {error}", param="ray_address"
                ) from None
            _end_all_but(others)
            if attempt == ATTEMPTS:
                raise ConfigError(
                    f"Ray could not be started in {ATTEMPTS} attempts: {error} If this machine is busy, "
                    "try again later, or start Ray by itself (ray start --head) and give "
                    "--ray-address auto.",
                    param="ray_address",
                ) from None
            logger.warning("Ray did not start: %s It is started once more.", error)


def _end_all_but(others: set[psutil.Process]) -> None:
    """End what `ray.init` has left behind: it forgets the processes of a Ray that came too late."""
    left = set(psutil.Process().children(recursive=True)) - others
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=5)
