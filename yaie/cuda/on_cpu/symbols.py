"""What a library's symbols mean: which are shared arrays, which kernel an address is, which line."""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHARED_STATIC, CONSTANT, VARIABLE = 1, 3, 4  # RegionKind in runtime/memory.h


Dynamic = tuple[str, str, int]
"""An `extern __shared__` array: its name, file and line."""


@dataclass(frozen=True, slots=True)
class Variable:
    """offset, size: in bytes, from the library's base. function: that declares it, "" if none."""

    offset: int
    size: int
    kind: int
    name: str
    function: str


@dataclass
class Symbols:
    """Of one library. functions: {offset: short name}."""

    path: Path
    variables: list[Variable] = field(default_factory=list)
    functions: dict[int, str] = field(default_factory=dict)
    dynamic: list[Dynamic] = field(default_factory=list)
    _known: dict[int, tuple[str, int]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        rows = [[v.offset, v.size, v.kind, v.name, v.function] for v in self.variables]
        return {"variables": rows, "functions": self.functions, "dynamic": self.dynamic}

    @classmethod
    def from_json(cls, data: dict[str, Any], path: Path) -> "Symbols":
        functions = {int(offset): name for offset, name in data["functions"].items()}
        dynamic = [(name, file, line) for name, file, line in data["dynamic"]]
        return cls(path, [Variable(*row) for row in data["variables"]], functions, dynamic)

    def static_shared(self) -> dict[str, int]:
        """Bytes of `__shared__` arrays by the function that declares them."""
        total: dict[str, int] = {}
        for variable in self.variables:
            if variable.kind == SHARED_STATIC:
                total[variable.function] = total.get(variable.function, 0) + variable.size
        return total

    def kernel(self, offset: int) -> str:
        return self.functions.get(offset, "a kernel")

    def line(self, offset: int) -> tuple[str, int]:
        """File name and line of the call that returns to `offset`; ("", 0) if nobody knows.

        Of inlined functions, the innermost that stands in a file of the lab.
        """
        return self.lines([offset])[0]

    def lines(self, offsets: Sequence[int]) -> list[tuple[str, int]]:
        """`line` of each."""
        missing = sorted(set(offsets) - self._known.keys())
        if missing:
            self._known.update(dict.fromkeys(missing, ("", 0)))
            self._look_up(missing)
        return [self._known[offset] for offset in offsets]

    def _look_up(self, offsets: list[int]) -> None:
        command = ["addr2line", "-a", "-i", "-e", str(self.path), *(hex(o - 1) for o in offsets)]
        try:
            output = subprocess.run(
                command, capture_output=True, encoding="utf-8", errors="replace", timeout=60
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return
        offset = 0
        for found in output.splitlines():
            if found.startswith("0x"):  # the address, and then a line for each inlined function
                offset = int(found, 16) + 1
                continue
            file, _, line = found.partition(" (")[0].rpartition(":")
            of_lab = "/on_cpu/include/" not in file and not file.startswith("/usr/")
            if line.isdigit() and of_lab and self._known.get(offset) == ("", 0):
                self._known[offset] = (Path(file).name, int(line))


def read_symbols(path: Path, dynamic: list[Dynamic]) -> Symbols:
    """By `nm`, which comes with the compiler."""
    symbols = Symbols(path, dynamic=dynamic)
    dynamic_names = {name for name, _, _ in dynamic}
    raw, readable = _nm(path), _nm(path, "-C")
    for (offset, size, kind, mangled), (_, _, _, name) in zip(raw, readable, strict=True):
        if kind in "bBdDuV" and size and not mangled.startswith("_ZGV"):
            function, _, last = name.rpartition("::")
            if mangled.startswith("_ZZ"):
                region = SHARED_STATIC
            elif mangled.startswith("_Z") or re.fullmatch(r"\w+", mangled):
                region = CONSTANT if last in dynamic_names else VARIABLE
            else:
                continue  # the compiler's own
            symbols.variables.append(Variable(offset, size, region, last, short_name(function)))
        elif kind in "tTwW":
            symbols.functions[offset] = short_name(name)
    return symbols


def _nm(path: Path, *options: str) -> list[tuple[int, int, str, str]]:
    command = ["nm", "-S", "--defined-only", *options, str(path)]
    output = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=True
    ).stdout
    rows = []
    for line in output.splitlines():
        parts = line.split(" ", 3)
        if len(parts) == 4 and len(parts[1]) == 16:
            rows.append((int(parts[0], 16), int(parts[1], 16), parts[2], parts[3]))
    return rows


def short_name(name: str) -> str:
    """`rms_norm<float, 4>` of `void (anonymous namespace)::rms_norm<float, 4>(float const*, int)`."""
    name = re.sub(r" \[clone [^]]*\]", "", name).replace("(anonymous namespace)::", "")
    depth = 0
    start = 0
    for i, letter in enumerate(name):
        if letter in "<{":
            depth += 1
        elif letter in ">}":
            depth -= 1
        elif depth == 0 and letter == " ":
            start = i + 1  # what stood before it was the return type
        elif depth == 0 and letter == "(":
            name = name[:i]
            break
    name = name[start:]
    outer, opening, inner = name.partition("<")
    return outer.rpartition("::")[2] + opening + inner
