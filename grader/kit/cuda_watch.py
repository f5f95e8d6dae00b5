"""A CUDA kernel under supervision: the CPU runtime's faults as failures of a part, and its counts.

    from grader.kit.cuda_watch import watching

    with watching() as launches:
        kernels.store_kv(k, v, key_blocks, value_blocks, slots)
    expect(launches[0].global_stores.efficiency > 0.9, "neighbouring threads store far apart")

`launches` holds a `Launch` for every kernel that ran: kernel, grid, block, barriers, atomics, loads and
stores of global and shared memory with their bytes, 32-byte sectors and bank conflicts, in all and by
line; see yaie/cuda/on_cpu/launches.py. Memory from `torch.empty` holds NaN meanwhile (the largest
number, for integers). `orders(n)` gives seeds under each of which threads run in another order.

A fault needs no `watching` to be reported well: the recorder turns any into a `Fault` by `as_fault`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from grader.kit.expect import Fault
from grader.kit.poison import nothing, poisoned
from grader.kit.session import SESSION
from yaie.cuda.on_cpu import KernelFault, Launch, recording, settings

WHY = {
    "race": (
        "Nothing orders blocks but an atomic operation or another launch. If not both threads mean this "
        "element, one of the two indices is wrong."
    ),
    "uninitialized": (
        "Shared memory starts with no value. What is read must have been written before: by this "
        "thread, or by another one with a barrier, __syncthreads(), in between; and also where the data "
        "ends before the last thread."
    ),
    "misaligned": (
        "A load of 8 or 16 bytes needs an address that is a multiple of that. Where an address, a "
        "stride or a row's size is none, it must go the narrow way."
    ),
    "barrier": (
        "Every thread of the block must come to the same __syncthreads(): not inside a condition that "
        "only some fulfil, and not after some have returned."
    ),
    "deadlock": (
        "A shuffle, vote or __syncwarp waits for every lane that its mask names, and some of these "
        "never come: they took another branch, or have returned."
    ),
    "runaway": "A loop whose end is never reached: its step is 0, or goes the wrong way.",
    "host_access": "A launcher runs on the host, and tensors lie on the device: only kernels read them.",
    "stream": (
        "A launcher's last argument is the stream of PyTorch's current work: hand it on to launch(). A "
        "kernel on another stream does not wait for what was launched before it, what comes after does "
        "not wait for the kernel, and a CUDA graph does not record it."
    ),
}

OUTSIDE = {
    "between the rows of": (
        "The next row or token begins a stride further on, not a row's length, and each tensor has a "
        "stride of its own. Check which stride this index is multiplied by, and whether it counts "
        "numbers, units or bytes."
    ),
    "before the start of": (
        "The index is negative: a slot or block number that stands for nothing, a difference below 0, "
        "or a product that did not fit into 32 bits."
    ),
    "neither of a tensor": (
        "The address is far from every tensor. What was used as an index is none (what stands behind "
        "the end of a table means nothing), or a product has the wrong unit or did not fit into 32 bits."
    ),
    "null pointer": "What is None in Python is a null pointer here: ask before reading it.",
    "of which the launch has asked": (
        "The shared_bytes of launch() must cover all that a block keeps there, and each index must stay "
        "below it."
    ),
    "of an array": (
        "An array of n elements has the indices 0 to n - 1. A thread without work must be masked by a "
        "condition; if it is, the index is computed wrongly."
    ),
    "past the end": (
        "Grids come in whole blocks and loops in whole steps: a thread without work must be masked by "
        "a condition, before it reads anything. If the condition is there, the index is too large: a "
        "wrong stride, or a size that counts something else."
    ),
}
"""What leads to an access out of bounds, by what the runtime says of the place."""


WITHIN = (
    "If both threads mean this element, a barrier, __syncthreads(), belongs between {}. If not, one of "
    "the two indices is wrong."
)
"""What orders two accesses of one block."""
SHAPE = re.compile(r"a (grid|block) of (\d+) x (\d+) x (\d+) .*$", re.S)
MOST_BLOCKS, MOST_THREADS = (2**31 - 1, 65_535, 65_535), (1024, 1024, 64)
"""Along x, y and z: of a grid, and of a block, which has 1,024 threads in all."""
DEEP = (
    "Along z a block has at most 64 threads, however few it has along x and y: whatever shares a block "
    "along z, rows or tokens, is no more than that."
)
OTHER_BLOCK = re.compile(r", thread \d+ of block")
FUNCTION = re.compile(r"__(?:device|global)__[^;{}()]*?\b(\w+)\s*\(")
BOUNDS = re.compile(r"__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)")

CLAIMS = {
    "stream": "A launcher launches on the stream that it is given.",
    "race": "What one thread writes and another one uses is ordered by a barrier.",
}
"""What such a fault is about, whichever test it happens in."""


@contextmanager
def watching(*, poison: bool = True) -> Iterator[list[Launch]]:
    """Collect every launch inside. Counting makes kernels slower: large shapes go without."""
    with recording() as launches, poisoned() if poison else nothing():
        yield launches


def orders(count: int) -> Iterator[int]:
    """A loop over seeds: in each turn the threads of a block run in another order."""
    for turn in range(count):
        with settings(seed=1000 * SESSION.seed + turn):
            yield turn


def as_fault(fault: KernelFault, where: str) -> Fault:
    """A fault of the runtime together with what usually leads to it, or with what the test says
    (`blamed` in cuda_work.py). where: as a report names it."""
    why = getattr(fault, "blame", "") or WHY.get(fault.kind, "")
    if (
        fault.kind == "race"
        and not hasattr(fault, "blame")
        and not OTHER_BLOCK.search(fault.message)
    ):
        why = WITHIN.format(accesses_of(fault))
    if not why and fault.kind == "out_of_bounds":
        why = next((told for said, told in OUTSIDE.items() if said in fault.message), "")
    message = fault.message
    if fault.kind == "launch" and (shape := SHAPE.search(message)):
        if shape[1] == "block" and int(shape[4]) > MOST_THREADS[2]:
            why = DEEP
        message = message[: shape.start()] + _told_shape(*shape.groups())
    told = Fault(message, why=why, where=where)
    if not hasattr(fault, "blame"):
        told.claim = CLAIMS.get(fault.kind, "")
    return told


def _told_shape(what: str, *sizes: str) -> str:
    """A grid or a block, and what of it CUDA refuses."""
    x, y, z = (int(size) for size in sizes)
    is_grid = what == "grid"
    found = []
    for axis, size, most in zip(
        "xyz", (x, y, z), MOST_BLOCKS if is_grid else MOST_THREADS, strict=True
    ):
        if size >= 2**31:
            found.append(f"{size:,} in {axis} is {size - 2**32:,} if it has a sign")
        elif size > most or size == 0:
            found.append(f"in {axis} 1 to {most:,} are possible")
    if not is_grid and not found:
        found.append(f"{x * y * z:,} in all, and at most 1,024 are possible")
    unit = "blocks" if is_grid else "threads"
    return f"a {what} of {x} x {y} x {z} {unit}: {', '.join(found)}"


def accesses_of(fault: KernelFault) -> str:
    """The two accesses of a race, by the functions that they happen in."""
    places = [fault.where, fault.other_where]
    if again := _next_round(fault):
        return again
    names = [_function_at(fault, place) for place in places]
    if not all(names) or names[0] == names[1]:
        return " and ".join(places) if all(places) and places[0] != places[1] else "the two"
    return " and ".join(f"{name} ({at})" for name, at in zip(names, places, strict=True))


def _next_round(fault: KernelFault) -> str:
    """Of a write after a read that stands below it in the same file: it is a loop's next round."""
    (file, _, line), (other, _, above) = (
        place.partition(":") for place in (fault.other_where, fault.where)
    )
    is_late = file == other and line.isdigit() and above.isdigit() and int(line) > int(above)
    if is_late and " writes " in fault.message and " read it " in fault.message:
        return f"the read in {fault.other_where} and the write of the next round in {fault.where}"
    return ""


def _function_at(fault: KernelFault, place: str) -> str:
    """The function of the part that has a line: "load_tile" for "tiles.cuh:45"; "" if it is unknown."""
    name, _, line = place.partition(":")
    if fault.file is None or not line.isdigit():
        return ""
    try:
        lines = (fault.file.parent / name).read_text("utf-8").splitlines()[: int(line)]
    except OSError:
        return ""
    found = FUNCTION.findall(BOUNDS.sub("", "\n".join(lines)))
    return found[-1] if found else ""
