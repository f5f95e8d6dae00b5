"""The all-reduce of some hundred rows as one kernel over the other GPUs' memory, in Triton.

One-shot (`peer_kernel`) sends everything to everybody, and with numbers of the call among them that is
twice the bytes. Here a rank sends each other rank only the part that this one sums, and gets the sums
of the other parts: 2 * (ranks - 1) / ranks of the bytes, but two trips. Data are stored as they are; a
flag follows them, with release, and is read with acquire. (Reduce-scatter, then all-gather: Patarasuk
and Yuan 2009. PyTorch's two-shot kernel over symmetric memory has the same two trips.)
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from yaie.worker.parallel.peer_kernel import number, placed

PART = 1024
"""Units of eight bytes that a program sums for all ranks."""

SIGNAL = tl.constexpr("""{
    .reg .pred idle;
    .reg .b32 thread;
    .reg .b64 there;
    mov.u32 thread, %tid.x;
    setp.ge.u32 idle, thread, $4;
    @idle bra over;
    setp.eq.u32 idle, thread, $5;
    @idle bra over;
    mad.wide.u32 there, thread, 8, $1;
    ld.global.b64 there, [there];
    add.s64 there, there, $2;
    st.release.sys.global.u32 [there], $3;
    over:
    mov.u32 $0, 0;
}""")
"""Thread r tells rank r. What other threads have stored comes before, by the barrier in front."""
AWAIT = tl.constexpr("""{
    .reg .pred idle;
    .reg .b32 thread, seen, stop, reads, turn;
    .reg .b64 here;
    mov.u32 thread, %tid.x;
    setp.ge.u32 idle, thread, $4;
    @idle bra over;
    setp.eq.u32 idle, thread, $5;
    @idle bra over;
    mad.wide.u32 here, thread, 4, $1;
    mov.u32 reads, 0;
    again:
    ld.acquire.sys.global.u32 seen, [here];
    setp.eq.u32 idle, seen, $2;
    @idle bra over;
    add.u32 reads, reads, 1;
    setp.lt.u32 idle, reads, 64;
    @idle bra again;
    nanosleep.u32 200;
    and.b32 turn, reads, 1023;
    setp.ne.u32 idle, turn, 0;
    @idle bra again;
    ld.volatile.global.u32 stop, [$3];
    setp.eq.u32 idle, stop, 0;
    @idle bra again;
    over:
    mov.u32 $0, 0;
}""")
"""Thread r waits for rank r. One thread each: those of all programs would keep the memory busy, and the
numbers that they wait for would come late."""


@triton.jit
def buffer_of(buffers, rank):
    """The buffer of a rank, as units."""
    return tl.multiple_of(tl.load(buffers + rank).to(tl.pointer_type(tl.int64)), 16)


@triton.jit
def signal(buffers, flags, call, RANK: tl.constexpr, SIZE: tl.constexpr):
    """Tell every other rank that what this program has stored there is whole. flags: bytes from the
    beginning of a buffer to [SIZE] int32, by sender."""
    tl.debug_barrier()
    tl.inline_asm_elementwise(
        SIGNAL, "=r,l,l,r,r,r", [buffers, flags + 4 * RANK, call, SIZE, RANK],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def wait(buffers, flags, call, stop, RANK: tl.constexpr, SIZE: tl.constexpr):
    """Until every other rank has said so, or the engine gives up."""
    here = tl.load(buffers + RANK) + flags
    tl.inline_asm_elementwise(
        AWAIT, "=r,l,r,l,r,r", [here, call, stop, SIZE, RANK],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
    tl.debug_barrier()


@triton.jit
def two_shot_kernel(
    x, buffers, calls, stop, units, RANK: tl.constexpr, SIZE: tl.constexpr, START: tl.constexpr,
    SHARE: tl.constexpr, PART: tl.constexpr, dtype: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """x [units] int64, eight bytes of numbers of `dtype` each, becomes the sum over the ranks.

    A program has SIZE * PART consecutive units, of which rank r sums those from r * PART on.
    buffers: [SIZE] int64, the addresses of every rank's buffer, in which this kernel's part begins at
    unit START: [SIZE, SHARE] units to sum, by sender; as many sums, by who made them; flags [programs,
    2, SIZE] int32. calls: [programs] int32, this rank's, how often each program ran.
    stop: [1] int32 in the host's memory; when it is not 0, the kernel waits for no other rank.

    A flag is the number of the call. What a rank has read is not written again before it says so: to
    send sums it must have read the numbers, and to send the next numbers, the sums.
    In float32, rank by rank in their order, as one-shot does it.
    """
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    program = tl.program_id(0)
    lane = tl.arange(0, PART)
    first = program * (SIZE * PART)
    slot = START + program * PART + lane
    SUMS: tl.constexpr = SIZE * SHARE
    FLAGS: tl.constexpr = (START + 2 * SIZE * SHARE) * 8
    flags = FLAGS + program.to(tl.int64) * (2 * SIZE * 4)
    call = tl.load(calls + program) + 1
    for rank in tl.static_range(SIZE):
        if rank != RANK:
            unit = first + rank * PART + lane
            given = tl.load(x + unit, mask=unit < units, other=0)
            tl.store(buffer_of(buffers, rank) + RANK * SHARE + slot, given)
    signal(buffers, flags, call, RANK, SIZE)

    mine = first + RANK * PART + lane
    own = tl.load(x + mine, mask=mine < units, other=0)
    sums = tl.zeros([PART], tl.float32), tl.zeros([PART], tl.float32)
    more = tl.zeros([PART], tl.float32), tl.zeros([PART], tl.float32)
    wait(buffers, flags, call, stop, RANK, SIZE)
    here = buffer_of(buffers, RANK)
    for rank in tl.static_range(SIZE):
        words = own
        if rank != RANK:
            # Not from this processor's own cache, which other GPUs do not write to.
            words = tl.load(here + rank * SHARE + slot, cache_modifier=".cg")
        sums = sums[0] + number(words, 0, dtype), sums[1] + number(words, 1, dtype)
        if dtype.primitive_bitwidth == 16:
            more = more[0] + number(words, 2, dtype), more[1] + number(words, 3, dtype)
    total = placed(sums[0], 0, dtype) | placed(sums[1], 1, dtype)
    if dtype.primitive_bitwidth == 16:
        total |= placed(more[0], 2, dtype) | placed(more[1], 3, dtype)
    for rank in tl.static_range(SIZE):
        if rank != RANK:
            tl.store(buffer_of(buffers, rank) + SUMS + RANK * SHARE + slot, total)
    signal(buffers, flags + SIZE * 4, call, RANK, SIZE)

    tl.store(x + mine, total, mask=mine < units)
    wait(buffers, flags + SIZE * 4, call, stop, RANK, SIZE)
    for rank in tl.static_range(SIZE):
        if rank != RANK:
            unit = first + rank * PART + lane
            told = tl.load(here + SUMS + rank * SHARE + slot, cache_modifier=".cg")
            tl.store(x + unit, told, mask=unit < units)
    tl.debug_barrier()  # until every thread has read the number of the call
    tl.store(calls + program, call)
