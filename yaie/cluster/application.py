"""Puts the Serve application together: an ingress, and replicas behind it that our router chooses from.

`yaie cluster` runs `build`. A config file of Serve's, or a RayService on Kubernetes, names `application`
as its import path and gives the settings as `args`.
"""

from collections.abc import Mapping
from typing import Any

import ray
from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, RequestRouterConfig

from yaie.cluster.ingress import Ingress
from yaie.cluster.replica import EngineReplica
from yaie.cluster.settings import ClusterSettings, refuse_what_does_not_hold
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.server.settings import ServerSettings

ROUTER = "yaie.cluster.router.PrefixRouter"
ENGINES, INGRESS = "Engines", "Ingress"
KINDS: dict[str, Any] = {
    "engine": EngineConfig, "server": ServerSettings, "cluster": ClusterSettings
}  # fmt: skip


def application(args: Mapping[str, Mapping[str, Any]]) -> Application:
    """The application for these settings; Serve calls it with the `args` of a config file.

    args: a table each for `engine`, `server` and `cluster`, with the names of the flags. What is not
    given comes from the environment and the defaults. Raises ConfigError.
    """
    if unknown := set(args) - set(KINDS):
        raise ConfigError(
            f"args has {', '.join(sorted(unknown))}; there may be {', '.join(KINDS)}", param="args"
        )
    loaded = {}
    for kind, cls in KINDS.items():
        given = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in (args.get(kind) or {}).items()
        }
        known = set(cls.__dataclass_fields__)
        if wrong := given.keys() - known:
            raise ConfigError(
                f"args.{kind} has {', '.join(sorted(wrong))}, which is no setting", param=kind
            )
        loaded[kind] = cls.load(given)
    return build(**loaded)


def build(engine: EngineConfig, server: ServerSettings, cluster: ClusterSettings) -> Application:
    """The application, not yet running. Ray must be. Raises ConfigError for what cannot hold here."""
    refuse_what_does_not_hold(server)
    engines = serve.deployment(
        EngineReplica,
        name=ENGINES,
        max_ongoing_requests=cluster.max_ongoing_requests,
        max_queued_requests=engine.max_waiting,
        autoscaling_config=AutoscalingConfig(
            min_replicas=cluster.min_replicas,
            max_replicas=cluster.most_replicas,
            target_ongoing_requests=cluster.target_ongoing_requests,
            upscale_delay_s=cluster.upscale_delay,
            downscale_delay_s=cluster.downscale_delay,
        ),
        request_router_config=RequestRouterConfig(
            request_router_class=ROUTER, request_router_kwargs={"imbalance": cluster.imbalance}
        ),
        ray_actor_options={
            "num_cpus": cluster.cpus_per_replica,
            "num_gpus": gpus_of(engine, cluster),
        },
        **_life(server, cluster),
    )
    ingress = serve.deployment(
        serve.ingress()(Ingress),
        name=INGRESS,
        max_ongoing_requests=server.max_concurrent_requests,
        ray_actor_options={"num_cpus": 0},
        **_life(server, cluster),
    )
    app: Application = ingress.bind(engines.bind(engine, server), server, engine.mine)
    return app


def gpus_of(engine: EngineConfig, cluster: ClusterSettings) -> int:
    """GPUs that Ray is to give each replica."""
    if cluster.gpus_per_replica is not None:
        return cluster.gpus_per_replica
    has_gpus = ray.cluster_resources().get("GPU", 0) > 0
    return engine.num_ranks if has_gpus and engine.device != "cpu" else 0


def _life(server: ServerSettings, cluster: ClusterSettings) -> dict[str, Any]:
    return {
        "graceful_shutdown_timeout_s": server.drain_seconds,
        "graceful_shutdown_wait_loop_s": 0.2,
        "health_check_period_s": cluster.health_check_period,
        "health_check_timeout_s": max(30.0, cluster.health_check_period),
    }
