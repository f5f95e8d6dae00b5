"""`yaie bench`: what the engine does on this machine, beside a peer or a limit in the same run."""

from typing import Annotated

import typer

from yaie.cli.options import engine_options
from yaie.core.config import EngineConfig

bench_app = typer.Typer(
    help="Measure the engine beside a peer, in the same run.", no_args_is_help=True
)

BATCHES = [1, 8, 32]
RUNNING = [1, 8, 64, 128, 256]
NONE_OR_MANY = [0, 10000]

Requests = Annotated[int, typer.Option(help="Requests in the workload.", min=1)]
Repeats = Annotated[int, typer.Option(help="Runs of each; the median counts.", min=1)]
Range = Annotated[str, typer.Option(help="Uniform range of lengths, as LOW-HIGH.")]
EngineProcess = Annotated[
    bool | None,
    typer.Option(
        "--engine-process/--no-engine-process",
        help="Whether the server runs the engine in a process of its own; its default if not given.",
    ),
]
Json = Annotated[str | None, typer.Option("--json", help="Also write the figures to this file.")]


@bench_app.command()
@engine_options("argument")
def throughput(
    config: EngineConfig,
    requests: Requests = 64,
    prompt_tokens: Range = "16-256",
    output_tokens: Range = "16-256",
    geometric: Annotated[
        float | None, typer.Option(help="Draw output lengths geometrically with this mean instead.")
    ] = None,
    against: Annotated[
        str, typer.Option(help="transformers, static (our engine in static batches), or nothing.")
    ] = "transformers",
    repeats: Repeats = 3,
    json: Json = None,
) -> None:
    """Useful output tokens per second, against static batching by transformers or by ourselves."""
    from yaie.bench.throughput import run
    from yaie.bench.workload import Lengths

    lengths = Lengths.parse(prompt_tokens, output_tokens, geometric)
    run(config, requests, lengths, against, repeats, json)


@bench_app.command()
@engine_options("argument")
def latency(
    config: EngineConfig,
    batch: Annotated[list[int], typer.Option(help="Requests at once; repeatable.")] = BATCHES,
    prompt_tokens: Annotated[int, typer.Option(help="Length of each prompt.", min=1)] = 128,
    output_tokens: Annotated[int, typer.Option(help="Tokens to generate.", min=2)] = 64,
    repeats: Repeats = 3,
    json: Json = None,
) -> None:
    """Time to first token and between tokens, at fixed batch sizes."""
    from yaie.bench.latency import run

    run(config, batch, prompt_tokens, output_tokens, repeats, json)


@bench_app.command()
@engine_options("argument")
def memory(
    config: EngineConfig,
    requests: Requests = 64,
    prompt_tokens: Range = "512-1024",
    output_tokens: Range = "16-512",
    json: Json = None,
) -> None:
    """Share of allocated KV slots that hold a token, against contiguous allocators on the same trace."""
    from yaie.bench.memory import run
    from yaie.bench.workload import Lengths

    run(config, requests, Lengths.parse(prompt_tokens, output_tokens, None), json)


@bench_app.command()
@engine_options("argument")
def prefix(
    config: EngineConfig,
    shared_tokens: Annotated[int, typer.Option(help="Length of the shared prefix.", min=1)] = 1000,
    own_tokens: Annotated[int, typer.Option(help="Tokens after it.", min=1)] = 24,
    repeats: Repeats = 7,
    json: Json = None,
) -> None:
    """Time to first token with a shared prefix: computed, and found in the cache."""
    from yaie.bench.prefix import run

    run(config, shared_tokens, own_tokens, repeats, json)


@bench_app.command()
@engine_options("argument")
def ladder(
    config: EngineConfig,
    requests: Requests = 32,
    prompt_tokens: Range = "16-128",
    output_tokens: Range = "16-96",
    repeats: Repeats = 3,
    json: Json = None,
) -> None:
    """Your parts, each and all together, against the reference: speed, memory, and the same tokens.

    Yours are those whose tasks have all passed, or those that --mine names.
    """
    from yaie.bench.ladder import run
    from yaie.bench.workload import Lengths

    run(config, requests, Lengths.parse(prompt_tokens, output_tokens, None), repeats, json)


@bench_app.command()
@engine_options("argument")
def overhead(
    config: EngineConfig,
    streams: Annotated[int, typer.Option(help="Answers that are streamed at once.", min=1)] = 64,
    prompt_tokens: Annotated[int, typer.Option(help="Length of each prompt.", min=1)] = 64,
    output_tokens: Annotated[int, typer.Option(help="Tokens to generate.", min=2)] = 128,
    engine_process: EngineProcess = None,
    repeats: Repeats = 7,
    json: Json = None,
) -> None:
    """The price of HTTP: tokens a second through `yaie serve`, beside the engine alone."""
    from yaie.bench.overhead import run

    run(config, streams, prompt_tokens, output_tokens, repeats, engine_process, json)


@bench_app.command()
@engine_options("argument")
def soak(
    config: EngineConfig,
    requests: Annotated[int, typer.Option(help="Requests in all.", min=100)] = 20_000,
    concurrency: Annotated[int, typer.Option(help="Requests at once.", min=1)] = 64,
    engine_process: EngineProcess = None,
    json: Json = None,
) -> None:
    """A long day of `yaie serve`: requests of every kind, good, bad and given up. Does anything leak?

    The model needs a chat template. The server gets one thread and a pool of 1,024 blocks unless
    --threads and --num-blocks say otherwise. Exits with 1 if an answer is not whole, a greedy answer
    differs from the one given to a client alone, or the server keeps blocks, file descriptors, threads
    or memory.
    """
    from yaie.bench.soak import run

    if not run(config, requests, concurrency, engine_process, json):
        raise typer.Exit(1)


@bench_app.command()
def bookkeeping(
    running: Annotated[list[int], typer.Option(help="Running requests; repeatable.")] = RUNNING,
    waiting: Annotated[
        list[int], typer.Option(help="Waiting requests; repeatable.")
    ] = NONE_OR_MANY,
    cached: Annotated[list[int], typer.Option(help="Cached prefixes; repeatable.")] = NONE_OR_MANY,
    steps: Annotated[int, typer.Option(help="Steps measured.", min=1)] = 200,
    policy: Annotated[str, typer.Option(help="fcfs, priority or lpm.")] = "fcfs",
    mine: Annotated[str, typer.Option(help="Whose parts: auto, all, none or a list.")] = "auto",
    json: Json = None,
) -> None:
    """Host time of a step: of scheduling alone, of all of it, and of what overlapping cannot hide."""
    from yaie.bench.bookkeeping import run

    run(running, waiting, cached, steps, policy, mine, json)


@bench_app.command()
def kernels(
    operation: Annotated[
        list[str] | None, typer.Option(help="An operation, such as rms_norm; repeatable.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="One of those compared, such as triton; repeatable.")
    ] = None,
    mine: Annotated[str, typer.Option(help="Whose parts: auto, all, none or a list.")] = "auto",
    json: Json = None,
) -> None:
    """Each kernel on a GPU: Triton, CUDA C++ and PyTorch, beside libraries and what the GPU can do."""
    from yaie.bench.kernels import run

    run(operation or [], only or [], mine, json)
