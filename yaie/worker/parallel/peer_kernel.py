"""The all-reduce of a few rows as one kernel that writes into the other GPUs' memory, in Triton.

Every rank stores its numbers in a buffer of each other rank, waits for theirs in its own, and sums: one
trip over the link, where a ring takes 2 * (ranks - 1). No flag is sent behind the data, for which a
fence would have to wait: eight bytes of data travel as sixteen with the number of the call twice among
them, and the receiver reads them until both are the number that it waits for. Eight bytes arrive
together, so data with the right number are whole. (The protocol is NCCL's LL; Hu et al. 2025,
"Demystifying NCCL", section 4.)
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

UNIT = 8
"""Bytes of data that a thread sends at a time."""
BLOCK = 128
"""Units of a program, one for each thread: it waits for one after the other."""

SEND = tl.constexpr("""{
    .reg .b32 low, high;
    mov.b64 {low, high}, $2;
    st.volatile.global.v4.u32 [$1], {low, $3, high, $3};
    mov.u32 $0, 0;
}""")
RECEIVE = tl.constexpr("""{
    .reg .pred early, patient;
    .reg .b32 low, first, high, second, stop, reads, turn;
    mov.u32 reads, 0;
    again:
    ld.volatile.global.v4.u32 {low, first, high, second}, [$1];
    setp.ne.u32 early, first, $2;
    @!early setp.ne.u32 early, second, $2;
    @!early bra arrived;
    add.u32 reads, reads, 1;
    setp.lt.u32 patient, reads, 64;
    @patient bra again;
    nanosleep.u32 200;
    and.b32 turn, reads, 1023;
    setp.ne.u32 patient, turn, 0;
    @patient bra again;
    ld.volatile.global.u32 stop, [$3];
    setp.eq.u32 patient, stop, 0;
    @patient bra again;
    arrived:
    mov.b64 $0, {low, high};
}""")
"""`stop` lies in the host's memory, which takes a microsecond to read: a look for 1,024 at the data.
What has not come after 64 reads is late, and is asked for less often: reads are in the way of what they
wait for."""


@triton.jit
def number(words, LANE: tl.constexpr, dtype: tl.constexpr):
    """The LANE-th number of eight bytes each, in float32. words: int64."""
    BITS: tl.constexpr = dtype.primitive_bitwidth
    shifted = words >> (LANE * BITS)
    if BITS == 32:
        numbers = shifted.to(tl.int32).to(tl.float32, bitcast=True)
    else:
        numbers = shifted.to(tl.int16).to(dtype, bitcast=True).to(tl.float32)
    return numbers


@triton.jit
def placed(sums, LANE: tl.constexpr, dtype: tl.constexpr):
    """The reverse: int64 with the rounded sums in their place."""
    BITS: tl.constexpr = dtype.primitive_bitwidth
    if BITS == 32:
        words = sums.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    else:
        words = sums.to(dtype).to(tl.int16, bitcast=True).to(tl.int64) & 0xFFFF
    return words << (LANE * BITS)


@triton.jit(do_not_specialize=["units"])
def one_shot_kernel(
    x, buffers, calls, stop, units, RANK: tl.constexpr, SIZE: tl.constexpr, CAPACITY: tl.constexpr,
    BLOCK: tl.constexpr, dtype: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """x [units] int64, eight bytes of numbers of `dtype` each, becomes the sum over the ranks.

    buffers: [SIZE] int64, the addresses of every rank's buffer [2, SIZE, CAPACITY, 16 bytes]: halves
    that calls use in turn, then who sends. A rank may write a half again when it has the others' next
    numbers: by then they have read it.
    calls: [programs] int32, this rank's, how often each program ran; a graph that is replayed counts on.
    stop: [1] int32 in the host's memory; when it is not 0, the kernel waits for no other rank.

    In float32, rank by rank in their order: the same bits everywhere.
    """
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    program = tl.program_id(0)
    unit = program * BLOCK + tl.arange(0, BLOCK)
    call = tl.load(calls + program) + 1
    half = (call & 1).to(tl.int64) * (SIZE * CAPACITY)
    own = tl.load(x + unit, mask=unit < units, other=0)
    for rank in tl.static_range(SIZE):
        if rank != RANK:
            there = tl.load(buffers + rank) + (half + RANK * CAPACITY + unit) * 16
            tl.inline_asm_elementwise(
                SEND, "=r,l,l,r", [there, own, call], dtype=tl.int32, is_pure=False, pack=1
            )
    sums = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    more = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for rank in tl.static_range(SIZE):
        words = own
        if rank != RANK:
            here = tl.load(buffers + RANK) + (half + rank * CAPACITY + unit) * 16
            words = tl.inline_asm_elementwise(
                RECEIVE, "=l,l,r,l", [here, call, stop], dtype=tl.int64, is_pure=False, pack=1
            )
        sums = sums[0] + number(words, 0, dtype), sums[1] + number(words, 1, dtype)
        if dtype.primitive_bitwidth == 16:
            more = more[0] + number(words, 2, dtype), more[1] + number(words, 3, dtype)
    total = placed(sums[0], 0, dtype) | placed(sums[1], 1, dtype)
    if dtype.primitive_bitwidth == 16:
        total |= placed(more[0], 2, dtype) | placed(more[1], 3, dtype)
    tl.store(x + unit, total, mask=unit < units)
    tl.debug_barrier()  # until every thread has read the number of the call
    tl.store(calls + program, call)
