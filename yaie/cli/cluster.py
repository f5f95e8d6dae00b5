"""`yaie cluster`: replicas of the engine behind one endpoint, on Ray Serve."""

import os
from dataclasses import fields
from typing import TYPE_CHECKING

import typer

from yaie import __version__
from yaie.cli.console import say
from yaie.cli.options import cluster_options, engine_options
from yaie.cli.serve import announce
from yaie.cluster.run import import_ray, run_cluster
from yaie.cluster.settings import ClusterSettings
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.core.idle import refuse_idle
from yaie.core.settings import ENV_PREFIX
from yaie.server.settings import ServerSettings
from yaie.system.exit import exit_now
from yaie.system.interrupt import say_stopped

if TYPE_CHECKING:
    from yaie.engine.info import EngineInfo


@engine_options(model_as="argument")
@cluster_options
def cluster(
    context: typer.Context,
    config: EngineConfig,
    settings: ServerSettings,
    cluster: ClusterSettings,
) -> None:
    """Serve a model from several replicas, on Ray Serve (extra: cluster).

    Takes the options of yaie serve, and answers at one address. A prompt goes to the replica that has
    computed its beginning. SIGHUP reads the --config file again and replaces the replicas one by one.
    """
    import_ray()
    say(f"YAIE {__version__}: starting Ray, then {cluster.min_replicas} x {config.model} ...")

    def reload() -> EngineConfig:
        file = context.params["config_file"]
        if file is None and not os.environ.get(f"{ENV_PREFIX}CONFIG"):
            raise ConfigError("there is no --config file to read again", param="config")
        given = {item.name: context.params[item.name] for item in fields(EngineConfig)}
        again = EngineConfig.load(given, file=file)
        refuse_idle(again, given)
        return again

    def on_ready(info: "EngineInfo", url: str) -> None:
        most = cluster.most_replicas
        upto = f", at most {most}" if most > cluster.min_replicas else ""
        say(f"replicas     {cluster.min_replicas}{upto}")
        announce(info, settings, url)

    from yaie.server.logs import start_logging

    start_logging(settings.log_level, None, settings.log_json)
    run_cluster(config, settings, cluster, reload=reload, on_ready=on_ready)
    say_stopped()
    exit_now(0)
