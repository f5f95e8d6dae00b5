"""`yaie serve`: the HTTP server."""

import asyncio
import logging
import os
from typing import TYPE_CHECKING, NoReturn

import typer

from yaie import __version__
from yaie.cli.console import parts_table, say, show_table
from yaie.cli.options import engine_options, server_options
from yaie.cli.variables import unknown_variables
from yaie.core.config import EngineConfig
from yaie.core.errors import EngineDeadError, YaieError
from yaie.server.listen import listen, url_of
from yaie.server.settings import ServerSettings
from yaie.system.child import hold_signals
from yaie.system.exit import exit_now
from yaie.system.gc_tuning import freeze_heap
from yaie.system.interrupt import say_stopped
from yaie.worker.parallel.launch import Launch, launched

if TYPE_CHECKING:
    from yaie.engine.handover.role import Role
    from yaie.engine.info import EngineInfo

logger = logging.getLogger(__name__)


@engine_options(model_as="argument")
@server_options
def serve(config: EngineConfig, settings: ServerSettings) -> None:
    """Serve a model over an HTTP API that OpenAI clients understand.

    To split a model over several hosts, start this command on each of them with torchrun, with as many
    processes in all as tensor_parallel times pipeline_parallel. Rank 0 serves HTTP, at its --host and
    --port; the others compute for it. YAIE_RANK_SECRET must be the same secret everywhere. With two
    hosts, on the first and on the second:

    torchrun --nnodes 2 --node-rank 0 --nproc-per-node 1 --master-addr HOST -m yaie serve MODEL
    --pipeline-parallel 2

    torchrun --nnodes 2 --node-rank 1 --nproc-per-node 1 --master-addr HOST -m yaie serve MODEL
    --pipeline-parallel 2
    """
    launch = launched(os.environ, config)
    role = _role(config, settings)
    if launch is not None and launch.rank > 0:
        _serve_rank(config, settings, launch)
    listener = listen(settings.host, settings.port)
    say(f"YAIE {__version__}: loading {config.model} ...")
    from yaie.parts import load_part
    from yaie.server.app import create_app
    from yaie.server.engine import engine_for
    from yaie.server.logs import start_logging
    from yaie.server.run import run_server

    start_logging(settings.log_level, settings.log_file, settings.log_json)
    if said := unknown_variables():
        logger.warning(said)
    engine = engine_for(config, settings, role, launch)
    api = load_part("api_server", config.mine).package
    app = create_app(engine, api, settings)
    url = url_of(listener, secure=settings.ssl_certfile is not None)

    def on_ready() -> None:
        freeze_heap()  # of this process, if the engine has another
        announce(engine.info, settings, url)

    asyncio.run(run_server(engine, app, listener, settings, on_ready=on_ready))
    if engine.failure is None:
        say_stopped()
        exit_now(0)
    if engine.is_stuck:
        exit_now(1)
    if isinstance(engine.failure, YaieError) and not isinstance(engine.failure, EngineDeadError):
        raise engine.failure
    raise typer.Exit(1)  # logged when it happened


def _serve_rank(config: EngineConfig, settings: ServerSettings, launch: Launch) -> NoReturn:
    """Compute for rank 0, which another process is, until it ends."""
    hold_signals()
    say(f"YAIE {__version__}: rank {launch.rank} of {launch.size}, for rank 0 at {launch.address}")
    from yaie.server.logs import start_logging
    from yaie.worker.parallel.host_rank import run_host_rank

    start_logging(settings.log_level, settings.log_file, settings.log_json)
    try:
        run_host_rank(config, launch)
    except YaieError as error:
        logger.critical("%s", error.message)
        exit_now(2)


def _role(config: EngineConfig, settings: ServerSettings) -> "Role | None":
    """The engine's part where prefill and decode are apart. Raises ConfigError for what does not go with
    it, before anything is loaded."""
    if settings.role == "both":
        return None
    from yaie.engine.handover.address import address_of
    from yaie.engine.handover.greeting import secret_in
    from yaie.engine.handover.role import Role

    secret = secret_in(settings.handover_key_file) if settings.handover_key_file else None
    address = address_of(settings.handover or "")
    role = Role(settings.role, address, settings.handover_tokens, secret)
    role.check(config)
    return role


def announce(info: "EngineInfo", settings: ServerSettings, url: str) -> None:
    """What this server runs, and how to talk to it. Keys are not shown."""
    name = settings.served_model_name or info.model_name
    options = info.config.non_default() | settings.non_default()
    changed = ", ".join(f"{key}={options[key]}" for key in options if key != "model")
    say(f"model        {name} (context {info.max_model_len:,} tokens)")
    if info.limits:
        say(f"             {info.limits}")
    say(f"options      {changed or 'all at their defaults'}")
    if info.dtype_note:
        say(f"dtype        {info.dtype_note}")
    if info.backend != "torch" or info.backend_note:
        note = f" ({info.backend_note})" if info.backend_note else ""
        say(f"backend      {info.backend}{note}")
    if info.ranks:
        say(f"ranks        {info.ranks}")
    if info.decode_note:
        say(f"graphs       {info.decode_note}")
    say(f"steps        {info.config.step_tokens(info.device):,} tokens at most (token_budget)")
    say(f"KV pool      {info.pool_tokens:,} tokens: {_concurrency(info)}")
    if info.states:
        say(f"states       {info.states}")
    if info.windows:
        say(f"windows      {info.windows}")
    show_table(parts_table(info.parts))
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


def _concurrency(info: "EngineInfo") -> str:
    """How many requests of full length the pool holds; shorter ones fit in greater number."""
    at_once = min(info.config.max_num_seqs, max(info.full_texts, 1))
    return f"{at_once} requests of {info.max_model_len:,} tokens at once, more if they are shorter"
