"""What kernels in CUDA C++ move, counted on the CPU as a GPU would count it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from yaie.cuda.on_cpu import recording
from yaie.cuda.on_cpu.launches import Launch
from yaie.demos.traffic import Traffic, made_beside

WHERE = "as C++ on the CPU"


def of_launches(launches: Sequence[Launch]) -> Traffic:
    """programs: blocks of threads."""
    return Traffic(
        len(launches),
        sum(launch.blocks for launch in launches),
        sum(launch.global_loads.bytes for launch in launches),
        sum(launch.global_stores.bytes for launch in launches),
    )


def of_cuda(call: Callable[[], Any]) -> tuple[Any, Traffic]:
    """What a call returns, and what its kernels moved."""
    made = Traffic()
    with recording() as launches, made_beside(made):
        result = call()
    return result, replace(of_launches(launches), largest=made.largest)
