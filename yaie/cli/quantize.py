"""`yaie quantize`: a checkpoint in four or eight bits, made by lab 19."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from yaie.cli.console import err, say
from yaie.cli.options import SAME, one_model
from yaie.core.errors import ConfigError
from yaie.models.tutor import CALIBRATION, TUTOR_PATH

if TYPE_CHECKING:
    from torch import Tensor

GROUP_SIZE = 32
"""Unless another is asked for; the book has what larger ones cost."""
WINDOW = 512
"""Tokens of calibration text that go through the model together."""


def quantize(
    out: Annotated[Path, typer.Option(help="Folder to write; new or empty.")],
    model: Annotated[
        str | None, typer.Argument(help="Hub id, folder, or 'tutor'.", show_default=False)
    ] = None,
    model_too: Annotated[str | None, typer.Option("--model", help=SAME)] = None,
    to: Annotated[
        Literal["int4", "int8"],
        typer.Option(help="int4 in groups, by GPTQ; int8 with a scale for each output."),
    ] = "int4",
    group_size: Annotated[
        int | None,
        typer.Option(
            help="Inputs that share a scale and a zero, of int4: 128, 64 or 32, the fewer the closer to "
            f"the model. {GROUP_SIZE} if not given, or less if that does not fit the model.",
            show_default=False,
        ),
    ] = None,
    symmetric: Annotated[
        bool,
        typer.Option(
            "--symmetric",
            help="No zeros in int4 (0.0 has the middle code), and GPTQ's format, for kernels that know "
            "no others.",
        ),
    ] = False,
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Round int4 to the nearest code, without GPTQ.")
    ] = False,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="Text that the model is to be good at, for GPTQ: a text file, or JSON lines with "
            '"text" or "messages". 256 conversations about inference engines if not given.'
        ),
    ] = None,
    windows: Annotated[
        int, typer.Option(help=f"Windows of {WINDOW} tokens of it to use, at most.")
    ] = 32,
    revision: Annotated[str | None, typer.Option(help="Of a model on the hub.")] = None,
    mine: Annotated[str, typer.Option(help="Whose lab 19 rounds; see `yaie serve`.")] = "auto",
) -> None:
    """Round a model's weights to 4 or 8 bits, as a checkpoint that vLLM, SGLang and YAIE serve."""
    model = one_model(model, model_too)
    if model is None:
        raise ConfigError("name the model to round: yaie quantize MODEL --out DIR", param="model")
    if group_size is not None and (group_size < 8 or group_size % 8):
        raise ConfigError(f"group size {group_size} is no multiple of 8", param="group_size")
    if windows < 1:
        raise ConfigError(f"{windows} windows hold no text", param="windows")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(
            f"{out} is there already: name a folder that is new or empty", param="out"
        )
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    from yaie.core.errors import ModelError
    from yaie.models.config import read_config
    from yaie.models.hub import fetch_model, find_model
    from yaie.models.loader import must_stay_unpacked
    from yaie.models.lookalikes import GGUF_LIST
    from yaie.models.packed_checkpoint import write_checkpoint
    from yaie.models.rounding import Recipe, decoder_layers, products, round_model
    from yaie.models.rounding import windows as cut
    from yaie.models.rounding_sizes import choose_group_size, product_shapes
    from yaie.models.weights import checkpoint_files, total_bytes
    from yaie.parts import load_part

    logging.disable_progress_bar()
    source = find_model(model, revision)
    if (source.folder / GGUF_LIST).is_file():
        raise ModelError(
            f"{source.name} is a GGUF, which is served as it is. Name the checkpoint it was made of."
        )
    config = read_config(source.folder)
    if getattr(config, "quantization_config", None) is not None:
        raise ModelError(f"{source.name} is quantized already. Name the original model.")
    if must_stay_unpacked(config.architectures[0], config, None):
        raise ModelError(
            f"{source.name} is {config.architectures[0]}, whose layers keep a state beside keys and "
            "values: such models are served from floating point as yet, so its weights stay as they are."
        )
    recipe = Recipe(8)
    if to == "int4":
        size = choose_group_size(product_shapes(config), group_size, GROUP_SIZE)
        recipe = Recipe(4, size, gptq=not nearest, symmetric=symmetric)
    folder = fetch_model(source, err.is_terminal)
    part = load_part("quantization", mine)
    say(f"lab 19: {part.owner} ({part.reason})")
    if group_size is None and recipe.group_size < GROUP_SIZE:
        say(
            f"groups of {recipe.group_size}: larger ones do not fit; vLLM's kernels take 32, 64 and 128"
        )
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens: Tensor | None = None
    if recipe.bits == 4 and recipe.gptq:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        longest = getattr(config, "max_position_embeddings", None) or WINDOW
        tokens = cut(
            tokenizer, _texts(tokenizer, calibration or CALIBRATION), min(WINDOW, longest), windows
        )
        say(f"calibration: {len(tokens)} windows of {tokens.shape[1]} tokens")
        if calibration is None and source.folder != TUTOR_PATH:
            say(
                "             of conversations about inference engines, which the tutor was trained on; "
                "--calibration FILE takes text of the kind that this model is for"
            )
    _, layers = decoder_layers(network)
    with _progress(sum(1 for layer in layers for _ in products(layer))) as done:
        packed = round_model(network, part.package, recipe, tokens, done)
    size = write_checkpoint(folder, out, packed, recipe)
    before = total_bytes(checkpoint_files(folder))
    inner = sum(p.weight.numel() for layer in layers for _, p in products(layer))
    bits = 8 * sum(weight.nbytes for weight in packed.values()) / inner
    say(
        f"{out}: {size / 1e6:,.1f} MB of weights where there were {before / 1e6:,.1f}; "
        f"{bits:.2f} bits for each of {inner / 1e6:,.1f} million in {len(packed)} products"
    )


def _texts(tokenizer: Any, given: Path) -> Iterator[str]:
    """The texts to calibrate with, each rendered when it is needed: a template may refuse some
    conversations. Raises ConfigError for a file that cannot be read."""
    try:
        text = given.read_text("utf-8")
        if given.suffix != ".jsonl":
            yield text
            return
        for line in [json.loads(line) for line in text.splitlines() if line.strip()]:
            yield line["text"] if "text" in line else _said(tokenizer, line["messages"])
        return
    except OSError as error:
        why = error.strerror
    except (ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
    raise ConfigError(f"the calibration text {given} cannot be read: {why}", param="calibration")


def _said(tokenizer: Any, talk: list[dict[str, str]]) -> str:
    """A conversation as the model sees it."""
    from yaie.models.chat_templates import ChatTemplates
    from yaie.models.template_parts import in_parts

    if not tokenizer.chat_template:
        return "\n".join(turn["content"] for turn in talk) + "\n"
    templates = ChatTemplates(tokenizer)
    template = templates.chosen(None)
    given = in_parts(talk) if templates.wants_parts(template) else talk
    return templates.rendered(template, given)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar over so many products on stderr, if that is a terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("Rounding", total=total)
        yield lambda name: bar.update(task, advance=1, description=f"Rounding {name}")
