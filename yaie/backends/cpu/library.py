"""The library's functions, by addresses and strides alone: nothing here knows PyTorch."""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path

from yaie.backends.cpu.build import build
from yaie.core.errors import KernelError

EVERYTHING = 2**40
"""A window that hides nothing."""


def fields(*groups: tuple[type, str]) -> list[tuple[str, type]]:
    return [(name, kind) for kind, names in groups for name in names.split()]


class Attend(ctypes.Structure):
    """One layer's attention, as `attention.cpp` declares it."""

    _fields_ = fields(
        (c_void_p, "q keys values out sinks"),
        (c_int64, "q_token q_head block slot head window"),
        (c_float, "scale cap"),
        (c_int32, "heads kv_heads d is_bfloat16 threads"),
    )


class RotateAndStore(ctypes.Structure):
    """One layer's new keys and values, as `layer.cpp` declares it."""

    _fields_ = fields(
        (c_void_p, "q keys values k v slots positions cos sin"),
        (c_int64, "q_token q_head k_token k_head v_token v_head block slot head"),
        (c_int32, "tokens heads kv_heads d half block_size is_bfloat16 threads"),
    )


class BlockPart(ctypes.Structure):
    """Some outputs of a weight in blocks, all of one kind, as `blocks.cpp` declares it."""

    _fields_ = fields((c_void_p, "blocks"), (c_int64, "outputs"), (c_int32, "kind"))


class BlocksProduct(ctypes.Structure):
    """A product with a weight in blocks, and what stands around it, as `blocks.cpp` declares it."""

    _fields_ = fields(
        (c_void_p, "parts x gain bias residual out"),
        (c_int64, "rows inputs stride"),
        (c_float, "eps"),
        (c_int32, "num_parts gated is_bfloat16 threads"),
    )


def loaded(path: Path) -> ctypes.CDLL:
    """Raises KernelError if it cannot be."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:  # a cache from which nothing may be executed, say
        raise KernelError(
            f"{error}. Delete it, or set YAIE_CACHE to a folder that programs may run from"
        ) from None


def openmp_team() -> c_void_p | None:
    """What runs work on the threads of PyTorch's OpenMP, which is loaded for all to see."""
    team = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
    return None if team is None else ctypes.cast(team, c_void_p)


class Library:
    """The functions of a built library; see the sources for what they do."""

    def __init__(self, path: Path) -> None:
        library = loaded(path)

        def function(
            name: str, result: type | None, *arguments: type
        ) -> "ctypes._NamedFuncPointer":
            found = getattr(library, name)
            found.restype, found.argtypes = result, arguments
            return found

        self._set_team = function("yaie_set_team", None, c_void_p)
        self.lanes = function("yaie_lanes", c_int32)()
        self.has_dots = bool(function("yaie_has_dots", c_int32)())
        self.make_plan = function(
            "yaie_make_plan", c_void_p, *[c_void_p] * 3, c_int64, *[c_int32] * 4
        )
        self.free_plan = function("yaie_free_plan", None, c_void_p)
        self.plan_levels = function("yaie_plan_levels", c_int32, c_void_p)
        self.attend = function("yaie_attend", None, c_void_p, POINTER(Attend))
        self.rotate_and_store = function("yaie_rotate_and_store", None, POINTER(RotateAndStore))
        self.rms_norm = function(
            "yaie_rms_norm", None, *[c_void_p] * 4, c_int64, c_int64, c_float, c_int32, c_int32
        )
        self.silu_mul = function(
            "yaie_silu_mul", None, c_void_p, c_void_p, c_int64, c_int64, c_int32, c_int32
        )
        self.block_bytes = function("yaie_block_bytes", c_int64, c_int32)
        self.arrange_blocks = function(
            "yaie_arrange_blocks", None, *[c_void_p] * 2, *[c_int64] * 2, *[c_int32] * 2
        )
        self.blocks_product = function("yaie_blocks_product", None, POINTER(BlocksProduct))
        self.blocks_numbers = function(
            "yaie_blocks_numbers", None, POINTER(BlockPart), c_void_p, c_int64, *[c_int32] * 2
        )
        self.blocks_rows = function(
            "yaie_blocks_rows", None, *[c_void_p] * 3, *[c_int64] * 2, *[c_int32] * 2
        )
        self.use_openmp()

    def use_openmp(self) -> None:
        """Run on PyTorch's threads, if its OpenMP is there."""
        if (team := openmp_team()) is not None:
            self._set_team(team)

    def use_own_threads(self) -> None:
        """Run on threads that the library starts."""
        self._set_team(None)


@cache
def library(extra: Sequence[str] = ()) -> Library:
    """Built for this processor and loaded, once a process. Raises KernelError: see `build`, or it
    cannot be loaded."""
    return Library(build(extra))
