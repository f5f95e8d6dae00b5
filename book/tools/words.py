"""How long the chapters are that the first edition had, against it: python -m book.tools.words

Words are those that a reader sees in `book/src/*.md` and on the labs' sheets: what has a letter or a
digit, a directive of the book as one, and no borders of tables. Explorations, the list of chapters, and
the chapters and sections that came later are not counted. Exit status 1 if there are more words than the
second edition may have, or if an article is longer than ARTICLE.
"""

import re
import sys
from pathlib import Path

from book.tools.contents import SHEETS, chapter_pages, lab_of
from book.tools.mdbook import ROOT
from yaie.system.streams import sound_streams

SOURCES = ROOT / "book/src"
FIRST = 121_419
"""Words of these chapters at commit 0d29a56, the last one before the second edition's edits."""
SHARE = 0.89
"""0.02 of it came with the split into articles and sheets: openings, and links between both."""
ASKED = 9_580
"""Words that readers of the whole book asked for: machines, dates and reasons beside numbers,
and an answer for each question that a chapter asks at its end."""
ARTICLE = 2_800
"""The most words of an article, which is read to its end; a sheet is as long as its tasks need."""
LATER = frozenset(
    {
        "adapters.md",
        "agent-traffic.md",
        "agents.md",
        "batch-invariance.md",
        "compressed-attention.md",
        "context-parallel.md",
        "disaggregation.md",
        "experts.md",
        "goodput.md",
        "images.md",
        "kv-tiers.md",
        "labs/state_cache.md",
        "labs/tensor_parallel.md",
        "latent-attention.md",
        "map.md",
        "not-here.md",
        "rollouts.md",
        "routing.md",
        "scaling.md",
        "state-cache.md",
        "teaching.md",
        "tensor-parallel.md",
        "ways-in.md",
    }
)
"""Chapters on what the engine could not do then, on agents, for teachers, and lab 22's."""

LATER_SECTIONS: dict[str, tuple[str, ...]] = {
    "cli.md": ("Break a lab",),
    "configuration.md": ("The same bits in any batch",),
    "cuda-flash-attention.md": ("Feeding tensor cores",),
    "gpu.md": ("Newer cards",),
    "limits.md": ("What one request may ask for",),
    "http-reference.md": ("Ranges of numbers", "Fields of other servers"),
    "served.md": ("GGUF", "Hybrid models"),
    "performance-notes.md": ("A step on several GPUs",),
    "performance-cpu.md": (
        "One part at a time",
        "Guessing ahead",
        "Long contexts",
        "Beside llama.cpp",
    ),
    "performance-kernels.md": ("Weights of four and of eight bits",),
    "performance.md": ("In short", "Guessing ahead", "On several GPUs"),
    "profiling.md": (
        "Begin with what it must take",
        "The instruments, coarse to fine",
        "On a laptop",
        "What a trace does not show",
    ),
    "quantization.md": ("Eight bits with a point: FP8", "Four bits with a point"),
    "references.md": (
        "Hybrid models",
        "Several devices",
        "To read beside this",
        "Serving at scale, other models",
        "In other chapters",
    ),
    "speculative.md": ("What a step yields", "A block at once"),
}
"""Sections on what the engine could not do then."""

_EXERCISES = re.compile(r"^\{\{#exercises .*?\}\}\n", re.M)
"""They came later, to every article."""
_DIRECTIVE = re.compile(r"\{\{#.*?\}\}")
_WORD = re.compile(r"\S*\w\S*")


def words_of(text: str) -> int:
    """How many words a page has."""
    return len(_WORD.findall(_DIRECTIVE.sub("1", _EXERCISES.sub("", text))))


def counted(sources: Path = SOURCES) -> dict[str, int]:
    """Words by page of the first edition, by its path below `sources`."""
    left_out = LATER | {"SUMMARY.md"}
    pages = [*sources.glob("*.md"), *sources.glob(f"{SHEETS}*.md")]
    names = sorted(path.relative_to(sources).as_posix() for path in pages)
    return {name: words_of(_of_the_first(sources, name)) for name in names if name not in left_out}


def too_long(sources: Path = SOURCES) -> dict[str, int]:
    """Articles of labs with more words than they may have."""
    articles = [page for title, page in chapter_pages().items() if lab_of(title)]
    words = {name: words_of((sources / name).read_text("utf-8")) for name in articles}
    return {name: count for name, count in words.items() if count > ARTICLE}


def _of_the_first(sources: Path, name: str) -> str:
    """The text of a page, without the sections that came later."""
    later = LATER_SECTIONS.get(name, ())
    kept, left_out = [], 0
    for section in re.split(r"(?m)^(?=##+ )", (sources / name).read_text("utf-8")):
        hashes, _, title = section.partition("\n")[0].partition(" ")
        if not left_out or len(hashes) <= left_out:
            left_out = len(hashes) if title in later else 0
        kept += [] if left_out else [section]
    return "".join(kept)


def main() -> int:
    """Print the total, its share of the first edition, and the longest chapters."""
    words = counted()
    total, most = sum(words.values()), int(SHARE * FIRST) + ASKED
    print(f"{total:,} words on {len(words)} pages, {total / FIRST - 1:+.1%}; at most {most:,}")
    for name, count in sorted(words.items(), key=lambda item: -item[1])[:5]:
        print(f"  {count:6,}  {name}")
    over = too_long()
    for name, count in over.items():
        print(f"  {count:6,}  {name}: an article has at most {ARTICLE:,}")
    return int(total > most or bool(over))


if __name__ == "__main__":
    sys.exit(sound_streams(main)())
