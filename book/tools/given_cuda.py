"""Names that CUDA regions call, and what the comments above their definitions say."""

import re
from collections.abc import Iterator
from pathlib import Path

from book.tools.mdbook import ROOT
from grader.cuda_source import find_bodies
from grader.regions import MENTION, Region, find_regions

CALL = re.compile(r"\b(?P<name>[A-Za-z_]\w*)\s*(?:<[^;(){}<>]*>)?\s*\(")
PLACES = ("threadIdx", "blockIdx", "blockDim", "gridDim")
PLACE = re.compile(rf"\b({'|'.join(PLACES)})\b")
DEFINITION = re.compile(
    r"(?P<comment>(?:^[ \t]*//.*\n)+)(?:^[ \t]*template.*\n)?"
    r"^[ \t]*(?:#define\s+(?P<macro>\w+)|(?:[\w:*&<>]+[ \t]+)+?[*&]?(?P<name>\w+)\s*\()",
    re.M,
)
WORDS = frozenset(
    "if for while return switch sizeof int float double bool char size_t int64_t uint32_t uint64_t "
    "static_cast reinterpret_cast const_cast defined decltype alignof auto constexpr".split()
)
INCLUDES = ROOT / "yaie/cuda"


def cuda_names(text: str, regions: list[Region], folder: Path) -> Iterator[str]:
    """`cuda.NAME` of each function, macro and place that the regions use and do not define."""
    lines = text.splitlines()
    own = set(_written(folder))
    for region in regions:
        code = "\n".join(line.partition("//")[0] for line in lines[region.begin + 1 : region.end])
        named = {found["name"] for found in CALL.finditer(code)} | set(PLACE.findall(code))
        for name in sorted(named - WORDS - own):
            # A variable that is made with arguments is also used without them.
            if name in PLACES or not re.search(rf"\b{name}\b(?!\s*[(<])", code):
                yield f"cuda.{name}"


def _written(folder: Path) -> Iterator[str]:
    """Functions that hold a region, or are in one."""
    for path in sorted(folder.glob("*.cu*")):
        text = path.read_text("utf-8")
        bodies = find_bodies(text)
        functions = [
            it for it in bodies if not any(o.begin < it.begin <= o.end for o in bodies)
        ]  # the others are blocks inside
        for region in find_regions(text.splitlines(), path):
            for function in functions:
                if function.begin <= region.end and region.begin <= function.end:
                    yield function.name


def meaning_in(folder: Path, name: str) -> str:
    """What the comment above a definition says, in the lab's given files or in the includes; or ""."""
    for path in [
        *sorted(folder.glob("*.cu*")),
        *sorted(INCLUDES.rglob("*.cuh")),
        *sorted(INCLUDES.rglob("*.h")),
    ]:
        for found in DEFINITION.finditer(path.read_text("utf-8")):
            if name in (found["macro"], found["name"]) and not MENTION.search(found["comment"]):
                lines = [
                    line.strip().removeprefix("//").strip()
                    for line in found["comment"].splitlines()
                ]
                return " ".join(line for line in lines if not line.startswith("ANCHOR"))
    return ""
