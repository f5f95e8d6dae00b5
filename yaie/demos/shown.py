"""What a demo has to show: numbers of the same work, without a part and with it."""

from dataclasses import dataclass

Cell = int | float | str


@dataclass(frozen=True, slots=True)
class Row:
    """One number in every column. A float is shown with one decimal, "" where nothing applies."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """what: the work, in a sentence. heads: of the columns, the one with the part last. picture: lines
    to print as they are, of at most 80 characters. so: the difference, in a sentence of numbers."""

    what: str
    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    so: str
    picture: tuple[str, ...] = ()

    def cells(self, name: str) -> tuple[Cell, ...]:
        """Those of the row with this name. Raises KeyError."""
        return {row.name: row.cells for row in self.rows}[name]


def row(name: str, *cells: Cell) -> Row:
    """A row of these cells."""
    return Row(name, cells)


def counted(number: int, thing: str) -> str:
    """ "1 step", "14 steps"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def bar(share: float, width: int) -> str:
    """A bar for a share from 0 to 1, of at most `width` characters."""
    return "#" * round(min(1.0, max(0.0, share)) * width)


def same(one: object, other: object) -> str:
    """Whether two answers are the same, as a word."""
    return "the same" if one == other else "another"
