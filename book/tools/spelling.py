"""Words of the book that no dictionary knows: python -m book.tools.spelling

A word is right if pyspellchecker's English dictionary has it or `book/words.txt` does, which holds
British spellings, terms and names. Capitals within a word mark an abbreviation or a name in code.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from book.tools.check import GENERATED
from book.tools.fences import FENCE
from book.tools.mdbook import ROOT
from yaie.core.compat import tomllib
from yaie.system.streams import sound_streams

WORDS = ROOT / "book/words.txt"
NO_PROSE = re.compile(
    r"<!--.*?-->|<svg\b.*?</svg>|`+[^`]+`+|\$\$.*?\$\$|(?<!\\)\$[^$\n]+\$|\{\{.*?\}\}"
    r"|\]\([^)]*\)|https?://\S+|<[^>]+>|\{#[^}]*\}|[\w.]+/[\w./-]+|\w+\.(?:md|py|toml|json|txt|html)\b",
    re.S,
)
WORD = re.compile(r"[A-Za-z][A-Za-z'’]+")
TEXTS = {"ask", "text", "why", "title", "caption", "legend", "unit"}


def main() -> int:
    """Prints 'file: word' for each; exit status 1 if there is one."""
    faults = [f"{path}: {word}" for path, words in unknown_words().items() for word in words]
    print("\n".join(faults) or "Every word is known.")
    return int(bool(faults))


def unknown_words() -> dict[str, list[str]]:
    """By file, relative to the root: its words that neither dictionary has, sorted."""
    from spellchecker import SpellChecker

    dictionary, ours = SpellChecker(), known_words()
    found: dict[str, list[str]] = {}
    for path in sources():
        unknown = dictionary.unknown(words_of(path) - ours) - ours
        if unknown:
            found[path.relative_to(ROOT).as_posix()] = sorted(unknown)
    return found


def known_words() -> set[str]:
    """What `book/words.txt` adds, in lower case."""
    return set(WORDS.read_text("utf-8").split())


def sources() -> list[Path]:
    """What people wrote for the book; not the pages generated from code."""
    chapters = sorted((ROOT / "book/src").rglob("*.md"))
    folders = ("quizzes", "exercises", "figures")
    data = [path for folder in folders for path in (ROOT / "book" / folder).glob("*.toml")]
    written = [path for path in chapters if not path.read_text("utf-8").startswith(GENERATED)]
    return written + sorted(data)


def words_of(path: Path) -> set[str]:
    """The words of a file's prose, in lower case."""
    text = path.read_text("utf-8")
    prose = (
        " ".join(texts_in(tomllib.loads(text))) if path.suffix == ".toml" else FENCE.sub("", text)
    )
    words = (word.group().strip("'’") for word in WORD.finditer(NO_PROSE.sub(" ", prose)))
    return {re.sub(r"['’]s$", "", word).lower() for word in words if not has_inner_capital(word)}


def has_inner_capital(word: str) -> bool:
    return any(letter.isupper() for letter in word[1:])


def texts_in(table: Any, key: str = "") -> Iterator[str]:
    """The values of a data file that readers see."""
    if isinstance(table, dict):
        for name, value in table.items():
            yield from texts_in(value, name)
    elif isinstance(table, list):
        for value in table:
            yield from texts_in(value, key)
    elif key in TEXTS:
        yield str(table)


if __name__ == "__main__":
    sys.exit(sound_streams(main)())
