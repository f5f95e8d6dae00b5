"""Turns of a model that drafts: those that want the most drafts take part in the most turns."""

from collections.abc import Sequence

from torch import Tensor

from yaie.core.step import Ints


def falling(numbers: Sequence[int] | Ints) -> list[int]:
    """The rows whose number is above 0, by falling number: those that go on longest come first."""
    rows = [row for row, number in enumerate(numbers) if number > 0]
    return sorted(rows, key=lambda row: -numbers[row])


def columns(drawn: Sequence[Tensor]) -> list[list[int]]:
    """What was drawn in each turn [n], [m <= n], ..., as a list for each of the n rows."""
    turns = [tokens.tolist() for tokens in drawn]
    count = len(turns[0]) if turns else 0
    return [[turn[row] for turn in turns if row < len(turn)] for row in range(count)]
