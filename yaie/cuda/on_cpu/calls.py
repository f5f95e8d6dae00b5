"""`OnCpu`: calls a function of a lab's `.cu` files, its kernels run by the runtime."""

import ctypes
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from yaie.core.errors import KernelError
from yaie.cuda.on_cpu import binding
from yaie.cuda.on_cpu.buffers import Buffer, make_buffers
from yaie.cuda.on_cpu.build import build
from yaie.cuda.on_cpu.faults import NOT_WRITTEN, Explainer
from yaie.cuda.on_cpu.launches import (
    Launch,
    Request,
    Traffic,
    current_settings,
    is_recording,
    record,
)
from yaie.cuda.on_cpu.places import Places
from yaie.cuda.tables import AddressTable

DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
MOST_INTEGERS, MOST_FLOATS = 40, 8
STREAM = 0x57AEA4
"""What launchers are given for a stream: no address, and not 0, which is a stream of its own."""
KINDS = ("global load", "global store", "shared load", "shared store")
_lock = threading.RLock()  # the runtime has one machine
_API = r"YAIE_API\s+\w+\s+{name}\s*\((?P<parameters>[^)]*)\)"


class OnCpu:
    """Every `.cu` file of a folder, as one library that runs on the CPU with every access checked."""

    def __init__(self, folder: Path) -> None:
        """Compiles on the first call. Raises KernelError there if that fails."""
        self.folder = Path(folder)
        self._built: Any = None
        self._names: dict[str, list[str]] = {}

    def call(self, name: str, *arguments: Tensor | torch.dtype | float | None) -> None:
        """Call a YAIE_API function, as `CudaLibrary.call` says.

        Raises KernelFault where a kernel breaks a rule, and leaves the tensors as they were; KernelError
        for what does not compile or does not exist; NotImplementedError for a stub.
        """
        with _lock:
            self._call(name, arguments)

    def _call(self, name: str, arguments: Sequence[Any]) -> None:
        if self._built is None:
            self._built = build(self.folder)
        runtime = binding.load_runtime(self._built.runtime)
        library, base = binding.load_library(self._built.path)
        function = self._find(library, name)
        tables = [(i, t) for i, t in enumerate(arguments) if isinstance(t, AddressTable)]
        reached = [tensor for _, table in tables for tensor in table.reaches]
        buffers = make_buffers([*arguments, None, *reached])  # None: the stream
        self._begin(runtime, base, buffers)
        _put_addresses([i for i, _ in tables], reached, len(arguments) + 1, buffers)
        integers, floats = _as_numbers(name, arguments, buffers)
        code = runtime.yaie_invoke(
            ctypes.cast(function, ctypes.c_void_p),
            binding.as_array(ctypes.c_int64, integers), len(integers),
            binding.as_array(ctypes.c_float, floats), len(floats),
        )  # fmt: skip
        fault = runtime.yaie_fault().contents
        if is_recording():
            record(self._launches(runtime, base))
        if fault.kind == NOT_WRITTEN:
            raise NotImplementedError(fault.text.decode())
        if fault.kind:
            shared = runtime.yaie_shared_base()
            places = Places(
                fault, self._built.symbols, base, buffers, self._parameters(name), shared
            )
            raise Explainer(fault, self.folder, places).explain()
        positions = {i for i, _ in tables}
        for buffer in buffers:
            if positions & {view.position for view in buffer.views}:
                continue  # its copy has the addresses of copies, which the next call lays out anew
            original = buffer.storage + buffer.begin
            if buffer.size and runtime.yaie_differs(buffer.address, original, buffer.size):
                ctypes.memmove(original, buffer.address, buffer.size)
        if code:
            raise KernelError(f"{self.folder.name}.{name} returned {code}, an error of CUDA's")

    def _find(self, library: Any, name: str) -> Any:
        try:
            return getattr(library, name)
        except AttributeError:
            raise KernelError(
                f"{self.folder.name} has no function {name}; one is marked YAIE_API in a .cu file"
            ) from None

    def _begin(self, runtime: Any, base: int, buffers: list[Buffer]) -> None:
        """Lay the tensors out in the runtime's memory, and tell it of the library's variables."""
        symbols, now = self._built.symbols, current_settings()
        size = sum(b.size + b.gap + 2048 for b in buffers) + max(
            (b.gap for b in buffers), default=0
        )
        cells = sum(b.size // b.granule + 8 for b in buffers)
        cells += sum(v.size // 2 + 8 for v in symbols.variables)
        failed = runtime.yaie_begin(
            base, size, cells, now.seed, now.step_limit, is_recording(), now.dry + 2 * now.failing
        )
        for i, buffer in enumerate(buffers):
            valid = buffer.valid.data_ptr() if buffer.valid is not None else None
            shift = buffer.granule.bit_length() - 1
            buffer.address = runtime.yaie_add_tensor(
                i, buffer.size, buffer.begin % 512, buffer.gap, shift, valid
            )
            failed = failed or not buffer.address
            if buffer.size and not failed:
                ctypes.memmove(buffer.address, buffer.storage + buffer.begin, buffer.size)
        for i, v in enumerate(symbols.variables):
            failed = runtime.yaie_add_variable(i, v.kind, base + v.offset, v.size) or failed
        if failed:
            raise KernelError(f"no memory to run kernels on {size // 2**20} MiB of tensors")

    def _parameters(self, name: str) -> list[str]:
        """The parameters' names of a function, from its source."""
        if name not in self._names:
            self._names[name] = []
            for file in sorted(self.folder.glob("*.cu")):
                found = re.search(
                    _API.format(name=re.escape(name)), file.read_text("utf-8", "replace")
                )
                if found:
                    parameters = found["parameters"].split(",")
                    self._names[name] = [
                        p.split()[-1].lstrip("*&") for p in parameters if p.split()
                    ]
        return self._names[name]

    def _launches(self, runtime: Any, base: int) -> list[Launch]:
        symbols = self._built.symbols
        launches = []
        for i in range(runtime.yaie_launch_count()):
            sites, count = ctypes.c_void_p(), ctypes.c_int()
            address = runtime.yaie_launch_record(i, ctypes.byref(sites), ctypes.byref(count))
            raw = binding.LaunchRecord.from_address(address)
            rows = (binding.SiteTraffic * count.value).from_address(sites.value or address)
            loads, stores, shared_loads, shared_stores = (_traffic(t) for t in raw.traffic)
            launches.append(
                Launch(
                    kernel=symbols.kernel(raw.kernel - base),
                    grid=(raw.grid[0], raw.grid[1], raw.grid[2]),
                    block=(raw.block[0], raw.block[1], raw.block[2]),
                    shared_bytes=raw.shared_bytes,
                    global_loads=loads,
                    global_stores=stores,
                    shared_loads=shared_loads,
                    shared_stores=shared_stores,
                    barriers=raw.barriers,
                    collectives=raw.collectives,
                    atomics=raw.atomics,
                    sites=[
                        (r.pc - base, KINDS[r.traffic_class], _traffic(r.traffic)) for r in rows
                    ],
                    requests=[request for r in rows for request in _requests(r, base)],
                    symbols=symbols,
                )
            )
        return launches


def _requests(site: binding.SiteTraffic, base: int) -> list[Request]:
    return [
        Request(
            site.pc - base,
            KINDS[site.traffic_class],
            raw.size,
            tuple(raw.address[lane] if raw.mask >> lane & 1 else None for lane in range(32)),
        )
        for raw in site.sample[: site.samples]
    ]


def _as_numbers(
    name: str, arguments: Sequence[Any], buffers: list[Buffer]
) -> tuple[list[int], list[float]]:
    """Integers, the stream last, and floats, in order: they are passed in registers of two kinds."""
    addresses = {v.position: b.address_of(v) for b in buffers for v in b.views}
    integers: list[int] = []
    floats: list[float] = []
    for position, value in enumerate(arguments):
        if isinstance(value, Tensor):
            integers.append(addresses[position])
        elif isinstance(value, float):
            floats.append(value)
        elif isinstance(value, torch.dtype):
            integers.append(DTYPES[value])
        else:
            integers.append(0 if value is None else int(value))
    integers.append(STREAM)
    if len(integers) > MOST_INTEGERS or len(floats) > MOST_FLOATS:
        raise KernelError(
            f"{name}: at most {MOST_INTEGERS - 1} pointers and integers and {MOST_FLOATS} floats"
        )
    return integers, floats


def _put_addresses(
    tables: list[int], reached: list[Tensor], first: int, buffers: list[Buffer]
) -> None:
    """In the copies of the tables, the addresses of tensors become those of the tensors' own copies.

    tables: their positions. reached: stand behind the arguments, from position `first` on.
    """
    views = {v.position: (v, b.address_of(v)) for b in buffers for v in b.views}
    moved = {t.data_ptr(): views[first + i][1] for i, t in enumerate(reached)}
    for position in tables:
        view, address = views[position]
        numbers = (ctypes.c_int64 * view.tensor.numel()).from_address(address)
        for i, number in enumerate(numbers):
            numbers[i] = moved.get(number, number)


def _traffic(raw: binding.Traffic) -> Traffic:
    return Traffic(*(getattr(raw, name) for name, *_ in raw._fields_))
