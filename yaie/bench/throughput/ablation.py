"""The engine without one technique at a time: what each is worth on a workload."""

from collections.abc import Sequence
from dataclasses import replace

from yaie.backends import decide
from yaie.core.config import EngineConfig
from yaie.models.loader import resolve_device
from yaie.parts import YOURS, whose

FULL = "all of it"


def variants(config: EngineConfig) -> tuple[dict[str, EngineConfig], list[str]]:
    """Configurations by name, the full one first, and a remark on each technique that is not in use.

    Raises ConfigError if the full one cannot run.
    """
    device = resolve_device(config).type
    chosen = decide(config, resolve_device(config))
    found, idle = {FULL: config}, []
    uses_graphs = config.graphs not in ("auto", "off") or (
        config.graphs == "auto" and device == "cuda"
    )
    overlaps = config.overlap == "on" or (
        config.overlap == "auto" and device == "cuda" and config.batching == "continuous"
    )
    for name, in_use, without in (
        ("without graphs", uses_graphs, replace(config, graphs="off")),
        ("without overlap", overlaps, replace(config, overlap="off")),
        ("kernels in PyTorch", chosen.kind.name != "torch", _in_pytorch(config)),
    ):
        if in_use:
            found[name] = without
        else:
            idle.append(f"{name}: as it is here")
    mine = "auto" if config.mine == "none" else config.mine
    yours = [lab for lab in chosen.labs if whose(lab, mine)[0] == YOURS]
    if not yours:
        idle.append("none of your parts has passed, so all are the reference's")
    elif config.mine == "none":
        found["with your parts"] = replace(config, mine="auto")
    else:
        found["the reference's parts"] = replace(config, mine="none")
    return found, idle


def _in_pytorch(config: EngineConfig) -> EngineConfig:
    """Attention in PyTorch cannot be recorded, so this goes without graphs as well. Nor can a part be
    named that is written in Triton or CUDA C++."""
    mine = config.mine if config.mine in ("auto", "none") else "auto"
    return replace(config, backend="torch", graphs="off", mine=mine)


def same_answers(outputs: Sequence[Sequence[int]], reference: Sequence[Sequence[int]]) -> int:
    """How many requests got exactly the reference's tokens."""
    return sum(a == b for a, b in zip(outputs, reference, strict=True))
