"""The engine behind a server: where it runs, how it is loaded, and what it logs there."""

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from yaie.core.config import EngineConfig
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.background.engine_process import EngineProcess
from yaie.engine.background.engine_thread import EngineThread
from yaie.models.torchless import load_tokenizer
from yaie.server.logs import start_logging
from yaie.server.settings import ServerSettings
from yaie.system.gc_tuning import freeze_heap

if TYPE_CHECKING:
    from yaie.engine.handover.role import Role
    from yaie.engine.llm_engine import LLMEngine
    from yaie.worker.parallel.launch import Launch

CPUS_FOR_TWO = 4
"""With at least so many, the engine gets a process of its own; with fewer, the two would take turns."""


def engine_for(
    config: EngineConfig,
    settings: ServerSettings,
    role: "Role | None" = None,
    launch: "Launch | None" = None,
) -> AsyncEngine:
    """An engine that is loaded when it is started, with the server's limits. role: its part if prefill
    and decode are apart. launch: which has started its other ranks, over hosts."""
    if settings.step:
        config = replace(config, overlap="off")
    log = partial(start_logging, settings.log_level, settings.log_file, settings.log_json)
    in_process = partial(EngineProcess, prepare=log, load_tokenizer=load_tokenizer)
    in_thread = partial(EngineThread, step_mode=settings.step)
    return AsyncEngine(
        partial(_load, config, role, launch, step_seconds=settings.step_seconds),
        make_driver=in_process if has_process(settings) else in_thread,
        **settings.engine_limits,
    )


def has_process(settings: ServerSettings) -> bool:
    """Whether the engine gets a process of its own."""
    if settings.step:
        return False
    if settings.engine_process is not None:
        return settings.engine_process
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) >= CPUS_FOR_TWO
    return (os.cpu_count() or 1) >= CPUS_FOR_TWO


def _load(
    config: EngineConfig,
    role: "Role | None" = None,
    launch: "Launch | None" = None,
    *,
    step_seconds: float = 0.0,
) -> "LLMEngine":
    """Where the engine is to run, while the server answers already."""
    from yaie.engine.llm_engine import LLMEngine

    if role is None:
        engine = LLMEngine(config, launch=launch)
    else:
        from yaie.engine.handover.engine import DisaggregatedEngine

        engine = DisaggregatedEngine(config, role)
    cuts_prompts = config.chunked_prefill and config.batching == "continuous"
    if cuts_prompts and engine.model.device.type == "cpu" and step_seconds:
        engine.machine_parts.pace(step_seconds)
    engine.input.prepare()
    freeze_heap()
    return engine
