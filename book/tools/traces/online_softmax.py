"""Softmax over tiles that are seen once: the registers m, l and o after each thing that happens to them.

The arithmetic is small enough to stand here whole, and tests/book/test_figure_shapes.py holds it against
torch's softmax. No part takes part in this trace.
"""

from math import exp, inf
from typing import Any

from book.tools.traces import Part, Trace

LAB = None
TILES = [[1, 3, 2, 0], [4, 1, 5, 3], [2, 4, 1, 0]]
VALUES = [[2, 1, 4, 3], [1, 3, 2, 0], [4, 2, 1, 3]]
DIGITS = 6

Registers = dict[str, float]
"""m: the largest score so far. l: the sum of e^(s - m). o: the sum of e^(s - m) times the value."""


def record(part: Part) -> Trace:
    """tiles, values: what is given. steps: tile, phase, registers before and now."""
    registers: Registers = {"m": -inf, "l": 0.0, "o": 0.0}
    steps: list[dict[str, Any]] = [{"phase": "start", "now": registers, "say": _START}]
    for number, (scores, values) in enumerate(zip(TILES, VALUES, strict=True)):
        of_tile = list(_tile(number, scores, values, registers))
        registers = of_tile[-1]["now"]
        steps += of_tile
    output, plain = registers["o"] / registers["l"], _plain()
    steps.append(
        {
            "phase": "end",
            "now": registers,
            "output": output,
            "plain": plain,
            "say": _end(output, plain),
        }
    )
    return {"tiles": TILES, "values": VALUES, "steps": [_rounded(step) for step in steps]}


def _tile(
    number: int, scores: list[int], values: list[int], before: Registers
) -> list[dict[str, Any]]:
    """The three steps of a tile: its maximum, the correction of what was summed, its own terms."""
    m = max(before["m"], *scores)
    factor = exp(before["m"] - m)
    rescaled = {"m": m, "l": before["l"] * factor, "o": before["o"] * factor}
    weights = [exp(score - m) for score in scores]
    added = {
        "l": sum(weights),
        "o": sum(weight * value for weight, value in zip(weights, values, strict=True)),
    }
    now = {"m": m, "l": rescaled["l"] + added["l"], "o": rescaled["o"] + added["o"]}
    looked = {"tile": number, "before": before, "now": {**before, "m": m}}
    corrected = {**looked, "factor": factor, "rescaled": rescaled, "now": rescaled}
    summed = {**corrected, "weights": weights, "added": added, "now": now}
    return [
        {**looked, "phase": "max", "say": _say_max(number, scores, before["m"])},
        {**corrected, "phase": "rescale", "say": _say_rescale(before["m"], m, factor)},
        {**summed, "phase": "add", "say": _say_add(weights, m)},
    ]


def _plain() -> float:
    """The same with all scores at hand: softmax, then the weighted sum."""
    scores = [score for tile in TILES for score in tile]
    values = [value for tile in VALUES for value in tile]
    weights = [exp(score - max(scores)) for score in scores]
    total = sum(weights)
    return sum(weight / total * value for weight, value in zip(weights, values, strict=True))


_START = (
    "Twelve scores in tiles of four, and one tile at a time in fast memory. m will hold the largest "
    "score so far, l the sum of the weights e^(s − m), o the sum of weight times value."
)


def _say_max(number: int, scores: list[int], m: float) -> str:
    best, tile = max(scores), f"Tile {number + 1} comes in. Its largest score is {max(scores)}"
    if m == -inf:
        return f"{tile}, so m becomes {best}."
    if best > m:
        return f"{tile}, above m = {m:g}: m becomes {best}."
    return f"{tile}, not above m = {m:g}: m stays."


def _say_rescale(old: float, new: float, factor: float) -> str:
    if old == -inf:
        return f"Nothing was summed before: l and o are 0, times e^(−∞ − {new:g}) = 0."
    if old == new:
        return f"m is what it was, so the factor is e^({old:g} − {new:g}) = 1: l and o are right."
    return (
        f"All terms so far were taken with m = {old:g}, and ought to be with {new:g}. One factor "
        f"corrects their sums: l and o are multiplied by e^({old:g} − {new:g}) = {factor:.3f}."
    )


def _say_add(weights: list[float], m: float) -> str:
    listed = ", ".join(f"{weight:.3f}" for weight in weights)
    return (
        f"The tile's weights e^(s − {m:g}) are {listed}. Their sum is added to l; each times its value, "
        "to o. The tile may be forgotten."
    )


def _end(output: float, plain: float) -> str:
    return (
        f"The output is o / l = {output:.3f}. Softmax over all twelve scores at once, times the values, "
        f"gives {plain:.3f}. Never were more than four scores held."
    )


def _rounded(value: Any) -> Any:
    """For JSON, which has no infinity: that becomes null."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return None if value == -inf else round(value, DIGITS)
    return value
