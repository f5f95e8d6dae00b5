"""Shapes and colours of the notebooks: colour-blind safe, never by colour alone, one size of text."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

# Okabe and Ito's palette, the darkest hues first.
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, RED, YELLOW = "#56B4E9", "#D55E00", "#F0E442"
PALETTE = (BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW)
INK, GREY, PALE, PAPER = "#222222", "#9A9A9A", "#E8E8E8", "#FFFFFF"
WEIGHTS = LinearSegmentedColormap.from_list("weights", [PAPER, SKY, BLUE, "#00314D"])

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 110,
    "legend.frameon": False,
}


def figure(width: float, height: float, rows: int = 1, cols: int = 1, **options: Any) -> Any:
    """(figure, axes) in inches; axes as `plt.subplots` returns them."""
    plt.rcParams.update(_STYLE)
    return plt.subplots(rows, cols, figsize=(width, height), **options)


def show(fig: Figure) -> None:
    """Put the picture into the notebook, once."""
    del fig  # the backend shows every open figure
    plt.show()


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, by the order of first appearance."""
    distinct = list(dict.fromkeys(names))
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(distinct)}


def ink_on(colour: str) -> str:
    """Black or white, whichever can be read on a colour."""
    red, green, blue = to_rgb(colour)
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else PAPER


def box(
    ax: Axes,
    x: float,
    y: float,
    text: object = "",
    colour: str = PALE,
    *,
    width: float = 1,
    height: float = 1,
    hatch: str = "",
    edge: str = PAPER,
    line: float = 1.5,
    size: float = 8,
) -> None:
    """A filled rectangle with its upper left corner at (x, y), y downwards, and text in the middle."""
    ax.add_patch(
        Rectangle(
            (x, y),
            width,
            height,
            facecolor=colour,
            edgecolor=edge,
            linewidth=line,
            hatch=hatch,
            zorder=3,
        )
    )
    if text != "":
        ax.text(
            x + width / 2, y + height / 2, str(text), ha="center", va="center",
            color=ink_on(colour), fontsize=size, zorder=4,
            bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.5} if hatch else None,
        )  # fmt: skip


def board(ax: Axes, width: float, height: float, title: str = "", *, margin: float = 0.2) -> None:
    """Make the axes a board for boxes: y downwards, squares square, no ticks."""
    ax.set(xlim=(-margin, width + margin), ylim=(height + margin, -margin), aspect="equal")
    ax.axis("off")
    if title:
        ax.set_title(title)


def name_rows(ax: Axes, names: Sequence[str], *, x: float = -0.3, first: float = 0.5) -> None:
    """Write a name to the left of each row of boxes."""
    for row, name in enumerate(names):
        ax.text(x, row + first, name, ha="right", va="center")


def legend(
    ax: Axes, entries: Mapping[str, str], *, hatched: Mapping[str, str] | None = None
) -> None:
    """Name the colours below the picture. hatched: name -> colour of what is drawn with strokes."""
    handles = [Patch(facecolor=colour, edgecolor=GREY, label=n) for n, colour in entries.items()]
    handles += [
        Patch(facecolor=colour, edgecolor=GREY, hatch="////", label=name)
        for name, colour in (hatched or {}).items()
    ]
    ax.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=len(handles),
        handlelength=1.2, columnspacing=1.5,
    )  # fmt: skip


def heat(
    ax: Axes,
    values: Any,
    title: str = "",
    *,
    x: str = "",
    y: str = "",
    top: float | None = None,
    hidden: Any = None,
) -> Any:
    """A matrix of weights from 0 to `top`, white to dark. hidden: bool, cells to cross out."""
    matrix = np.asarray(values, dtype=float)
    image = ax.imshow(matrix, cmap=WEIGHTS, vmin=0, vmax=top, aspect="equal")
    if hidden is not None:
        for row, column in zip(*np.nonzero(np.asarray(hidden)), strict=True):
            box(ax, column - 0.5, row - 0.5, "×", PALE, line=0.5)
    rows, cols = matrix.shape
    ax.set_xticks(np.arange(0, cols, max(1, cols // 8)))
    ax.set_yticks(np.arange(0, rows, max(1, rows // 8)))
    ax.set_xticks(np.arange(-0.5, cols), minor=True)
    ax.set_yticks(np.arange(-0.5, rows), minor=True)
    ax.grid(which="minor", color=PALE, linewidth=0.5)
    ax.tick_params(which="both", length=0)
    ax.set(xlabel=x, ylabel=y, title=title)
    return image
