"""The functions of `source/`, by addresses and strides alone, as `yaie.backends.cpu.library` has those
of attention. Built when the first model with a state is loaded."""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
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


class DeltaInputs(ctypes.Structure):
    """As `around.cpp` declares it."""

    _fields_ = fields(
        (c_void_p, "q_out k_out log_decay beta q k a b log_a dt_bias"),
        (c_int64, "q_token q_head k_token k_head a_token b_token"),
        (c_float, "length eps"),
        (c_int32, "tokens heads v_heads d is_bfloat16 threads"),
    )


class GatedNorm(ctypes.Structure):
    """As `around.cpp` declares it."""

    _fields_ = fields(
        (c_void_p, "out x gate weight"),
        (c_int64, "x_token x_row gate_token weight_row"),
        (c_float, "eps"),
        (c_int32, "tokens rows d gate_first is_bfloat16 threads"),
    )


class StatesLibrary:
    """Of a built library; see the sources for what its functions do."""

    def __init__(self, path: Path) -> None:
        library = loaded(path)

        def function(name: str, call: type) -> "ctypes._NamedFuncPointer":
            found = getattr(library, name)
            found.restype, found.argtypes = None, (POINTER(call),)
            return found

        self.short_conv = function("yaie_short_conv", ShortConv)
        self.delta_rule = function("yaie_delta_rule", DeltaRule)
        self.selective_scan = function("yaie_selective_scan", SelectiveScan)
        self.delta_inputs = function("yaie_delta_inputs", DeltaInputs)
        self.gated_norm = function("yaie_gated_norm", GatedNorm)
        if (team := openmp_team()) is not None:
            library.yaie_states_set_team.argtypes = (c_void_p,)
            library.yaie_states_set_team(team)


@cache
def library(extra: Sequence[str] = ()) -> StatesLibrary:
    """Built for this processor and loaded, once a process. Raises KernelError: see `build`, or it
    cannot be loaded."""
    return StatesLibrary(build(extra, SOURCE, HEADERS, "layers with a state"))
