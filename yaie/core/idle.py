"""Settings that another setting leaves without effect: `--revision` for a model that has none.

A user who gives such a flag expects it to do something, so it is refused. That holds for what was
given explicitly, a flag or a keyword argument: a file or an environment that several commands share may
well hold a revision for one of them and a swap space for another.

A limit that another one reaches first is no such case: a large number is how a limit is lifted.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yaie.core.config import EMBEDDED, EngineConfig
from yaie.core.errors import ConfigError


def idle_settings(config: EngineConfig) -> dict[str, str]:
    """By name, why a setting that is not at its default has no effect, and what to do about it."""
    found = {}
    if config.revision is not None:
        if config.model in EMBEDDED:
            found["revision"] = "an embedded model has no revisions: leave it out"
        elif Path(config.model).expanduser().is_dir():
            found["revision"] = (
                f"{config.model} is a folder, and only models on the hub have revisions: leave it out"
            )
    if config.kv_memory_share is not None and config.num_blocks is not None:
        found["kv_memory_share"] = (
            f"num_blocks {config.num_blocks} says how large the KV pool is: leave out one of the two"
        )
    if config.policy == "lpm" and not config.prefix_caching:
        found["policy"] = (
            "it goes by cached prefixes, and prefix_caching is off: leave out one of the two"
        )
    if config.swap_space and config.preemption != "swap":
        found["swap_space"] = (
            f"with preemption {config.preemption!r} nothing is swapped: add preemption 'swap'"
        )
    if config.draft_model is not None and config.speculate not in ("draft", "mtp"):
        found["draft_model"] = (
            f"with speculate {config.speculate!r} no model guesses: add speculate 'draft', or 'mtp'"
        )
    for name in ("collectives", "rank_timeout"):
        is_default = getattr(config, name) == type(config).__dataclass_fields__[name].default
        if config.num_ranks == 1 and not is_default:
            found[name] = "the model is on one rank: add tensor_parallel, or leave it out"
    return found


def refuse_idle(config: EngineConfig, given: Mapping[str, Any]) -> None:
    """Raise ConfigError for one of these that was given explicitly; None counts as absent."""
    for name, why in idle_settings(config).items():
        if given.get(name) is not None:
            value = getattr(config, name)
            raise ConfigError(f"{name} {value!r} has no effect here: {why}", param=name)
