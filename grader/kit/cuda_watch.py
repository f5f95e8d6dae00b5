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
        "Nothing orders these two accesses. Within a block a barrier does, __syncthreads(), between the "
        "write and whoever reads or overwrites it; between blocks only an atomic operation or another "
        "launch."
    ),
    "out_of_bounds": (
        "The last block and the last tile reach past the end wherever a size is no multiple of theirs: "
        "threads out there must be masked by a condition."
    ),
    "uninitialized": (
        "Shared memory starts with no value. What is read must have been written before: by this "
        "thread, or by another one with a barrier, __syncthreads(), in between; and also where the data "
        "ends in the middle of a tile."
    ),
    "misaligned": (
        "A load of 8 or 16 bytes needs an address that is a multiple of that. Rows whose length or "
        "start is not must go the narrow way."
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
    "launch": "CUDA refuses such a launch: at most 1024 threads a block, and no dimension may be 0.",
}


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
    return Fault(fault.message, why=why, where=where)
