"""The bar that shows how far the weights of a model are read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def loading_bar(name: str, total: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr over `total` bytes; yields the function that advances it."""
    if not shown:
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from yaie.system.terminal import Terminal

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Terminal(stderr=True), transient=True) as bar:
        task = bar.add_task(f"Loading {name}", total=total)
        yield lambda size: bar.update(task, advance=size)
