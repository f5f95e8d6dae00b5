"""The bar that shows how far the weights of a model are read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def loading_bar(name: str, total: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr over `total` bytes; yields the function that advances it."""
    if not shown:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"Loading {name}", total=total)
        yield lambda size: bar.update(task, advance=size)
