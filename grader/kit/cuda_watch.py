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

from collections.abc import Iterator
from contextlib import contextmanager

from grader.kit.expect import Fault
from grader.kit.poison import nothing, poisoned
from grader.kit.session import SESSION
from yaie.cuda.on_cpu import KernelFault, Launch, recording, settings

WHY = {
    "race": (
        "Nothing orders these two accesses. If both threads mean this element: within a block a barrier "
        "orders them, __syncthreads(), between the write and whoever reads or overwrites it; between "
        "blocks only an atomic operation or another launch. If not, one of the two indices is wrong."
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
    "launch": "CUDA refuses such a launch: at most 1024 threads a block, and no dimension may be 0.",
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


CLAIMS = {"stream": "A launcher launches on the stream that it is given."}
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
    if not why and fault.kind == "out_of_bounds":
        why = next((told for said, told in OUTSIDE.items() if said in fault.message), "")
    told = Fault(fault.message, why=why, where=where)
    told.claim = CLAIMS.get(fault.kind, "")
    return told
