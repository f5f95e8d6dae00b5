"""Packed weights that are split over ranks: an axis is cut where a word of codes, and a group of weights
that share a scale, ends."""

from collections.abc import Callable, Mapping
from math import lcm

from yaie.core.errors import ConfigError, ModelError
from yaie.models.layout import Cut
from yaie.models.packing import WHOLE, PackedFormat

WORD_BITS = 32
Cuts = Mapping[str, tuple[str, int]]
"""Of a layer's products that ranks split, by name: whether 'inputs' or 'outputs' are cut, and how many
of them a rank holds. Every cut is at a multiple of that."""


def in_units(cut: Cut | None, unit: int) -> Cut | None:
    """The same part of an axis each of whose entries stands for `unit` of the features that `cut`
    counts; the last one for fewer, if they do not divide. Raises ModelError for a cut inside of one."""
    if cut is None:
        return None
    for run in cut.held:
        if run.start % unit or (run.stop % unit and run.stop != cut.total):
            raise ModelError(
                f"features {run.start} to {run.stop} of {cut.total} begin or end inside a group of "
                f"{unit}"
            )
    held = tuple(range(run.start // unit, -(-run.stop // unit)) for run in cut.held)
    return Cut(-(-cut.total // unit), held)


def check_cuts(
    name: str, size: int, how: PackedFormat, cuts_for: Callable[[int], Cuts], sizes: list[int]
) -> None:
    """Raise ConfigError, naming a product, unless packed weights can be split over `size` ranks.

    name: of the model. cuts_for: what so many ranks cut. sizes: those that its shapes allow.
    """
    refused = _refused(how, cuts_for(size))
    if not refused:
        return
    fitting = [one for one in sizes if one == 1 or not _refused(how, cuts_for(one))]
    raise ConfigError(
        f"tensor_parallel {size} {refused} of every layer of {name}, whose weights are quantized "
        f"({how.method}): choose one of {', '.join(map(str, fitting))}",
        param="tensor_parallel",
    )


def _refused(how: PackedFormat, cuts: Cuts) -> str:
    """What is wrong with these cuts, in words; "" if nothing is."""
    units = _units(how)
    for product, (axis, share) in cuts.items():
        unit = units[axis]
        if axis == "inputs" and how.ordered:
            return (
                "would cut inputs that were rounded in an order of their own (desc_act, actorder) in "
                f"{product}"
            )
        if share % unit:
            shared = "a scale" if _is_grouped(how) else "a word"
            return (
                f"gives each rank {share:,} {axis}, and so cuts a group of {unit} that share {shared}, "
                f"in {product}"
            )
    return ""


def _units(how: PackedFormat) -> dict[str, int]:
    """Features that must stay together on either axis."""
    if how.block is not None:
        rows, columns = how.block
        return {"inputs": max(columns, 1), "outputs": max(rows, 1)}
    word = WORD_BITS // how.bits
    group = word if how.group_size == WHOLE else how.group_size
    return {"inputs": lcm(word, group), "outputs": word}


def _is_grouped(how: PackedFormat) -> bool:
    return how.block is not None or how.group_size != WHOLE
