"""Texts that count how many of their tokens were looked at."""

from collections.abc import Iterator
from typing import Any


class Text(list[int]):
    """A list of tokens. seen: how many were read, those of slices and of loops included."""

    seen: int = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.seen += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self) -> Iterator[int]:
        for token in super().__iter__():
            self.seen += 1
            yield token

    def __eq__(self, other: object) -> bool:
        self.seen += len(self)
        return super().__eq__(other)

    def __contains__(self, token: object) -> bool:
        self.seen += len(self)
        return super().__contains__(token)

    def index(self, *arguments: Any) -> int:
        self.seen += len(self)
        return super().index(*arguments)

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)
