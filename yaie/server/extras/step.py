"""A step on an answer: one thing that a body asks for beside the text."""

from collections.abc import Sequence
from typing import Any

from yaie.core.output import RequestOutput, Submitted

Json = dict[str, Any]


class Step:
    """Keeps of the outputs what it adds to the chunks or to the whole answer. This one adds nothing.

    Choices are known by their number (`index`).
    """

    def __init__(self, requests: Sequence[Submitted]) -> None:
        self._requests = requests

    def keep(self, index: int, output: RequestOutput) -> None:
        """Take what an output brings, before any of its chunks."""

    def add_to_chunk(self, chunk: Json, index: int, is_due: bool) -> None:
        """is_due: the chunk has text, or ends its choice; what belongs to tokens travels with those."""

    def add_to_answer(self, answer: Json, *, in_rows: bool) -> None:
        """in_rows: the answer is written in slices, so long lists may be Rows."""

    def entries(self, index: int) -> list[Json]:
        """For a reply that has a shape of its own: what is due with its next piece, for each token."""
        return []
