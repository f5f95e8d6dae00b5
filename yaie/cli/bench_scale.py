"""`yaie bench scale`: what more ranks bring."""

from dataclasses import fields
from typing import Annotated, Literal

import typer

from yaie.cli.bench import BATCHES, Json, bench_app
from yaie.cli.options import engine_options, refuse_flags
from yaie.core.config import EngineConfig

PREDICTED = {
    item.name: "with --shape steps are predicted, and nothing runs"
    for item in fields(EngineConfig)
    if item.name != "model"
} | {"model": "--shape says which model", "repeats": "with --shape nothing is measured"}
MEASURED = {
    "machine": "without --shape the ranks of this machine are measured: add --shape",
    "all_reduce": "without --shape the engine's own sums are measured: see --collectives",
}


@bench_app.command()
@engine_options("argument")
def scale(
    context: typer.Context,
    config: EngineConfig,
    batch: Annotated[list[int], typer.Option(help="Batch size; repeatable.", min=1)] = BATCHES,
    tokens: Annotated[
        int | None,
        typer.Option(help="Tokens before each decoded one (128; 1024 with --shape).", min=1),
    ] = None,
    draws: Annotated[
        Literal["greedy", "sampled"],
        typer.Option(help="sampled gathers all logits, greedy only each rank's best token."),
    ] = "greedy",
    repeats: Annotated[
        int | None, typer.Option(help="Rounds, of which the median counts (5).", min=1)
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            help="Predict this shape instead, on 1 to 16 ranks: llama-3.1-8b, llama-3.1-70b and others."
        ),
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="Whose rates are taken with --shape: h200.")
    ] = None,
    all_reduce: Annotated[
        Literal["ring", "one_shot", "two_shot"] | None,
        typer.Option(help="How ranks sum with --shape; ring, which is NCCL's, if not given."),
    ] = None,
    json: Json = None,
) -> None:
    """Speed-up of ranks against one, bytes and time in collectives: measured, and predicted.

    One rank and --tensor-parallel ranks (2) are timed on this machine, their all-reduces by size, and
    what a rank computes by itself. From the last two follows a prediction of the second, which is shown
    beside it, and of more ranks than there are.
    """
    length = tokens or (1024 if shape else 128)
    if shape is not None:
        from yaie.bench.scale.shapes import run as predict

        refuse_flags(context, PREDICTED)
        predict(shape, machine or "h200", all_reduce or "ring", batch, length, draws, json)
        return
    refuse_flags(context, MEASURED)
    from yaie.bench.scale.measured import run as measure

    measure(config, batch, length, draws, repeats or 5, json)
