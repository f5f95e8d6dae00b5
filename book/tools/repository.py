"""Where this repository is published, for the links to its source.

`git-repository-url` in book.toml names it. Left empty, it is the remote *origin* if that is on a public
host; a copy without one shows no link.
"""

import os
import re
import subprocess
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from book.tools.markup import escape
from yaie import __version__
from yaie.core.compat import tomllib

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ("github.com", "gitlab.com", "codeberg.org", "bitbucket.org", "git.sr.ht")
BOOK_URL = "YAIE_BOOK_URL"
"""In the environment: where the built book is published, as https://example.org/book."""
URL, EDIT = "MDBOOK_OUTPUT__HTML__GIT_REPOSITORY_URL", "MDBOOK_OUTPUT__HTML__EDIT_URL_TEMPLATE"
_REMOTE = re.compile(
    r"(?:https?://|ssh://|git://)?(?:[^@/\s]+@)?(?P<host>[\w.-]+)(?::\d+)?[:/](?P<path>[\w.~-]+/[\w./-]+?)(?:\.git)?/?"
)


def repository_url(root: Path = ROOT) -> str:
    """Address of the repository without a slash at its end; empty if it has none to show."""
    table = tomllib.loads((root / "book.toml").read_text("utf-8"))
    named = os.environ.get(URL, "") or table["output"]["html"].get("git-repository-url", "")
    return str(named).rstrip("/") or public_address(_origin(root))


def public_address(remote: str) -> str:
    """The https address of a remote on a public host, without a password that it may hold; or empty."""
    found = _REMOTE.fullmatch(remote.strip())
    if not found or found["host"].lower() not in HOSTS:
        return ""
    return f"https://{found['host'].lower()}/{found['path']}"


@cache
def _origin(root: Path) -> str:
    try:
        asked = subprocess.run(
            ["git", "-C", str(root), "remote", "get-url", "origin"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:  # no git here
        return ""
    return asked.stdout.strip() if not asked.returncode else ""


def settings(root: Path = ROOT) -> dict[str, str]:
    """For mdBook's environment: the link to the source on every page, and to the page's own file.

    And the path below which the book is published: its 404 page loads its style sheets from there.
    """
    found = {}
    if url := repository_url(root):
        found = {URL: url, EDIT: f"{url}/edit/main/{{path}}"}
    if book := os.environ.get(BOOK_URL):
        found["MDBOOK_OUTPUT__HTML__SITE_URL"] = urlparse(book).path.rstrip("/") + "/"
    return found


def render_source() -> str:
    """The first page's button to the source; nothing where no address is known."""
    address = repository_url()
    return f'<a class="button quiet" href="{address}">Source</a>' if address else ""


def render_copy() -> str:
    """Where the commands below it are given: how to get the repository, or that one has to be in it."""
    address = repository_url()
    if not address:
        return (
            "This copy of the book was built in a folder of its repository. In that folder, which holds "
            "<code>book/</code>:"
        )
    folder = address.rpartition("/")[2]
    clone = f"<code>git clone {address}</code>"
    return f"Clone the repository, {clone}, and in its folder <code>{folder}</code>:"


NOTEBOOK = "notebooks/kernels_on_a_gpu.ipynb"
_SERVICES = {
    "codespace": ("https://codespaces.new/{path}", "Open it in a codespace"),
    "colab": (
        f"https://colab.research.google.com/github/{{path}}/blob/main/{NOTEBOOK}",
        "Open it in Colab",
    ),
}


def render_open(service: str) -> str:
    """A button that opens this repository in a service; nothing where it is not on GitHub. KeyError."""
    address, words = _SERVICES[service]
    host, _, path = repository_url().removeprefix("https://").partition("/")
    if host != "github.com":
        return ""
    return f'<a class="button quiet" href="{address.format(path=path)}">{words}</a>'


def render_author() -> str:
    """Who wrote the book, as book.toml says."""
    return str(_book()["authors"][0])


def render_edition() -> str:
    """Which version of the book this is, of which day, and how to cite it."""
    day = _last_change(ROOT)
    version = f"Version {__version__}" + (f", {day.day} {day:%B %Y}" if day else "")
    table = _book()
    address = os.environ.get(BOOK_URL, "") or repository_url()
    fields = {
        "author": f"{{{table['authors'][0]}}}",
        "title": table["title"],
        "year": f"{day:%Y}" if day else "",
        "note": f"Version {__version__}",
        "url": address,
    }
    rows = "".join(f"\n  {key} = {{{words}}}," for key, words in fields.items() if words)
    # A blank line would end the block of HTML.
    return (
        f"<details><summary>{version}. Cite this book</summary>"
        f"<pre>@misc{{yaie,{escape(rows)}\n}}</pre></details>"
    )


def _book() -> dict[str, Any]:
    """What book.toml says of the book."""
    table: dict[str, Any] = tomllib.loads((ROOT / "book.toml").read_text("utf-8"))["book"]
    return table


@cache
def _last_change(root: Path) -> date | None:
    """The day of the last commit; None outside of a repository."""
    try:
        asked = subprocess.run(
            ["git", "-C", str(root), "log", "-1", "--format=%cs"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:  # no git here
        return None
    return date.fromisoformat(asked.stdout.strip()) if not asked.returncode else None


def without_a_way_back() -> str:
    """What to say of a book that is built for publishing and does not say where its repository is."""
    book = os.environ.get(BOOK_URL, "")
    if not book or repository_url():
        return ""
    return (
        f"{BOOK_URL} is {book}, and git-repository-url in book.toml is empty: readers of the book will "
        "not find the repository."
    )
