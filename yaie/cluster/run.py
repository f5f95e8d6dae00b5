"""The life of `yaie cluster`: starts Ray, has Serve run the application, drains it, and leaves nothing.

The first SIGINT or SIGTERM drains: Serve takes the application away, and what runs may finish within
`drain_seconds`. A second one ends this process and Ray's, its children, at once. SIGHUP reads the
engine's config file again and replaces the replicas one by one.
"""

import logging
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import psutil

from yaie.cluster.ray_start import start_ray
from yaie.cluster.settings import ClusterSettings, refuse_what_does_not_hold
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, YaieError
from yaie.server.listen import listen, url_of
from yaie.server.settings import ServerSettings

if TYPE_CHECKING:
    from yaie.engine.info import EngineInfo

logger = logging.getLogger(__name__)

MISSING = (
    "yaie cluster needs Ray, which is not installed: .venv/bin/pip install -c constraints.txt "
    "-e '.[cluster]'"
)
APP = "yaie"
POLL_SECONDS = 0.2
LOOK_SECONDS = 2.0
STOP_SECONDS = 10.0
"""For Serve to take away what has been drained."""
KEEP_ALIVE_SECONDS = 75
QUIET: dict[str, Any] = {"log_level": "ERROR", "enable_access_log": False}
"""Of Serve in the replicas, whose own lines say more."""
SILENT: dict[str, Any] = {"log_level": "CRITICAL", "enable_access_log": False}
"""Of Serve's controller, which logs the traceback of what `_failure` says in a sentence."""
_FAILURE = re.compile(r"yaie\.core\.errors\.(\w+Error): (.+)")


class _Signals:
    """What has come. leave: how often; reload: that the file is to be read."""

    def __init__(self) -> None:
        self.leave = 0
        self.reload = False

    def on_leave(self, number: int, frame: Any) -> None:
        """The second one does not wait for anything."""
        self.leave += 1
        if self.leave > 1:
            end_now(128 + number)

    def on_reload(self, number: int, frame: Any) -> None:
        """Done in the loop, which sees it soon."""
        self.reload = True


def end_now(code: int) -> NoReturn:
    """End this process and all below it. Some of Ray's would notice only after a minute."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()
    os._exit(code)


def run_cluster(
    engine: EngineConfig,
    server: ServerSettings,
    cluster: ClusterSettings,
    *,
    reload: Callable[[], EngineConfig],
    on_ready: Callable[["EngineInfo", str], None],
) -> None:
    """Serve until a signal comes. reload: reads the engine's settings again.

    on_ready: called with what a replica's engine says of itself, and the URL. Raises ConfigError for
    what cannot work, and what loading the model raised.
    """
    refuse_what_does_not_hold(server)
    url, port = _reserve(server, cluster)
    import_ray()
    signals = _Signals()
    with _ray(server, cluster, port):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signals.on_leave)
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, signals.on_reload)
        _require_room(cluster)
        _deploy(engine, server, cluster)
        if _wait_until_running(signals):
            on_ready(_info(), url)
            _watch(signals, lambda: _deploy(reload(), server, cluster))
        _drain(server.drain_seconds)


def _reserve(server: ServerSettings, cluster: ClusterSettings) -> tuple[str, int]:
    """URL and port, which is free on this machine: Serve would only say so once all is loaded."""
    secure = server.ssl_certfile is not None
    if cluster.ray_address is not None:
        return f"http{'s' * secure}://{server.host}:{server.port}", server.port
    listener = listen(server.host, server.port)
    with listener:
        port: int = listener.getsockname()[1]
        return url_of(listener, secure=secure), port


def import_ray() -> None:
    """Import Ray Serve, which takes seconds. Raises ConfigError if it is not installed."""
    # Ray is not to report anything to its makers, nor to change what a replica without a GPU sees.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # A model that cannot be loaded cannot be loaded the third time either.
    os.environ.setdefault("RAY_SERVE_MAX_PER_REPLICA_RETRY_COUNT", "1")
    try:
        import ray.serve  # noqa: F401
    except ImportError as error:
        raise ConfigError(MISSING, param="cluster") from error
    logging.getLogger("ray.serve").setLevel(QUIET["log_level"])


@contextmanager
def _ray(server: ServerSettings, cluster: ClusterSettings, port: int) -> Iterator[None]:
    """Ray and Serve, without an application."""
    import ray
    from ray import serve

    start_ray(cluster, APP)
    try:
        _refuse_running_serve()
        serve.start(
            proxy_location="HeadOnly" if cluster.ray_address is None else "EveryNode",
            http_options={
                "host": server.host,
                "port": port,
                "keep_alive_timeout_s": KEEP_ALIVE_SECONDS,
                "ssl_certfile": server.ssl_certfile,
                "ssl_keyfile": server.ssl_keyfile,
            },
            logging_config=SILENT,
        )
        try:
            yield
        finally:
            if cluster.ray_address is not None:
                serve.shutdown()
    finally:
        ray.shutdown()


def _refuse_running_serve() -> None:
    import ray

    try:
        ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")
    except ValueError:
        return
    raise ConfigError(
        "Ray Serve runs on this cluster already, with a port of its own: add an application with the "
        "import path yaie.cluster.application:application to its config file, and use serve deploy",
        param="ray_address",
    )


def _require_room(cluster: ClusterSettings) -> None:
    """Of a Ray of our own, which does not grow: Serve would wait for ever."""
    import ray

    if cluster.ray_address is not None:
        return
    cpus = ray.cluster_resources().get("CPU", 0)
    wanted = cluster.min_replicas * cluster.cpus_per_replica
    if wanted > cpus:
        raise ConfigError(
            f"{cluster.min_replicas} replicas of {cluster.cpus_per_replica:g} CPU cores need "
            f"{wanted:g}, and this machine has {cpus:g}: choose fewer with --min-replicas, or "
            f"--cpus-per-replica {int(100 * cpus / cluster.min_replicas) / 100:g}",
            param="min_replicas",
        )


def _deploy(engine: EngineConfig, server: ServerSettings, cluster: ClusterSettings) -> None:
    """Tell Serve what is to run. It replaces, some at a time, the replicas that were made otherwise."""
    from ray import serve
    from ray.serve.schema import LoggingConfig

    from yaie.cluster.application import build

    target = serve.RunTarget(
        build(engine, server, cluster), name=APP, logging_config=LoggingConfig(**QUIET)
    )
    serve.run_many(
        [target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False
    )


def _application() -> Any:
    """The status of the application; None if it is gone."""
    from ray import serve

    return serve.status().applications.get(APP)


def _wait_until_running(signals: _Signals) -> bool:
    """Whether it runs; False after a signal. Raises what the first replica raised."""
    while not signals.leave:
        status = _application()
        if status is not None and status.status == "RUNNING":
            return True
        if status is not None and status.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            told = [status.message, *(one.message for one in status.deployments.values())]
            raise _failure("\n".join(told))
        time.sleep(POLL_SECONDS)
    return False


def _failure(told: str) -> YaieError:
    """The error that Serve's message quotes, if it is one of ours, without the traceback around it."""
    found = _FAILURE.findall(told)
    if found:
        return ConfigError(found[-1][1])
    return ConfigError(f"Ray Serve could not start the replicas: {told.strip()}")


def _info() -> "EngineInfo":
    """Of one of the replicas. A process of Ray's asks: in this one Serve would leave a thread behind,
    which connects to Ray again after its end."""
    import ray

    info: EngineInfo = ray.get(ray.remote(num_cpus=0)(_ask_for_info).remote())
    return info


def _ask_for_info() -> "EngineInfo":
    from ray import serve

    from yaie.cluster.application import ENGINES

    engines = serve.get_deployment_handle(ENGINES, app_name=APP)
    info: EngineInfo = engines.options(method_name="info").remote().result()
    return info


def _watch(signals: _Signals, deploy: Callable[[], None]) -> None:
    """Until a signal ends it: log how many replicas run when that changes, and reload when told to."""
    said, looked = _replicas(), time.monotonic()
    while not signals.leave:
        if signals.reload:
            signals.reload = False
            _reload(deploy)
        if time.monotonic() - looked > LOOK_SECONDS:
            looked = time.monotonic()
            if (now := _replicas()) != said:
                logger.info("Replicas: %s", now)
                said = now
        time.sleep(POLL_SECONDS)


def _reload(deploy: Callable[[], None]) -> None:
    try:
        deploy()
    except YaieError as error:
        logger.error("Nothing was changed: %s", error.message)
    else:
        logger.info("Settings were read again; replicas that differ are replaced.")


def _replicas() -> str:
    """Such as '1 running, 1 starting'."""
    from yaie.cluster.application import ENGINES

    status = _application()
    states = status.deployments[ENGINES].replica_states if status is not None else {}
    told = (f"{number} {str(state).lower()}" for state, number in states.items() if number)
    return ", ".join(told) or "none"


def _drain(seconds: float) -> None:
    """Have the application taken away, and wait until it is."""
    from ray import serve

    if _application() is None:
        return
    serve.delete(APP, _blocking=False)
    end = time.monotonic() + seconds + STOP_SECONDS
    while _application() is not None and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
