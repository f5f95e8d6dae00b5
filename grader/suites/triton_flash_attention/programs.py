"""What the programs of a launch are there for: each tile of the results has one, and each has a tile.
And what they multiply: tiles of 16-bit numbers, where the inputs are."""

from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from grader.kit import Fault, expect
from grader.kit.triton_watch import Seen
from grader.suites.triton_flash_attention.faults import HELD
from grader.suites.triton_flash_attention.problems import F16, Work, backward, forward, problem


def results(
    part: ModuleType, tq: int, tk: int, grades: str, *, record: bool = False
) -> tuple[dict[str, Tensor], Work]:
    """What a task computes, by name, of random float16 numbers."""
    given = problem(tq, tk, dtype=F16)
    if grades == "10.1":
        out, lse, work = forward(part, given, grades, record=record)
        return {"out": out, "lse": lse}, work
    return backward(part, given, torch.ones_like(given.q), grades, record=record)


def expect_programs(part: ModuleType, grades: str) -> None:
    """Each element of the results is written, and each program that reads writes something.

    In float16, whose tiles are not square; with more queries than keys, with fewer, and with just as
    many as whole tiles hold.
    """
    for tq, tk in ((200, 20), (20, 200), (128, 128)):
        found, work = results(part, tq, tk, grades, record=True)
        what = f"with {tq} queries over {tk} keys"
        written = _written(work.seen)
        for name, result in found.items():
            places = _addresses(result)
            lost = len(places - written)
            # A result that no kernel wrote was made of one that they did.
            expect(
                not 0 < lost < len(places),
                f"{lost} of {len(places)} numbers of {name} are written by no program, {what}",
                why=HELD[grades],
            )
        writers = {(a.kernel, a.program) for a in work.seen.accesses if a.deed != "reads"}
        idle = {(a.kernel, a.program) for a in work.seen.accesses} - writers
        expect(
            not idle,
            f"{len(idle)} of {work.seen.programs} programs read tiles and write nothing, {what}",
            why=HELD[grades],
        )


def _written(seen: Seen) -> set[int]:
    """The addresses that some program wrote."""
    found: set[int] = set()
    for access in seen.accesses:
        if access.deed != "reads":
            origin = access.origin
            found.update((origin.begin + np.asarray(access.elements) * origin.itemsize).tolist())
    return found


def _addresses(tensor: Tensor) -> set[int]:
    places = torch.zeros(tensor.shape, dtype=torch.int64)
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        index = torch.arange(size).view(-1, *[1] * (tensor.ndim - axis - 1))
        places = places + index * stride
    return set((tensor.data_ptr() + places * tensor.element_size()).flatten().tolist())


def expect_tensor_cores(part: ModuleType, grades: str) -> None:
    """No product of a float16 problem multiplies float32 tiles."""
    _, work = results(part, 20, 40, grades)
    wide, products = work.products.wide, len(work.products.dots)
    if not wide:
        return
    fault = Fault(
        f"{wide} of {products} products multiply two float32 tiles, though q, k and v are float16",
        why="Tensor cores take tiles of 16-bit numbers and add up in float32. A product of two float32 "
        "tiles goes through the ordinary units, many times slower: round what you computed, weights or "
        "gradients, to the dtype of the other tile, and keep acc in float32.",
    )
    fault.frames = work.products.lines
    raise fault
