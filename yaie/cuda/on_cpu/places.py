"""Where a fault happened, in words: which line, which element of which tensor or shared array."""

from collections.abc import Sequence
from pathlib import Path

from yaie.cuda.on_cpu.binding import Fault, Party, text_at
from yaie.cuda.on_cpu.buffers import Buffer, View
from yaie.cuda.on_cpu.symbols import SHARED_STATIC, Symbols


class Places:
    """Addresses of one call. base: of the library's code. names: of the function's parameters.

    shared_base: where `extern __shared__` memory begins.
    """

    def __init__(
        self,
        fault: Fault,
        symbols: Symbols,
        base: int,
        buffers: Sequence[Buffer],
        names: Sequence[str],
        shared_base: int,
    ) -> None:
        self._fault = fault
        self._symbols = symbols
        self._base = base
        self._buffers = buffers
        self._names = names
        self._shared_base = shared_base

    def kernel(self) -> str:
        """The kernel's name, "" if host code ran."""
        kernel: int = self._fault.kernel
        return self._symbols.kernel(kernel - self._base) if kernel else ""

    def place(self, party: Party) -> tuple[str, int]:
        if party.line > 0:
            return Path(text_at(party.file)).name, party.line
        return self._symbols.line(party.pc - self._base) if party.pc else ("", 0)

    def where(self, party: Party) -> str:
        file, line = self.place(party)
        return f"{file}:{line}" if file else ""

    def at(self, party: Party) -> str:
        where = self.where(party)
        return f" ({where})" if where else ""

    def _name(self, view: View) -> str:
        if view.position < len(self._names):
            return self._names[view.position]
        if self._names:  # behind the stream stand the tensors that a table leads to
            return f"tensor {view.position - len(self._names)} of the table"
        return f"argument {view.position + 1}"

    def what(self) -> str:
        """What lies at the fault's address."""
        address, size = self._fault.address, max(1, self._fault.size)
        for buffer in self._buffers:
            if buffer.address <= address < buffer.address + buffer.size:
                return self._element(buffer, address)
        for variable in self._symbols.variables:
            begin = self._base + variable.offset
            if begin <= address < begin + variable.size:
                shared = "shared " if variable.kind == SHARED_STATIC else ""
                return f"element {(address - begin) // size} of {shared}{variable.name}"
        offset = address - self._shared_base
        if 0 <= offset < max(1, self._fault.shared_bytes):
            return f"element {offset // size} of shared {self._dynamic_name()}"
        return f"address {address:#x}"

    def _element(self, buffer: Buffer, address: int) -> str:
        for view in buffer.views:
            offset, odd = divmod(address - buffer.address_of(view), view.tensor.element_size())
            index = _unravel(offset, view.tensor.shape, view.tensor.stride())
            if index is not None:
                part = f", byte {odd}" if odd else ""
                return f"{self._name(view)}[{', '.join(map(str, index))}]{part}"
        nearest = max(
            (v for v in buffer.views if buffer.address_of(v) <= address),
            key=lambda v: v.begin,
            default=buffer.views[0],
        )
        tensor = nearest.tensor
        offset = (address - buffer.address_of(nearest)) // tensor.element_size()
        return (
            f"between the rows of {self._name(nearest)}: offset {offset} is no element of it (shape "
            f"{list(tensor.shape)}, strides {list(tensor.stride())})"
        )

    def outside(self) -> str:
        """What lies nearest to an address that is nobody's."""
        address, size = self._fault.address, self._fault.size
        if address < 4096:
            return f"address {address:#x}: a null pointer, as None becomes one"
        offset = address - self._shared_base
        if 0 <= offset < 2**20:
            return (
                f"byte {offset} of shared {self._dynamic_name()}, of which the launch has asked for "
                f"{self._fault.shared_bytes} bytes"
            )
        distance, buffer = min(
            ((_distance(b, address), b) for b in self._buffers),
            default=(0, None),
            key=lambda p: p[0],
        )
        if buffer is None or distance > buffer.gap:
            return f"address {address:#x}, which is neither of a tensor nor of shared memory"
        if distance == 0 and address + size <= buffer.address + buffer.size:
            return self._element(buffer, address)
        after = address >= buffer.address
        pick = max if after else min
        view = pick(buffer.views, key=lambda v: v.end if after else v.begin)
        item = view.tensor.element_size()
        shape = f"{self._name(view)} {list(view.tensor.shape)}"
        if after:
            past = (address - (buffer.address + buffer.size)) // item
            if past < 0:
                return f"{size} bytes of which the last lie past the end of {shape}"
            return (
                f"{_elements(past)} past the end of {shape}"
                if past
                else f"just past the end of {shape}"
            )
        before = -((address - buffer.address) // item)
        return f"{_elements(before)} before the start of {shape}"

    def _dynamic_name(self) -> str:
        """Of the `extern __shared__` array that stands last before the line at fault."""
        file, line = self.place(self._fault.first)
        names = [name for name, where, at in self._symbols.dynamic if where == file and at <= line]
        names = names or [name for name, _, _ in self._symbols.dynamic]
        return names[-1] if names else "memory"


def _elements(n: int) -> str:
    return f"{n} element{'s' if n != 1 else ''}"


def _distance(buffer: Buffer, address: int) -> int:
    return max(buffer.address - address, address - (buffer.address + buffer.size - 1), 0)


def _unravel(offset: int, shape: Sequence[int], strides: Sequence[int]) -> list[int] | None:
    """The index of the element `offset` elements behind the first, None if there is none."""
    if offset < 0:
        return None
    index = [0] * len(shape)
    for dim in sorted(range(len(shape)), key=lambda d: -strides[d]):
        if strides[dim] > 0:
            index[dim] = min(offset // strides[dim], shape[dim] - 1)
            offset -= index[dim] * strides[dim]
    return index if offset == 0 else None
