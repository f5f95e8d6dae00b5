"""`yaie serve`: the HTTP server."""

import asyncio
import logging
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from yaie import __version__
from yaie.cli.console import err, parts_table, say, show_table
from yaie.cli.options import engine_options, server_options
from yaie.cli.variables import unknown_variables
from yaie.core.config import EngineConfig
from yaie.core.errors import EngineDeadError, YaieError
from yaie.core.exit import exit_now
from yaie.core.heap import freeze_heap
from yaie.core.interrupt import speaks
from yaie.server.listen import listen, url_of
from yaie.server.settings import ServerSettings

if TYPE_CHECKING:
    from yaie.engine.facts import EngineFacts
    from yaie.engine.handover.role import Role
    from yaie.engine.llm_engine import LLMEngine

logger = logging.getLogger(__name__)

CPUS_FOR_TWO = 4
"""With at least so many, the engine gets a process of its own; with fewer, the two would take turns."""


@engine_options(model_as="argument")
@server_options
def serve(config: EngineConfig, settings: ServerSettings) -> None:
    """Serve a model over an HTTP API that OpenAI clients understand."""
    role = _role(config, settings)
    listener = listen(settings.host, settings.port)
    say(f"YAIE {__version__}: loading {config.model} ...")
    from yaie.engine.background.async_engine import AsyncEngine
    from yaie.engine.background.engine_process import EngineProcess
    from yaie.engine.background.engine_thread import EngineThread
    from yaie.models.torchless import load_tokenizer
    from yaie.parts import load_part
    from yaie.server.app import create_app
    from yaie.server.logs import start_logging
    from yaie.server.run import run_server

    log = partial(start_logging, settings.log_level, settings.log_file, settings.log_json)
    log()
    if said := unknown_variables():
        logger.warning(said)
    if settings.step:
        config = replace(config, overlap="off")
    in_process = partial(EngineProcess, prepare=log, load_tokenizer=load_tokenizer)
    in_thread = partial(EngineThread, step_mode=settings.step)
    engine = AsyncEngine(
        partial(_load, config, role),
        make_driver=in_process if _has_process(settings) else in_thread,
        **settings.engine_limits,
    )
    api = load_part("api_server", config.mine).package
    app = create_app(engine, api, settings)
    url = url_of(listener, secure=settings.ssl_certfile is not None)

    def announce() -> None:
        freeze_heap()  # of this process, if the engine has another
        _announce(engine.facts, settings, url)

    asyncio.run(run_server(engine, app, listener, settings, on_ready=announce))
    if engine.failure is None:
        if speaks():
            err.print("Stopped.")
        exit_now(0)
    if engine.is_stuck:
        exit_now(1)
    if isinstance(engine.failure, YaieError) and not isinstance(engine.failure, EngineDeadError):
        raise engine.failure
    raise typer.Exit(1)  # logged when it happened


def _role(config: EngineConfig, settings: ServerSettings) -> "Role | None":
    """The engine's part where prefill and decode are apart. Raises ConfigError for what does not go with
    it, before anything is loaded."""
    if settings.role == "both":
        return None
    from yaie.engine.handover.role import Role

    role = Role(settings.role, Path(settings.handover or ""), settings.handover_tokens)
    role.check(config)
    return role


def _load(config: EngineConfig, role: "Role | None" = None) -> "LLMEngine":
    """Where the engine is to run, while the server answers already."""
    from yaie.engine.llm_engine import LLMEngine

    engine = LLMEngine(config)
    if role is not None:
        role.take(engine)
    freeze_heap()
    return engine


def _has_process(settings: ServerSettings) -> bool:
    """Whether the engine gets a process of its own."""
    if settings.step:
        return False
    if settings.engine_process is not None:
        return settings.engine_process
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) >= CPUS_FOR_TWO
    return (os.cpu_count() or 1) >= CPUS_FOR_TWO


def _announce(facts: "EngineFacts", settings: ServerSettings, url: str) -> None:
    """What this server runs, and how to talk to it. Keys are not shown."""
    name = settings.served_model_name or facts.model_name
    options = facts.config.non_default() | settings.non_default()
    changed = ", ".join(f"{key}={options[key]}" for key in options if key != "model")
    say(f"model        {name} (context {facts.max_model_len:,} tokens)")
    say(f"options      {changed or 'all at their defaults'}")
    if facts.dtype_note:
        say(f"dtype        {facts.dtype_note}")
    if facts.backend != "torch" or facts.backend_note:
        note = f" ({facts.backend_note})" if facts.backend_note else ""
        say(f"backend      {facts.backend}{note}")
    if facts.ranks:
        say(f"ranks        {facts.ranks}")
    if facts.decode_note:
        say(f"graphs       {facts.decode_note}")
    say(f"steps        {facts.config.step_tokens(facts.device):,} tokens at most (token_budget)")
    say(f"KV pool      {facts.pool_tokens:,} tokens: {_concurrency(facts)}")
    show_table(parts_table(facts.parts))
    if settings.web:
        say(
            f"page         {url}/" + (" (the engine waits for it: --step)" if settings.step else "")
        )
    say(f"\nServing at {url}/v1 (Ctrl-C stops). Try:\n")
    key = "-H 'Authorization: Bearer YOUR_KEY' " if settings.api_key else ""
    say(
        f"curl {url}/v1/chat/completions {key}-H 'Content-Type: application/json' "
        """-d '{"messages": [{"role": "user", "content": "What is a paged KV cache?"}]}'"""
    )


def _concurrency(facts: "EngineFacts") -> str:
    """How many requests of full length the pool holds; shorter ones fit in greater number."""
    whole = facts.pool_tokens // facts.max_model_len
    at_once = min(facts.config.max_num_seqs, max(whole, 1))
    return f"{at_once} requests of {facts.max_model_len:,} tokens at once, more if they are shorter"
