"""Fenced code in Markdown: where it stands, and its tidying."""

import re
import textwrap

FENCE = re.compile(
    r"^(?P<indent>[ \t>]*)(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]*)\n"
    r"(?P<body>.*?)^(?P=indent)(?P=fence)[ \t]*$",
    re.M | re.S,
)


def trim_listings(markdown: str) -> str:
    """The same text, each fenced block dedented and without blank lines at its ends.

    mdBook copies what stands between two anchors as it is: a method comes out indented, and a class with
    the blank lines that the formatter puts after it. Options after the language are for our tools, not
    for the page; pseudo-code is text there, since no highlighter knows it.
    """

    def trim(found: re.Match[str]) -> str:
        if found["indent"]:
            return found[0]  # in a list or a quotation, where the indentation means something
        body = textwrap.dedent(found["body"]).strip("\n")
        language = found["info"].strip().split(",")[0]
        shown = "text" if language == "pseudo" else language
        return f"{found['fence']}{shown}\n{body}\n{found['fence']}"

    return FENCE.sub(trim, markdown)
