"""The functions of `source/`, by addresses and strides alone, as `yaie.backends.cpu.library` has those
of attention. Built when the first model with a state is loaded."""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path

from yaie.backends.cpu.build import SOURCE as HEADERS
from yaie.backends.cpu.build import build
from yaie.backends.cpu.library import fields, loaded, openmp_team

SOURCE = Path(__file__).parent / "source"


class Batch(ctypes.Structure):
    """As `batch.h` declares it."""

    _fields_ = fields((c_void_p, "starts slots is_fresh"), (c_int32, "n threads"))


class ShortConv(ctypes.Structure):
    """As `conv.cpp` declares it."""

    _fields_ = fields(
        (Batch, "batch"),
        (c_void_p, "out x weight bias pool"),
        (c_int64, "x_stride slot_stride"),
        (c_int32, "channels width silu is_bfloat16"),
    )


class DeltaRule(ctypes.Structure):
    """As `delta.cpp` declares it."""

    _fields_ = fields(
        (Batch, "batch"),
        (c_void_p, "out q k v log_decay beta pool"),
        (
            c_int64,
            "q_token q_head k_token k_head v_token v_head decay_token beta_token slot_stride",
        ),
        (c_int32, "heads v_heads d_k d_v is_bfloat16"),
    )


class SelectiveScan(ctypes.Structure):
    """As `scan.cpp` declares it."""

    _fields_ = fields(
        (Batch, "batch"),
        (c_void_p, "out x b c dt a d pool"),
        (c_int64, "x_token x_head dt_token b_token b_group c_token c_group slot_stride"),
        (c_int32, "heads groups p n_state is_bfloat16"),
    )


class StatesLibrary:
    """Of a built library; see the sources for what its functions do."""

    def __init__(self, path: Path) -> None:
        library = loaded(path)
        for name, call in (
            ("short_conv", ShortConv), ("delta_rule", DeltaRule), ("selective_scan", SelectiveScan),
        ):  # fmt: skip
            function = getattr(library, f"yaie_{name}")
            function.restype, function.argtypes = None, (POINTER(call),)
        self.short_conv = library.yaie_short_conv
        self.delta_rule = library.yaie_delta_rule
        self.selective_scan = library.yaie_selective_scan
        if (team := openmp_team()) is not None:
            library.yaie_states_set_team.argtypes = (c_void_p,)
            library.yaie_states_set_team(team)


@cache
def library(extra: Sequence[str] = ()) -> StatesLibrary:
    """Built for this processor and loaded, once a process. Raises KernelError: see `build`, or it
    cannot be loaded."""
    return StatesLibrary(build(extra, SOURCE, HEADERS, "layers with a state"))
