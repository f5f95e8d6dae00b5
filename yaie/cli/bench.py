"""`yaie bench`: what the engine does on this machine, beside a peer or a limit in the same run."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from yaie.cli.options import engine_options, refuse_flags
from yaie.core.config import EngineConfig
from yaie.system.files import refuse_unwritable

bench_app = typer.Typer(
    help="Measure the engine beside a peer, in the same run.", no_args_is_help=True
)

BOTH = {"prefix_caching": "this measures with the cache and without"}
NEITHER = {"prefix_caching": "the requests share nothing, and it is off"}

BATCHES = [1, 8, 32]
RUNNING = [1, 8, 64, 128, 256]
NONE_OR_MANY = [0, 10000]

Workload = Literal["random", "nano", "fixed", "prefix", "serve"]
Requests = Annotated[int, typer.Option(help="Requests in the workload.", min=1)]
Repeats = Annotated[int, typer.Option(help="Runs of each; the median counts.", min=1)]
Range = Annotated[str, typer.Option(help="Uniform range of lengths, as LOW-HIGH, or one number.")]
EngineProcess = Annotated[
    bool | None,
    typer.Option(
        "--engine-process/--no-engine-process",
        help="Whether the server runs the engine in a process of its own; its default if not given.",
    ),
]


def _writable(path: str | None) -> str | None:
    """Refused before anything is measured in vain."""
    if path is not None:
        refuse_unwritable(Path(path), "json")
    return path


Json = Annotated[
    str | None,
    typer.Option("--json", help="Also write the figures to this file.", callback=_writable),
]


@bench_app.command()
@engine_options("argument")
def throughput(
    context: typer.Context,
    config: EngineConfig,
    workload: Annotated[
        Workload,
        typer.Option(
            help="random: lengths of your own; nano: nano-vllm's bench, 256 requests; fixed: prefill "
            "and decode step of equal batches; prefix: groups of prompts that begin alike; serve: "
            "those of nano as streams through yaie serve."
        ),
    ] = "random",
    requests: Annotated[
        int | None, typer.Option(help="Requests at once (random 64, nano and serve 256).", min=1)
    ] = None,
    prompt_tokens: Annotated[
        str | None,
        typer.Option(
            help="LOW-HIGH or one number (random 16-256, nano and serve 100-1024, fixed 1024)."
        ),
    ] = None,
    output_tokens: Annotated[
        str | None,
        typer.Option(
            help="The same (random 16-256, nano and serve 100-1024, fixed 128 steps, prefix 64)."
        ),
    ] = None,
    geometric: Annotated[
        float | None, typer.Option(help="Draw output lengths geometrically with this mean instead.")
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(
            help="Batch size, repeatable: of fixed (1, 8, 32, 128, 256), or of the peer transformers "
            "(8, 16, 32, 64).",
            min=1,
        ),
    ] = None,
    groups: Annotated[int | None, typer.Option(help="prefix: groups (64).", min=1)] = None,
    group_size: Annotated[
        int | None, typer.Option(help="prefix: requests in each (16).", min=2)
    ] = None,
    shared_tokens: Annotated[
        int | None, typer.Option(help="prefix: tokens that a group shares (2048).", min=1)
    ] = None,
    own_tokens: Annotated[
        int | None, typer.Option(help="prefix: tokens of each request after them (128).", min=1)
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="serve: requests that arrive in a second, instead of all at once."),
    ] = None,
    seeds: Annotated[
        str,
        typer.Option(help="A run for each; the first run of all, with the first, counts apart."),
    ] = "0,1,2",
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="Who runs the same, repeatable: transformers, static (our engine in static batches), "
            "vllm, sglang or none. Without one, random is run beside transformers.",
            show_default=False,
        ),
    ] = None,
    static: Annotated[bool, typer.Option("--static", help="Short for --peer static.")] = False,
    peer_python: Annotated[
        str | None,
        typer.Option(
            help="The interpreter of vllm and sglang, if they live in another environment."
        ),
    ] = None,
    ablation: Annotated[
        bool,
        typer.Option("--ablation", help="Also without each technique, on an engine of its own."),
    ] = False,
    shape: Annotated[
        str | None,
        typer.Option(
            help="Random weights instead of a model: qwen3-0.6b, llama-3.1-8b, llama-3.1-70b or tiny, "
            "which may have -int4 behind, packed in four bits, or -fp8; or qwen3.5-4b, tiny-hybrid or "
            "llama-100m."
        ),
    ] = None,
    shape_folder: Annotated[
        str | None, typer.Option(help="Where to keep them, and to find them again.")
    ] = None,
    json: Json = None,
) -> None:
    """Output tokens per second of a workload, beside peers and what the machine allows.

    The first run after the start is shown apart from those after it.
    """
    from yaie.bench.throughput.asked import asked
    from yaie.bench.throughput.command import run

    if workload == "prefix":
        refuse_flags(context, BOTH)
    if static:
        peer = [*(peer or []), "static"]
    prefix = {
        "groups": groups, "group_size": group_size, "shared_tokens": shared_tokens,
        "own_tokens": own_tokens,
    }  # fmt: skip
    wanted = asked(
        workload, requests, prompt_tokens, output_tokens, geometric, batch, prefix, seeds, peer,
        peer_python, ablation, rate,
    )  # fmt: skip
    run(config, wanted, shape, shape_folder, json)


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
    context: typer.Context,
    config: EngineConfig,
    requests: Requests = 64,
    prompt_tokens: Range = "512-1024",
    output_tokens: Range = "16-512",
    json: Json = None,
) -> None:
    """Share of allocated KV slots that hold a token, against contiguous allocators on the same trace."""
    refuse_flags(context, NEITHER)
    from yaie.bench.memory import run
    from yaie.bench.workload import Lengths

    run(config, requests, Lengths.parse(prompt_tokens, output_tokens, None), json)


@bench_app.command()
@engine_options("argument")
def prefix(
    context: typer.Context,
    config: EngineConfig,
    shared_tokens: Annotated[int, typer.Option(help="Length of the shared prefix.", min=1)] = 1000,
    own_tokens: Annotated[int, typer.Option(help="Tokens after it.", min=1)] = 24,
    repeats: Repeats = 7,
    json: Json = None,
) -> None:
    """Time to first token with a shared prefix: computed, and found in the cache."""
    refuse_flags(context, BOTH)
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
    context: typer.Context,
    config: EngineConfig,
    streams: Annotated[int, typer.Option(help="Answers that are streamed at once.", min=1)] = 64,
    prompt_tokens: Annotated[int, typer.Option(help="Length of each prompt.", min=1)] = 64,
    output_tokens: Annotated[int, typer.Option(help="Tokens to generate.", min=2)] = 128,
    engine_process: EngineProcess = None,
    repeats: Repeats = 7,
    json: Json = None,
) -> None:
    """The price of HTTP: tokens a second through `yaie serve`, beside the engine alone."""
    refuse_flags(context, NEITHER)
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
    """Thousands of requests to `yaie serve`, good, bad and given up. Does anything leak?

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
