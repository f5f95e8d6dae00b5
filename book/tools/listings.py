"""mdBook preprocessor: a listing loses the indentation and the blank lines of where it was cut from.

mdBook copies what stands between two anchors as it is: a method comes out indented, and a class with
the blank lines that the formatter puts after it.
"""

import json
import re
import sys
import textwrap
from typing import Any

FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<info>[^`\n]*)\n(?P<body>.*?)^(?P=fence)[ \t]*$", re.M | re.S
)


def main(arguments: list[str]) -> int:
    """mdBook asks `supports RENDERER`; then it sends [context, book] and reads the book back."""
    if arguments[:1] == ["supports"]:
        return 0
    _, book = json.load(sys.stdin)
    trim_items(book["items"])
    json.dump(book, sys.stdout)
    return 0


def trim_items(items: list[Any]) -> None:
    """Trim the listings of these chapters, and of those below them, in place."""
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            chapter = item["Chapter"]
            chapter["content"] = trim_listings(chapter["content"])
            trim_items(chapter["sub_items"])


def trim_listings(markdown: str) -> str:
    """The same text, each fenced block dedented and without blank lines at its ends."""

    def trim(found: re.Match[str]) -> str:
        body = textwrap.dedent(found["body"]).strip("\n")
        return f"{found['fence']}{found['info']}\n{body}\n{found['fence']}"

    return FENCE.sub(trim, markdown)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
