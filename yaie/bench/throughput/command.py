"""The command `yaie bench throughput`: a model or a shape, then the workload."""

from dataclasses import replace

from yaie.bench.peers.process import check_peers
from yaie.bench.shapes import checkpoint
from yaie.bench.throughput import fixed, prefix, rates, serve
from yaie.bench.throughput.asked import Asked
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError

WORKLOADS = {
    "random": rates.run,
    "nano": rates.run,
    "fixed": fixed.run,
    "prefix": prefix.run,
    "serve": serve.run,
}


def run(
    config: EngineConfig,
    asked: Asked,
    shape: str | None,
    shape_folder: str | None,
    json: str | None,
) -> None:
    """Measure what was asked for on the configured model, or on random weights in a shape.

    Raises ConfigError for options that contradict each other, or a peer that is not installed.
    """
    check_peers(asked.peers, asked.peer_python)
    workload = WORKLOADS[asked.workload]
    if shape is None:
        if shape_folder is not None:
            raise ConfigError("--shape-folder goes with --shape", param="shape-folder")
        workload(config, asked, json)
        return
    if "model" in config.non_default():
        raise ConfigError("give a model or --shape, not both", param="shape")
    with checkpoint(shape, shape_folder) as folder:
        workload(replace(config, model=str(folder)), asked, json)
