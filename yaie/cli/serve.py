"""`yaie serve`: the HTTP server."""

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

import typer

from yaie import __version__
from yaie.cli.console import err, log_to_stderr, out, parts_table, say
from yaie.cli.options import engine_options
from yaie.core.config import EngineConfig
from yaie.core.errors import YaieError
from yaie.server.listen import listen, url_of

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine


@engine_options(model_as="argument")
def serve(
    config: EngineConfig,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for all networks.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    served_model_name: Annotated[
        str | None, typer.Option(help="What clients call the model; its own name if not given.")
    ] = None,
    drain_seconds: Annotated[
        float, typer.Option(min=0, help="After a signal, how long running requests may take.")
    ] = 30.0,
) -> None:
    """Serve a model over an HTTP API that OpenAI clients understand."""
    listener = listen(host, port)
    say(f"YAIE {__version__}: loading {config.model} ...")
    from yaie.engine.async_engine import AsyncEngine
    from yaie.parts import load_part
    from yaie.server.app import create_app
    from yaie.server.run import run_server

    def load() -> "LLMEngine":  # on its own thread, while the server answers already
        from yaie.engine.llm_engine import LLMEngine

        return LLMEngine(config)

    log_to_stderr()
    engine = AsyncEngine(load)
    api = load_part("api_server", config.mine).package
    app = create_app(engine, api, served_model_name=served_model_name)
    url = url_of(listener)

    def announce() -> None:
        _announce(engine.engine, served_model_name or engine.engine.model_name, url)

    asyncio.run(run_server(engine, app, listener, drain_seconds=drain_seconds, on_ready=announce))
    if isinstance(engine.failure, YaieError):
        raise engine.failure
    if engine.failure is not None:  # logged with its traceback when it happened
        raise typer.Exit(1)
    err.print("Stopped.")
    if engine.is_stuck:
        os._exit(0)  # the interpreter would take its thread down in the middle of C++ code


def _announce(engine: "LLMEngine", name: str, url: str) -> None:
    """What this server runs, and how to talk to it."""
    options = engine.config.non_default()
    changed = ", ".join(f"{key}={options[key]}" for key in options if key != "model")
    say(f"model        {name} (context {engine.max_model_len:,} tokens)")
    say(f"options      {changed or 'all at their defaults'}")
    if engine.backend.name != "torch":
        note = f" ({engine.backend.note})" if engine.backend.note else ""
        say(f"backend      {engine.backend.name}{note}")
    say(f"KV pool      {engine.pool_tokens:,} tokens: {_concurrency(engine)}")
    out.print(parts_table(engine.parts))
    say(f"\nServing at {url}/v1 (Ctrl-C stops). Try:\n")
    say(
        f"curl {url}/v1/chat/completions -H 'Content-Type: application/json' "
        """-d '{"messages": [{"role": "user", "content": "What is a paged KV cache?"}]}'"""
    )


def _concurrency(engine: "LLMEngine") -> str:
    """How many requests of full length the pool holds; shorter ones fit in greater number."""
    whole = engine.pool_tokens // engine.max_model_len
    at_once = min(engine.config.max_num_seqs, max(whole, 1))
    return (
        f"{at_once} requests of {engine.max_model_len:,} tokens at once, more if they are shorter"
    )
