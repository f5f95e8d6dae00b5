"""`{{#count}}`: how much of the book and of the graders is checked, counted when the book is built."""

from collections.abc import Callable

from book.tools.blocks import SOURCE, parse
from book.tools.links import load_links
from book.tools.mdbook import ROOT
from yaie.core.errors import ConfigError


def render_count(what: str) -> str:
    """A number, as 1,234. Raises ConfigError for what is not counted."""
    if what not in _COUNTS:
        raise ConfigError(f"{{{{#count {what}}}}}: there are {', '.join(_COUNTS)}")
    return f"{_COUNTS[what]():,}"


def _commands() -> int:
    """Commands of console blocks that the tests run."""
    return sum(
        len(block.commands)
        for page in sorted(SOURCE.rglob("*.md"))
        for block in parse(page.read_text("utf-8"), page.name)
        if not block.unrun
    )


def _links() -> int:
    """Addresses out of the book that somebody has looked at."""
    return sum(bool(link.by) for link in load_links().values())


def _wrong() -> int:
    """Versions of labs that a grader has to refuse."""
    return len([*(ROOT / "grader/known_wrong").glob("*/*.toml")])


_COUNTS: dict[str, Callable[[], int]] = {"commands": _commands, "links": _links, "wrong": _wrong}
