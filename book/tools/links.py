"""Every link out of the book is in book/links.toml, which says what it must show and who has looked.

    python -m book.tools.links         exit 1 and name the links that are missing or were not looked at
    python -m book.tools.links --new   print their entries, to fill in and add

An address that was copied and not looked at proves nothing: a page moves, or the paper is another one.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from book.tools.check import GENERATED
from book.tools.fences import FENCE
from book.tools.mathml import CODE_SPAN
from book.tools.mdbook import ROOT
from yaie.core.compat import tomllib
from yaie.system.streams import sound_streams

LIST = Path("book/links.toml")
WRITTEN = (
    "book/src/**/*.md",
    "book/quizzes/*.toml",
    "book/exercises/*.toml",
    "book/models.toml",
    "book/figures/*.toml",
)
LOCAL = re.compile(r"https?://(?:127\.0\.0\.1|localhost|host|0\.0\.0\.0)\b")
_LINK = re.compile(
    r"\]\((?P<markdown>https?://(?:[^()\s]|\([^()\s]*\))+)(?:\s+\"[^\"]*\")?\)"
    r"|<(?P<plain>https?://[^>\s]+)>|href=\"(?P<html>https?://[^\"]+)\""
)
WAYS = ("page", "copy", "cited")
"""The page itself; a stored copy of it; other people's references to it, with that title."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Link:
    """One address. shows: what a reader must find there. looked: the day. by: how, of WAYS.

    looked and by are both empty in an entry that `--new` has printed and that is still to be filled in.
    """

    url: str
    shows: str
    looked: str
    by: str


class LinkError(ValueError):
    """The list does not make sense. The message says where."""


def load_links(root: Path = ROOT) -> dict[str, Link]:
    """The list, by address. Raises LinkError."""
    path = root / LIST
    table = tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}
    found: dict[str, Link] = {}
    for entry in table.get("link", []):
        if entry.keys() != {"url", "shows", "looked", "by"} or not entry["shows"].strip():
            raise LinkError(f"{LIST}: an entry has url, shows, looked and by: {entry}")
        seen = bool(_DATE.fullmatch(entry["looked"]))
        if not (seen and entry["by"] in WAYS) and (entry["looked"] or entry["by"]):
            raise LinkError(
                f"{LIST}: {entry['url']}: looked is a day (YYYY-MM-DD) and by one of {WAYS}"
            )
        if entry["url"] in found:
            raise LinkError(f"{LIST}: {entry['url']} stands twice")
        found[entry["url"]] = Link(**entry)
    return found


def links_in(markdown: str) -> list[str]:
    """The addresses that a text links to, outside code, in order."""
    text = CODE_SPAN.sub("", FENCE.sub("", markdown))
    urls = [next(filter(None, found.groups())) for found in _LINK.finditer(text)]
    return [url for url in urls if not LOCAL.match(url)]


def used_links(root: Path = ROOT) -> dict[str, str]:
    """Every address that the book links to, and the first file that does."""
    found: dict[str, str] = {}
    for pattern in WRITTEN:
        for path in sorted(root.glob(pattern)):
            text = path.read_text("utf-8")
            if not text.startswith(GENERATED):
                for url in links_in(text):
                    found.setdefault(url, path.relative_to(root / "book").as_posix())
    return found


def link_faults(root: Path = ROOT) -> Iterator[str]:
    """A line for each address that is not in the list, or is in it and was not looked at."""
    try:
        known = load_links(root)
    except LinkError as error:
        yield str(error)
        return
    for url, file in used_links(root).items():
        if url not in known:
            yield f"{file}: {url} is not in {LIST}: look at it, and say there what it must show"
    for link in known.values():
        if not link.by:
            yield f"{LIST}: {link.url} was not looked at: read it, then fill in looked and by"


def main(arguments: list[str]) -> int:
    """Exit status: 0 if every link is in the list and was looked at."""
    if "--new" in arguments:
        for url in used_links().keys() - load_links().keys():
            print(f'[[link]]\nurl = "{url}"\nshows = ""\nlooked = ""\nby = ""\n')
        return 0
    faults = list(link_faults())
    used = used_links()
    print(*faults, f"{len(used)} links.", sep="\n")
    try:
        known = load_links()
    except LinkError:
        return 1  # the fault is already printed
    ways = Counter(known[url].by for url in used if url in known)
    print("Looked at: " + ", ".join(f"{ways[way]} by {way}" for way in WAYS if ways[way]) + ".")
    for url in sorted(known.keys() - used.keys()):
        print(f"{LIST}: {url} is linked to no more")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(sound_streams(main)(sys.argv[1:]))
