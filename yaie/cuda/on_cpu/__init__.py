"""CUDA on the CPU: a learner's `.cu` file, unchanged, run without a GPU and with every access checked.

How it works. g++ compiles the file as C++ against the headers in `include/`, which give CUDA's
names their meaning, and calls a function before every access to memory (`-fsanitize=thread` makes
it do so) and at every basic block. Instead of the sanitizers' libraries, `runtime/` answers these
calls. The threads of a block are fibres: each runs on a small stack of its own until it comes to a
barrier, to a collective of its warp or to its end, in an order drawn from a seed; blocks run one
after another, in drawn order too. Tensors are copied into memory with much nobody's land around.

What it finds. Accesses outside of tensors and shared memory, before they happen. Races, by
happened-before (Lamport 1978), so in any order of the threads: two threads touch a byte, one of
them writes, and no `__syncthreads`, `__syncwarp`, launch, or fence with an atomic stands between.
Shared memory that is read before it is written; vectors at addresses that do not fit; barriers and
warp collectives in which not all take part; loops without an end; integer overflow, shifts and
indices that C++ leaves undefined. Each is a `KernelFault` with names, lines and threads.
`recording()` counts what the memory system of a GPU would do: bytes, 32-byte sectors, bank
conflicts.

What a pass does not prove. Only what ran was checked: other shapes take other branches. An index
that is wrong and still hits the same tensor or array is not out of bounds. Blocks that wait for
each other never come to run here. Nothing is timed, registers and caches have no limits, arithmetic
is the CPU's (libm's `expf` for `__expf`, no fused multiply-add), and the counts are a model:
requests are matched by line and turn, and a real compiler may merge or reorder loads. Inline
assembly, tensor cores, asynchronous copies and cooperative groups are not there.
"""

from yaie.cuda.on_cpu.calls import OnCpu
from yaie.cuda.on_cpu.faults import KernelFault
from yaie.cuda.on_cpu.launches import Launch, Line, Traffic, recording, settings

__all__ = ["KernelFault", "Launch", "Line", "OnCpu", "Traffic", "recording", "settings"]
