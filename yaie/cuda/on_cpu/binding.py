"""The runtime's C interface, for ctypes. The structs repeat those of runtime/fault.h and counters.h."""

import ctypes
from ctypes import POINTER, c_char, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any


class Party(ctypes.Structure):
    _fields_ = [
        ("pc", c_uint64),
        ("file", c_uint64),
        ("line", c_int32),
        ("access", c_int32),
        ("block", c_uint32),
        ("thread", c_uint32),
        ("state", c_int32),
        ("mask", c_uint32),
        ("what", c_uint64),
    ]


class Fault(ctypes.Structure):
    _fields_ = [
        ("kind", c_int32),
        ("on_host", c_int32),
        ("address", c_uint64),
        ("size", c_uint64),
        ("kernel", c_uint64),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("shared_bytes", c_uint64),
        ("count", c_uint64),
        ("first", Party),
        ("second", Party),
        ("text", c_char * 1024),
    ]


class Traffic(ctypes.Structure):
    _fields_ = [
        ("count", c_uint64),
        ("bytes", c_uint64),
        ("requests", c_uint64),
        ("sectors", c_uint64),
        ("ideal_sectors", c_uint64),
        ("extra_passes", c_uint64),
    ]


class Request(ctypes.Structure):
    _fields_ = [("mask", c_uint32), ("size", c_uint32), ("address", c_uint64 * 32)]


class SiteTraffic(ctypes.Structure):
    _fields_ = [
        ("pc", c_uint64),
        ("traffic_class", c_int32),
        ("samples", c_int32),
        ("traffic", Traffic),
        ("sample", Request * 8),
    ]


class LaunchRecord(ctypes.Structure):
    _fields_ = [
        ("kernel", c_uint64),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("shared_bytes", c_uint64),
        ("barriers", c_uint64),
        ("collectives", c_uint64),
        ("atomics", c_uint64),
        ("traffic", Traffic * 4),
    ]


_runtimes: dict[str, Any] = {}


def load_runtime(path: Path) -> Any:
    """The runtime's library. Loaded before a lab's, which needs it under the same name.

    Once for each name, wherever it lies: the loader gives labs the first that was loaded.
    """
    if path.name not in _runtimes:
        _runtimes[path.name] = _declare(ctypes.CDLL(str(path)))
    return _runtimes[path.name]


def _declare(runtime: Any) -> Any:
    u64, integers, floats = c_uint64, POINTER(c_int64), POINTER(ctypes.c_float)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "yaie_begin": (c_int, [u64, u64, u64, u64, u64, c_int, c_int]),
        "yaie_add_tensor": (u64, [c_int, u64, u64, u64, c_int, c_void_p]),
        "yaie_add_variable": (c_int, [c_int, c_int, u64, u64]),
        "yaie_invoke": (c_int64, [c_void_p, integers, c_int, floats, c_int]),
        "yaie_shared_base": (u64, []),
        "yaie_fault": (POINTER(Fault), []),
        "yaie_differs": (c_int, [u64, u64, u64]),
        "yaie_launch_count": (c_int, []),
        "yaie_launch_record": (c_void_p, [c_int, POINTER(c_void_p), POINTER(c_int)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(runtime, name)
        function.restype, function.argtypes = result, arguments
    return runtime


@cache
def load_library(path: Path) -> tuple[Any, int]:
    """A lab's library, and the address at which it lies."""
    library = ctypes.CDLL(str(path))
    return library, _base_of(library)


def _base_of(library: Any) -> int:
    class LinkMap(
        ctypes.Structure
    ):  # the start of glibc's struct link_map, to which a handle points
        _fields_ = [("base", c_uint64)]

    return int(LinkMap.from_address(library._handle).base)


def text_at(address: int) -> str:
    """The C string at an address of a loaded library."""
    return ctypes.string_at(address).decode("utf-8", "replace") if address else ""


def as_array(kind: Any, values: list[Any]) -> Any:
    return (kind * max(1, len(values)))(*values)
