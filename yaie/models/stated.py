"""The sizes that config.json states, held against the shapes of the weights.

A model of other sizes would be refused when its weights come; before that its memory would be asked for,
and of a billion layers the list alone takes minutes.
"""

import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from yaie.core.errors import ModelError

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,6})\.")
_TABLES = re.compile(r"(?:^|\.)(?:embed_tokens|wte|embed_in|word_embeddings)\.weight$")


class Stated(NamedTuple):
    """That config.json gives a dimension of a tensor. field: as it is called there. size: what it comes
    to. tensor: its name without the adapter's prefix."""

    field: str
    size: int
    tensor: str
    dim: int


class Misfit(NamedTuple):
    """A size that the weights do not have. is_absurd: it would take far more memory than they do."""

    field: str
    size: int
    found: int
    where: str
    is_absurd: bool

    def __str__(self) -> str:
        return f"{self.field} gives {self.size}, and the weights have {self.found} ({self.where})"


def misfits(config: Any, stated: Sequence[Stated], prefix: str, shapes: Shapes) -> list[Misfit]:
    """What of a config is not so in the weights.

    config: a transformers PretrainedConfig. stated: by the adapter; of one that states nothing, the
    number of layers and of tokens are known by name. shapes: of the checkpoint's tensors.
    """
    largest = max(map(prod, shapes.values()), default=0)
    found: list[Misfit] = []
    layers = [int(match[1]) for name in shapes if (match := _LAYER.search(name))]
    wanted = getattr(config, "num_hidden_layers", None)
    if layers and isinstance(wanted, int) and wanted > max(layers) + 1:
        names = "config.json: num_hidden_layers"
        absurd = wanted > 4 * (max(layers) + 1) + 16  # or the missing tensors are told
        found.append(Misfit(names, wanted, max(layers) + 1, "by their names", is_absurd=absurd))
    by_name = {name.removeprefix(prefix): name for name in shapes}
    for one in stated or _by_name(config, shapes):
        name = by_name.get(one.tensor, one.tensor)
        shape = shapes.get(name, ())
        if len(shape) <= one.dim or shape[one.dim] == one.size:
            continue
        size = prod(shape[: one.dim] + shape[one.dim + 1 :]) * one.size
        absurd = size > 2 * largest
        found.append(
            Misfit(f"config.json: {one.field}", one.size, shape[one.dim], name, is_absurd=absurd)
        )
    return found


def refuse_absurd(folder: Path, found: Sequence[Misfit]) -> None:
    """Raise ModelError for a size that should not be tried."""
    absurd = [one for one in found if one.is_absurd]
    if absurd:
        raise ModelError(
            f"the weights in {folder} do not fit the model that config.json describes: {absurd[0]}. "
            "Check that config.json and the safetensors files belong together; fetch the model again."
        )


def _by_name(config: Any, shapes: Shapes) -> list[Stated]:
    """Of a family that is known by names alone: how many tokens it has."""
    tokens = getattr(config.get_text_config(), "vocab_size", None)
    tables = [name for name in shapes if _TABLES.search(name)]
    if not isinstance(tokens, int) or len(tables) != 1:
        return []
    return [Stated("vocab_size", tokens, tables[0], 0)]
