"""`KernelFault`: what the runtime stopped a kernel for, in words."""

import re
from collections.abc import Sequence
from pathlib import Path

from yaie.core.errors import KernelError
from yaie.cuda.on_cpu.binding import Fault, Party, text_at
from yaie.cuda.on_cpu.places import Places

KINDS = {
    1: "race",
    2: "out_of_bounds",
    3: "uninitialized",
    4: "misaligned",
    5: "barrier",
    6: "deadlock",
    7: "runaway",
    8: "undefined",
    10: "launch",
    11: "host_access",
    12: "crash",
    13: "stack",
    14: "trap",
    15: "stream",
}
NOT_WRITTEN = 9
_TITLES = {
    "out_of_bounds": "out of bounds",
    "misaligned": "misaligned access",
    "barrier": "barrier skipped",
    "runaway": "runaway loop",
    "undefined": "undefined behaviour",
    "launch": "launch refused",
    "stream": "wrong stream",
    "host_access": "host access",
    "stack": "stack overflow",
}
_DOES = ("reads {}", "writes {}", "changes {} by an atomic")
_DID = ("read {}", "wrote {}", "changed {} by an atomic")


class KernelFault(KernelError):
    """A kernel broke a rule of CUDA while it ran on the CPU.

    kind: one of KINDS. file, line: where it was stopped; where: both, "norm.cu:31", or "" if unknown.
    other_where: of the other access of a race, or of where the missing threads are.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        kernel: str,
        file: Path | None,
        line: int,
        other_where: str = "",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.kernel = kernel
        self.file = file
        self.line = line
        self.where = f"{file.name}:{line}" if file else ""
        self.other_where = other_where


class Explainer:
    """Puts the fault of one call into words."""

    def __init__(self, fault: Fault, folder: Path, places: Places) -> None:
        self._fault = fault
        self._folder = folder
        self._places = places

    def explain(self) -> KernelFault:
        fault = self._fault
        kind = KINDS[fault.kind]
        kernel = self._places.kernel()
        file, line = self._places.place(fault.first)
        body = getattr(self, f"_{kind}")()
        title = _TITLES.get(kind, kind)
        message = f"{title} in {kernel or 'host code'}: {body}"
        other = self._places.where(fault.second) if kind in ("race", "barrier", "deadlock") else ""
        return KernelFault(
            kind,
            message,
            kernel=kernel,
            file=self._folder / file if file else None,
            line=line,
            other_where=other,
        )

    # One method for each kind.

    def _race(self) -> str:
        first, second = self._fault.first, self._fault.second
        same_block = first.block == second.block
        if not same_block:
            why = "the blocks of a launch run in any order"
        elif first.thread // 32 == second.thread // 32:
            why = "neither __syncwarp() nor __syncthreads() stands between"
        else:
            why = "no __syncthreads() stands between"
        other = f"thread {self._thread(second)}" + (
            "" if same_block else f" of {self._block(second)}"
        )
        return (
            f"{self._who(first)} {self._does()}{self._at(first)}, "
            f"{other} {_DID[second.access].format('it')}{self._at(second)}, and {why}"
        )

    def _out_of_bounds(self) -> str:
        first = self._fault.first
        text = self._text()
        if text.startswith("index "):
            text = re.sub(r"(\w)\[", r"\1 [", text, count=1)  # clang writes float[8]
            return f"{self._who(first)} uses {text}{self._at(first)}"
        what = text or self._places.outside()
        return f"{self._who(first)} {_DOES[first.access].format(what)}{self._at(first)}"

    def _uninitialized(self) -> str:
        first = self._fault.first
        return (
            f"{self._who(first)} {self._does()}{self._at(first)}, "
            "which no thread of the block has written"
        )

    def _misaligned(self) -> str:
        fault = self._fault
        fits = fault.address & -fault.address
        return (
            f"{self._who(fault.first)} {_DOES[fault.first.access].format(self._what())}, "
            f"{fault.size} bytes at once{self._at(fault.first)}, whose address is a multiple of {fits} "
            f"and must be one of {fault.size}"
        )

    def _barrier(self) -> str:
        fault = self._fault
        first, second = fault.first, fault.second
        waiting = f"{fault.count} thread{'s' if fault.count > 1 else ''} of {self._block(first)}"
        return (
            f"{waiting} (thread {self._thread(first)} is one) wait at {text_at(first.what)}"
            f"{self._at(first)}, but thread {self._thread(second)} {self._state(second)}"
        )

    def _deadlock(self) -> str:
        fault = self._fault
        missing = _ranges([lane for lane in range(32) if fault.count >> lane & 1])
        lanes = "lane" if fault.count & (fault.count - 1) == 0 else "lanes"
        return (
            f"{self._who(fault.first)} waits in {text_at(fault.first.what)}{self._at(fault.first)} with "
            f"mask {fault.first.mask:#010x} for {lanes} {missing}, but thread "
            f"{self._thread(fault.second)} {self._state(fault.second)}"
        )

    def _runaway(self) -> str:
        first = self._fault.first
        return (
            f"{self._who(first)} has taken {self._fault.count:,} steps and is still in a loop"
            f"{self._at(first)}"
        )

    def _undefined(self) -> str:
        text = self._text()
        return f"{self._who(self._fault.first)}{self._at(self._fault.first)}: {text}"

    _trap = _undefined

    def _launch(self) -> str:
        return self._fault.text.decode()

    _stream = _launch

    def _host_access(self) -> str:
        first = self._fault.first
        return (
            f"it {self._does()}{self._at(first)}; tensors lie in the GPU's memory, "
            "which only kernels reach"
        )

    def _crash(self) -> str:
        signal = self._fault.text.decode("utf-8", "replace")
        if self._fault.address == 0:  # the processor gave none; null pointers are found before
            return (
                f"{self._who(self._fault.first)} made an access that the processor refuses "
                f"('{signal}'), most likely 16 bytes at once at an address that is no multiple of 16"
            )
        return (
            f"{self._who(self._fault.first)} caused '{signal}' at address {self._fault.address:#x}"
        )

    def _stack(self) -> str:
        return f"the local variables of {self._who(self._fault.first)} do not fit in 64 KiB"

    # Words for parts of it.

    def _does(self) -> str:
        return _DOES[self._fault.first.access].format(self._what())

    def _text(self) -> str:
        text: str = self._fault.text.decode("utf-8", "replace").replace("'", "")
        return text

    def _at(self, party: Party) -> str:
        return self._places.at(party)

    def _what(self) -> str:
        return self._places.what()

    def _who(self, party: Party) -> str:
        if self._fault.on_host:
            return "host code"
        return f"thread {self._thread(party)} of {self._block(party)}"

    def _thread(self, party: Party) -> str:
        return _index(party.thread, self._fault.block)

    def _block(self, party: Party) -> str:
        return f"block {_index(party.block, self._fault.grid)}"

    def _state(self, party: Party) -> str:
        if party.state == 3:
            return "has returned"
        verb = "waits at" if party.state == 1 else "waits in"
        mask = f" with mask {party.mask:#010x}" if party.state == 2 else ""
        return f"{verb} {text_at(party.what)}{self._at(party)}{mask}"


def _index(linear: int, shape: Sequence[int]) -> str:
    """Of a thread or block: a number if the shape has one dimension, else (x, y, z)."""
    if shape[1] <= 1 and shape[2] <= 1:
        return str(linear)
    x, y, z = linear % shape[0], linear // shape[0] % shape[1], linear // shape[0] // shape[1]
    return f"({x}, {y})" if shape[2] <= 1 else f"({x}, {y}, {z})"


def _ranges(numbers: list[int]) -> str:
    """ "1, 4-7" of [1, 4, 5, 6, 7]."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
